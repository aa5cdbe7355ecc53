package blob

import (
	"strings"

	"tine.dev/tine/internal/tine"
)

// Limits of keys. A part may triple when a driver escapes it for a file
// system, and still fits into a file name of 255 bytes; a store's own prefix
// of up to 255 bytes stands in front and all fits into 1,024 bytes.
const (
	MaxKeyBytes    = 768
	MaxPartBytes   = 80
	MaxPrefixBytes = 255
)

// Key names an object: parts joined by "/". Keys are made by tine alone, from
// ids and numbers, never from users' names, so they can be held to what every
// store takes unchanged: parts of 1 to MaxPartBytes printable ASCII bytes
// (0x20 to 0x7e) without "\", which one store reads as "/"; a part neither
// starts with a space or a dot nor ends with one.
type Key string

// Check returns an error of kind tine.KindInvalid or tine.KindNameTooLong for
// a key that is not legal.
func (k Key) Check() error {
	if len(k) > MaxKeyBytes {
		return tine.Errorf(tine.KindNameTooLong, "a key of %d bytes; at most %d", len(k), MaxKeyBytes)
	}
	return checkParts("key", string(k))
}

// CheckPrefix is Check for the prefix that a store puts in front of all its
// keys: "" or parts joined by "/", without a "/" at the end.
func CheckPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	if len(prefix) > MaxPrefixBytes {
		return tine.Errorf(tine.KindNameTooLong, "a store's prefix of %d bytes; at most %d", len(prefix), MaxPrefixBytes)
	}
	return checkParts("prefix", prefix)
}

func checkParts(what, s string) error {
	for part := range strings.SplitSeq(s, "/") {
		switch {
		case part == "":
			return tine.Errorf(tine.KindInvalid, "%s %q has an empty part", what, s)
		case len(part) > MaxPartBytes:
			return tine.Errorf(tine.KindNameTooLong, "%s %q has a part of %d bytes; at most %d", what, s, len(part), MaxPartBytes)
		case strings.Trim(part, " .") != part:
			return tine.Errorf(tine.KindInvalid, "%s %q has a part that starts or ends with a space or a dot", what, s)
		}
	}
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e || s[i] == '\\' {
			return tine.Errorf(tine.KindInvalid, "%s %q holds the byte %#x", what, s, s[i])
		}
	}
	return nil
}
