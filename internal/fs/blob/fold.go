package blob

import "strings"

// Fold returns under which name a key is listed: its own, or, with a
// delimiter that it holds after the prefix, what goes up to the delimiter.
// Drivers that list by themselves use it.
func Fold(key string, opt ListOptions) (name string, folded bool) {
	if opt.Delimiter == "" {
		return key, false
	}
	if i := strings.Index(key[len(opt.Prefix):], opt.Delimiter); i >= 0 {
		return key[:len(opt.Prefix)+i+len(opt.Delimiter)], true
	}
	return key, false
}
