package config

import (
	"path/filepath"
	"strconv"
)

// DefaultData is the data directory of a server that is told none:
// /var/lib/tine for root, else tine in the user's data directory.
func DefaultData(getenv func(string) string, uid int) string {
	if uid == 0 {
		return "/var/lib/tine"
	}
	if d := getenv("XDG_DATA_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "tine")
	}
	return filepath.Join(getenv("HOME"), ".local", "share", "tine")
}

// DefaultSocket is where a server listens and a client looks when told
// nothing: /run/tine/tine.sock for root, else in the user's runtime directory,
// or, where there is none, in a directory of the user's own in /tmp.
func DefaultSocket(getenv func(string) string, uid int) string {
	if uid == 0 {
		return "/run/tine/tine.sock"
	}
	if d := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(d) {
		return filepath.Join(d, "tine.sock")
	}
	return filepath.Join("/tmp", "tine-"+strconv.Itoa(uid), "tine.sock")
}
