// Command release builds what is published: the program as a static binary in
// a tar file, a Debian package, and their checksums.
//
// The same source gives the same bytes, on any machine with the same Go: the
// program holds no path and no build id, all times are that of the commit, and
// the archives are written here, entry by entry, rather than by tools that
// differ from one machine to the next. That is also why the Debian package is
// not made by dpkg-deb: the format is three files in an ar archive, and so the
// release can be made, and compared, anywhere.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	var r release
	var arches string
	flag.StringVar(&r.source, "source", ".", "the checkout")
	flag.StringVar(&r.out, "out", "dist", "where to write")
	flag.StringVar(&arches, "arch", "amd64", "architectures, as Go names them, with commas between")
	flag.StringVar(&r.goTool, "go", "go", "the Go command")
	flag.Parse()
	if err := r.run(strings.Split(arches, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is one run.
type release struct {
	source, out, goTool string
}

// build is a program and what is known of it.
type build struct {
	arch    string // as Go names it
	program []byte
	version string    // as Go names it, with a v
	when    time.Time // of the commit
}

func (r release) run(arches []string) error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	var sums strings.Builder
	for _, arch := range arches {
		b, err := r.build(arch)
		if err != nil {
			return fmt.Errorf("build for %s: %w", arch, err)
		}
		for _, pack := range []func(build) (string, []byte, error){r.tarball, r.debian} {
			name, content, err := pack(b)
			if err != nil {
				return fmt.Errorf("pack for %s: %w", arch, err)
			}
			if err := os.WriteFile(filepath.Join(r.out, name), content, 0o644); err != nil {
				return err
			}
			fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), name)
			fmt.Printf("%s  %d bytes\n", filepath.Join(r.out, name), len(content))
		}
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// build compiles the program, static and without symbols.
func (r release) build(arch string) (build, error) {
	dir, err := os.MkdirTemp("", "tine-release-")
	if err != nil {
		return build{}, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "tine")
	cmd := exec.Command(r.goTool, "build", "-trimpath", "-buildvcs=auto", "-ldflags", "-s -w -buildid=", "-o", path, "./cmd/tine")
	cmd.Dir = r.source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOAMD64=v1", "GOFLAGS=")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return build{}, err
	}
	b := build{arch: arch, version: "v0.0.0-devel", when: time.Unix(0, 0)}
	if b.program, err = os.ReadFile(path); err != nil {
		return build{}, err
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return build{}, err
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.version = v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			if b.when, err = time.Parse(time.RFC3339, s.Value); err != nil {
				return build{}, err
			}
		}
	}
	return b, nil
}

// debianVersion writes a version of Go's so that dpkg orders it as Go does.
func debianVersion(v string) string {
	v = strings.TrimPrefix(v, "v")
	main, rest, pre := strings.Cut(v, "-")
	if !pre {
		return main
	}
	return main + "~" + strings.ReplaceAll(rest, "-", ".")
}

// debianArch is Debian's name of an architecture.
func debianArch(arch string) string {
	switch arch {
	case "386":
		return "i386"
	case "arm":
		return "armhf"
	case "ppc64le":
		return "ppc64el"
	}
	return arch
}
