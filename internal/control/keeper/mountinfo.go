package keeper

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"tine.dev/tine/internal/control/oserr"
)

// fsType is the file system type of a tine mount in /proc/self/mountinfo.
const fsType = "fuse.tine"

// mountTable lists the mount points of the machine with their file system
// types; of several at one directory the last, which is on top.
func mountTable() (map[string]string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, oserr.Wrap(err, "list the mounts")
	}
	return parseMountInfo(string(b)), nil
}

// parseMountInfo reads proc(5)'s format: the mount point is the fifth field,
// the type is the first after a lone "-".
func parseMountInfo(text string) map[string]string {
	table := map[string]string{}
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		rest := strings.Fields(after)
		if ok && len(fields) >= 5 && len(rest) >= 1 {
			table[unescape(fields[4])] = rest[0]
		}
	}
	return table
}

// unescape undoes the kernel's octal escapes of blanks and backslashes.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// IsTineMount reports whether a tine file system, alive or dead, is mounted on
// the directory. It asks the kernel's table, never the directory itself, which
// may not answer.
func IsTineMount(dir string) (bool, error) {
	table, err := mountTable()
	if err != nil {
		return false, err
	}
	return table[filepath.Clean(dir)] == fsType, nil
}
