package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// entry is a file or a symbolic link of an archive.
type entry struct {
	name    string // without a leading slash
	mode    int64
	content []byte
	link    string // of a symbolic link, where it leads
}

// tarGz packs entries, with the directories that they need, in the order of
// their names. All belong to root and have one time.
func tarGz(entries []entry, root string, when time.Time) ([]byte, error) {
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	t := tar.NewWriter(z)
	made := map[string]bool{".": true}
	var mkdir func(dir string) error
	mkdir = func(dir string) error {
		if made[dir] {
			return nil
		}
		made[dir] = true
		if err := mkdir(path.Dir(dir)); err != nil {
			return err
		}
		return t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: root + dir + "/", Mode: 0o755, ModTime: when, Uname: "root", Gname: "root", Format: tar.FormatGNU})
	}
	for _, e := range entries {
		if err := mkdir(path.Dir(e.name)); err != nil {
			return nil, err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: root + e.name, Mode: e.mode, Size: int64(len(e.content)), ModTime: when, Uname: "root", Gname: "root", Format: tar.FormatGNU}
		if e.link != "" {
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.link, 0o777
		}
		if err := t.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := t.Write(e.content); err != nil {
			return nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// gz compresses without a name or a time.
func gz(content []byte) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(content); err != nil {
		return nil, err
	}
	err = z.Close()
	return out.Bytes(), err
}

// ar packs the members of a Debian package: ar(5), with short names.
func ar(members []entry, when time.Time) []byte {
	var out bytes.Buffer
	out.WriteString("!<arch>\n")
	for _, m := range members {
		fmt.Fprintf(&out, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", m.name, when.Unix(), 0, 0, 0o100644, len(m.content))
		out.Write(m.content)
		if len(m.content)%2 == 1 {
			out.WriteByte('\n')
		}
	}
	return out.Bytes()
}
