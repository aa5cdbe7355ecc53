package archive

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// The bounds of what an archive can make a reader keep in memory. A file with
// two hundred of the largest extended attributes fits.
const (
	maxPaxBytes    = 16 << 20
	maxGlobalBytes = 1 << 20
	maxNameBytes   = 1 << 20 // of GNU's long names
)

// The PAX records that are understood.
const (
	paxPath     = "path"
	paxLinkpath = "linkpath"
	paxSize     = "size"
	paxUID      = "uid"
	paxGID      = "gid"
	paxMtime    = "mtime"
	paxAtime    = "atime"
	paxCharset  = "hdrcharset"

	paxXattr      = "SCHILY.xattr."
	paxACLAccess  = "SCHILY.acl.access"
	paxACLDefault = "SCHILY.acl.default"

	paxSparse         = "GNU.sparse."
	paxSparseMajor    = "GNU.sparse.major"
	paxSparseMinor    = "GNU.sparse.minor"
	paxSparseName     = "GNU.sparse.name"
	paxSparseRealSize = "GNU.sparse.realsize"
	paxSparseSize     = "GNU.sparse.size"
	paxSparseOffset   = "GNU.sparse.offset"
	paxSparseNumBytes = "GNU.sparse.numbytes"
	paxSparseMap      = "GNU.sparse.map"
)

// paxRecord is one record. Their order counts: the oldest sparse format repeats
// keys.
type paxRecord struct{ key, value string }

// parsePax reads records of the form "LENGTH KEY=VALUE\n", where the length is
// that of the whole record.
func parsePax(b []byte) (rs []paxRecord, ok bool) {
	for len(b) > 0 {
		digits, _, found := bytes.Cut(b, []byte(" "))
		if !found || len(digits) == 0 || len(digits) > 9 {
			return nil, false
		}
		n, err := strconv.ParseUint(string(digits), 10, 32)
		if err != nil || n > uint64(len(b)) || n < uint64(len(digits))+2 || b[n-1] != '\n' {
			return nil, false
		}
		key, value, found := strings.Cut(string(b[len(digits)+1:n-1]), "=")
		if !found || key == "" {
			return nil, false
		}
		rs = append(rs, paxRecord{key, value})
		b = b[n:]
	}
	return rs, true
}

// appendPax adds a record.
func appendPax(dst []byte, key, value string) []byte {
	rest := len(key) + len(value) + 3 // " ", "=", "\n"
	n := rest + len(strconv.Itoa(rest))
	if total := strconv.Itoa(n); len(total)+rest != n {
		n = len(total) + rest
	}
	dst = strconv.AppendInt(dst, int64(n), 10)
	dst = append(dst, ' ')
	dst = append(append(append(dst, key...), '='), value...)
	return append(dst, '\n')
}

// formatTime writes nanoseconds as the decimal seconds of PAX.
func formatTime(ns int64) string {
	sign, abs := "", uint64(ns)
	if ns < 0 {
		sign, abs = "-", -uint64(ns)
	}
	s := sign + strconv.FormatUint(abs/1e9, 10)
	if frac := abs % 1e9; frac != 0 {
		s += strings.TrimRight("."+strconv.FormatUint(1e9+frac, 10)[1:], "0")
	}
	return s
}

// parseTime reads decimal seconds. What is finer than a nanosecond is cut off,
// and what an int64 cannot hold becomes the nearest that it can.
func parseTime(s string) (ns int64, ok bool) {
	whole, frac, _ := strings.Cut(s, ".")
	digits, negative := strings.CutPrefix(whole, "-")
	sec, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || strings.Trim(frac, "0123456789") != "" {
		return 0, false
	}
	nsec, _ := strconv.ParseUint((frac + "000000000")[:9], 10, 32)
	if sec >= math.MaxInt64/1_000_000_000 {
		if negative {
			return math.MinInt64, true
		}
		return math.MaxInt64, true
	}
	ns = int64(sec)*1e9 + int64(nsec)
	if negative {
		ns = -ns
	}
	return ns, true
}

// encodeXattrName writes an attribute's name as a key: GNU tar escapes the
// character that ends a key, and the one that it escapes with.
func encodeXattrName(name string) string {
	return strings.NewReplacer("%", "%25", "=", "%3D").Replace(name)
}

func decodeXattrName(key string) string {
	return strings.NewReplacer("%25", "%", "%3D", "=").Replace(key)
}
