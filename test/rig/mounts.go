package rig

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// mountsBelow returns the mount points at and below dir, innermost first.
func mountsBelow(dir string) ([]string, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(info)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if at := unescape(fields[4]); at == dir || strings.HasPrefix(at, dir+"/") {
			found = append(found, at)
		}
	}
	slices.Reverse(found) // the kernel lists them in the order of mounting
	return found, nil
}

// unescape undoes the octal escapes of mountinfo: \040 for a space.
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

// unmountBelow takes away every mount at and below dir, also those in use and
// those whose server is gone.
func unmountBelow(dir string) error {
	found, err := mountsBelow(dir)
	for _, at := range found {
		err = errors.Join(err, os.NewSyscallError("umount "+at, syscall.Unmount(at, syscall.MNT_DETACH)))
	}
	return err
}
