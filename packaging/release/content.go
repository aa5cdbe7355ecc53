package main

import (
	"crypto/md5"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// documents are the files that go along with the program.
var documents = []string{"README.md", "SPECIFICATION.md", "SECURITY.md", "CHANGELOG.md"}

func (r release) file(name, as string, mode int64) (entry, error) {
	b, err := os.ReadFile(filepath.Join(r.source, name))
	return entry{name: as, mode: mode, content: b}, err
}

// files reads several files: source, name in the archive, mode.
func (r release) files(list [][2]string, mode int64) ([]entry, error) {
	var es []entry
	for _, f := range list {
		e, err := r.file(f[0], f[1], mode)
		if err != nil {
			return nil, err
		}
		es = append(es, e)
	}
	return es, nil
}

// tarball is the program with its documents, for any Linux.
func (r release) tarball(b build) (string, []byte, error) {
	name := fmt.Sprintf("tine-%s-linux-%s", strings.TrimPrefix(b.version, "v"), b.arch)
	list := [][2]string{{"LICENSE", name + "/LICENSE"}, {"NOTICE", name + "/NOTICE"}, {"packaging/tine.service", name + "/tine.service"},
		{"packaging/tine.toml", name + "/tine.toml"}, {"cmd/tine/completion.bash", name + "/completion.bash"}}
	for _, d := range documents {
		list = append(list, [2]string{d, name + "/" + d})
	}
	es, err := r.files(list, 0o644)
	if err != nil {
		return "", nil, err
	}
	es = append(es, entry{name: name + "/tine", mode: 0o755, content: b.program}, entry{name: name + "/mount.tine", link: "tine"},
		entry{name: name + "/mount.fuse.tine", link: "tine"})
	content, err := tarGz(es, "", b.when)
	return name + ".tar.gz", content, err
}

// conffiles are what an administrator changes, and an upgrade leaves alone.
var conffiles = []string{"/etc/tine/tine.toml"}

// debian is the Debian package.
func (r release) debian(b build) (string, []byte, error) {
	data, err := r.debianData(b)
	if err != nil {
		return "", nil, err
	}
	control, err := r.debianControl(b, data)
	if err != nil {
		return "", nil, err
	}
	dataTar, err := tarGz(data, "./", b.when)
	if err != nil {
		return "", nil, err
	}
	controlTar, err := tarGz(control, "./", b.when)
	if err != nil {
		return "", nil, err
	}
	name := fmt.Sprintf("tine_%s_%s.deb", debianVersion(b.version), debianArch(b.arch))
	return name, ar([]entry{{name: "debian-binary", content: []byte("2.0\n")}, {name: "control.tar.gz", content: controlTar}, {name: "data.tar.gz", content: dataTar}}, b.when), nil
}

func (r release) debianData(b build) ([]entry, error) {
	const doc = "usr/share/doc/tine/"
	list := [][2]string{{"packaging/tine.service", "usr/lib/systemd/system/tine.service"}, {"packaging/tine.toml", "etc/tine/tine.toml"},
		{"cmd/tine/completion.bash", "usr/share/bash-completion/completions/tine"}, {"NOTICE", doc + "NOTICE"}}
	for _, d := range documents {
		list = append(list, [2]string{d, doc + d})
	}
	es, err := r.files(list, 0o644)
	if err != nil {
		return nil, err
	}
	license, err := r.file("LICENSE", "", 0)
	if err != nil {
		return nil, err
	}
	version := debianVersion(b.version)
	changes, err := gz(fmt.Appendf(nil, "tine (%s) stable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- %s  %s\n", version, maintainer, b.when.UTC().Format("Mon, 02 Jan 2006 15:04:05 -0700")))
	if err != nil {
		return nil, err
	}
	return append(es,
		entry{name: "usr/bin/tine", mode: 0o755, content: b.program},
		entry{name: "usr/sbin/mount.tine", link: "../bin/tine"},
		entry{name: "usr/sbin/mount.fuse.tine", link: "../bin/tine"}, // for a remount, by the type in the kernel's table
		entry{name: doc + "copyright", mode: 0o644, content: append([]byte("tine is distributed under the Apache License 2.0:\n\n"), license.content...)},
		entry{name: doc + "changelog.gz", mode: 0o644, content: changes},
	), nil
}

// maintainer is who is named in the package.
const maintainer = "the tine authors <tine@tine.dev>"

func (r release) debianControl(b build, data []entry) ([]entry, error) {
	var kib int64
	var sums strings.Builder
	for _, e := range data {
		if e.link == "" {
			kib += (int64(len(e.content)) + 1023) / 1024
			fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(e.content), e.name)
		}
	}
	control := fmt.Sprintf(`Package: tine
Version: %s
Architecture: %s
Maintainer: %s
Installed-Size: %d
Section: admin
Priority: optional
Homepage: https://tine.dev
Recommends: fuse3
Description: durable disks that fork in milliseconds
 tine keeps durable POSIX disks. A fork, a checkpoint or a rollback of one is a
 small record, whatever the disk holds. Disks are mounted with FUSE, by the
 server, or with mount(8) and fstab by the type tine.
`, debianVersion(b.version), debianArch(b.arch), maintainer, kib)
	es := []entry{
		{name: "control", mode: 0o644, content: []byte(control)},
		{name: "md5sums", mode: 0o644, content: []byte(sums.String())},
		{name: "conffiles", mode: 0o644, content: []byte(strings.Join(conffiles, "\n") + "\n")},
	}
	scripts, err := r.files([][2]string{{"packaging/debian/postinst", "postinst"}, {"packaging/debian/prerm", "prerm"}, {"packaging/debian/postrm", "postrm"}}, 0o755)
	return append(es, scripts...), err
}
