// Package buildinfo tells which build of tine is running, from what the Go
// toolchain records in every binary.
package buildinfo

import (
	"runtime"
	"runtime/debug"

	"tine.dev/tine/api"
)

// Read returns the build's version, commit and platform. What the toolchain
// did not record is left empty; the version is then "devel".
func Read() api.Version {
	v := api.Version{Version: "devel", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if mv := info.Main.Version; mv != "" && mv != "(devel)" {
		v.Version = mv
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
