package importer

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// tarOf makes an archive with the standard library: a writer of its own
// making, and one that lets anything into a name.
func tarOf(t *testing.T, hs ...tar.Header) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range hs {
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		h.Size = 0
		data := h.Uname // of no other use here
		h.Uname = ""
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(data))
		}
		ok(t, w.WriteHeader(&h))
		if h.Size > 0 {
			_, err := w.Write([]byte(data))
			ok(t, err)
		}
	}
	ok(t, w.Close())
	return &b
}

// into unpacks an archive into the disk "work".
func into(t *testing.T, im *Importer, path string, r io.Reader) error {
	t.Helper()
	_, _, _, err := im.ImportTar(t.Context(), me, Tar{Disk: "work", Path: path, Existing: true, Interrupt: func() {}}, r, func(api.ImportLine) {})
	return err
}

func newWork(t *testing.T) (*Importer, *volume.Host, *volume.Session) {
	t.Helper()
	im, h := newImporter(t)
	_, err := h.CreateDisk(t.Context(), me, "work")
	ok(t, err)
	s, err := h.Attach(t.Context(), me, volume.Ref{Disk: "work"}, volume.AttachOptions{})
	ok(t, err)
	t.Cleanup(func() { _ = s.Detach(context.Background()) })
	return im, h, s
}

func content(t *testing.T, s *volume.Session, path string) string {
	t.Helper()
	a, n, err := s.Resolve(path, false)
	if err != nil {
		return "error: " + tine.KindOf(err).String()
	}
	if a.Mode&unix.S_IFMT == unix.S_IFLNK {
		target, err := s.Readlink(n)
		ok(t, err)
		return "link: " + target
	}
	if a.Mode&unix.S_IFMT != unix.S_IFREG {
		return "no file"
	}
	f, err := s.Open(n)
	ok(t, err)
	defer f.Close()
	p := make([]byte, a.Size)
	_, err = f.ReadAt(p, 0)
	ok(t, err)
	return string(p)
}

// TestArchivesCannotEscape: no name leads out of the directory that is unpacked
// into, nor through a symbolic link, whoever has made it.
func TestArchivesCannotEscape(t *testing.T) {
	im, _, s := newWork(t)
	ok(t, into(t, im, "/", tarOf(t, tar.Header{Name: "secret", Uname: "old"}, tar.Header{Name: "in/", Typeflag: tar.TypeDir, Mode: 0o755})))
	link := func(name, target string) tar.Header {
		return tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeSymlink}
	}
	hard := func(name, target string) tar.Header {
		return tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeLink}
	}
	for name, x := range map[string]struct {
		hs   []tar.Header
		kind tine.ErrorKind
	}{
		"dots":                              {[]tar.Header{{Name: "../secret", Uname: "new"}}, tine.KindInvalid},
		"dots in the middle":                {[]tar.Header{{Name: "a/../../secret", Uname: "new"}}, tine.KindInvalid},
		"a link up":                         {[]tar.Header{link("up", ".."), {Name: "up/secret", Uname: "new"}}, tine.KindInvalid},
		"a link to the root":                {[]tar.Header{link("root", "/"), {Name: "root/secret", Uname: "new"}}, tine.KindInvalid},
		"a link as a directory":             {[]tar.Header{link("d", ".."), {Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755}, link("d2", ".."), {Name: "d2/x/secret", Uname: "new"}}, tine.KindInvalid},
		"a hard link up":                    {[]tar.Header{hard("h", "../secret")}, tine.KindInvalid},
		"a hard link through a link":        {[]tar.Header{link("up2", ".."), hard("h", "up2/secret")}, tine.KindNotDir},
		"a hard link to what is not there":  {[]tar.Header{hard("h", "/secret")}, tine.KindNotFound},
		"a hard link to a directory":        {[]tar.Header{{Name: "e/", Typeflag: tar.TypeDir, Mode: 0o755}, hard("h", "e")}, tine.KindInvalid},
		"a file for a directory on the way": {[]tar.Header{{Name: "f", Uname: "x"}, {Name: "f/g", Uname: "x"}}, tine.KindNotDir},
		"a file in the place of a tree":     {[]tar.Header{{Name: "t/u/v", Uname: "x"}, {Name: "t/u", Uname: "x"}}, tine.KindIsDir},
		"no name":                           {[]tar.Header{{Name: "./", Linkname: "x", Typeflag: tar.TypeSymlink}}, tine.KindInvalid},
		"a name that is too long":           {[]tar.Header{{Name: strings.Repeat("n", 256), Uname: "x"}}, tine.KindNameTooLong},
	} {
		err := into(t, im, "/in", tarOf(t, x.hs...))
		if err == nil || tine.KindOf(err) != x.kind {
			t.Errorf("%s: %v (%v), want %v", name, err, tine.KindOf(err), x.kind)
		}
		if got := content(t, s, "/secret"); got != "old" {
			t.Fatalf("%s: what lies outside is now %q", name, got)
		}
	}
	// Leading slashes mean the directory itself.
	ok(t, into(t, im, "/in", tarOf(t, tar.Header{Name: "//abs", Uname: "here"})))
	if got := content(t, s, "/in/abs"); got != "here" {
		t.Errorf("an absolute name: %q", got)
	}
}

// TestArchiveReplaces: files are replaced, directories merged, and other names
// of what is replaced keep their content.
func TestArchiveReplaces(t *testing.T) {
	im, h, s := newWork(t)
	mtime := time.Unix(1e9, 5)
	ok(t, into(t, im, "/a/b", tarOf(t,
		tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o700, ModTime: mtime, Format: tar.FormatPAX},
		tar.Header{Name: "d/f", Uname: "old"}, tar.Header{Name: "d/keep", Uname: "kept"},
		tar.Header{Name: "other name", Linkname: "d/f", Typeflag: tar.TypeLink},
		tar.Header{Name: "d/l", Linkname: "f", Typeflag: tar.TypeSymlink})))
	ok(t, into(t, im, "a/b/", tarOf(t,
		tar.Header{Name: "d/f", Uname: "new"}, tar.Header{Name: "d/l", Uname: "no link"},
		tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o751, ModTime: mtime, Format: tar.FormatPAX},
		tar.Header{Name: "d/self", Linkname: "d/self", Typeflag: tar.TypeReg},
		tar.Header{Name: "other", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "other name", Linkname: "other name", Typeflag: tar.TypeLink},
		tar.Header{Name: "d/late", Uname: "z"})))
	for path, want := range map[string]string{"/a/b/d/f": "new", "/a/b/other name": "old", "/a/b/d/keep": "kept", "/a/b/d/l": "no link", "/a/b/d/late": "z", "/a/b/other": "no file"} {
		if got := content(t, s, path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	a, _, err := s.Resolve("/a/b/d", false)
	if err != nil || a.Mode&0o7777 != 0o751 {
		t.Errorf("the directory has mode %o, %v", a.Mode, err)
	}
	cps, err := h.Checkpoints(t.Context(), me, "work")
	if err != nil || len(cps) != 0 {
		t.Errorf("checkpoints that nobody asked for: %v, %v", cps, err)
	}
}

// TestLateEntries: a directory that the archive comes back to keeps the time
// that it has in the archive.
func TestLateEntries(t *testing.T) {
	im, _, s := newWork(t)
	mtime := time.Unix(1e9, 123456789)
	dir := func(name string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755, ModTime: mtime, Format: tar.FormatPAX}
	}
	ok(t, into(t, im, "/", tarOf(t, dir("./"), dir("a/"), tar.Header{Name: "a/1"}, dir("b/"), tar.Header{Name: "b/1"}, tar.Header{Name: "a/2"}, dir("a/sub/"),
		tar.Header{Name: "c/1"}, tar.Header{Name: "a/sub/x"}, tar.Header{Name: "a/3", Linkname: "a/1", Typeflag: tar.TypeLink})))
	for _, path := range []string{"/", "/a", "/b", "/a/sub"} {
		if at, _, err := s.Resolve(path, false); err != nil || at.Mtime != mtime.UnixNano() {
			t.Errorf("%s has the time %d, %v", path, at.Mtime, err)
		}
	}
}

// TestInheritedACLs: what the archive does not give an ACL has none, whatever
// its directory hands down.
func TestInheritedACLs(t *testing.T) {
	im, _, s := newWork(t)
	acl := "user::rwx,user:1000:rwx,group::r-x,mask::rwx,other::r-x"
	ok(t, into(t, im, "/", tarOf(t,
		tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755, PAXRecords: map[string]string{"SCHILY.acl.default": acl}},
		tar.Header{Name: "d/plain", Mode: 0o4640}, tar.Header{Name: "d/sub/", Typeflag: tar.TypeDir, Mode: 0o711},
		tar.Header{Name: "d/own", Mode: 0o640, PAXRecords: map[string]string{"SCHILY.acl.access": "user::rw-,user:7:r--,group::r--,mask::r--,other::---"}})))
	for path, want := range map[string]uint32{"/d/plain": 0o4640, "/d/sub": 0o711, "/d/own": 0o640} {
		a, n, err := s.Resolve(path, false)
		ok(t, err)
		names, err := s.ListXattr(n)
		ok(t, err)
		if a.Mode&0o7777 != want || (len(names) > 0) != (path == "/d/own") {
			t.Errorf("%s has mode %o and %q", path, a.Mode&0o7777, names)
		}
	}
}

// TestCancelledImport: the reader that waits is interrupted, and a new disk is
// gone.
func TestCancelledImport(t *testing.T) {
	im, h := newImporter(t)
	r, w := io.Pipe()
	started := make(chan struct{})
	go func() {
		_, _ = io.Copy(w, io.LimitReader(tarOf(t, tar.Header{Name: "f", Uname: strings.Repeat("x", 5<<20)}), 3<<20))
		close(started)
	}()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-started
		cancel()
	}()
	_, _, _, err := im.ImportTar(ctx, me, Tar{Disk: "new", Interrupt: func() { _ = r.CloseWithError(io.ErrClosedPipe) }}, r, func(api.ImportLine) {})
	if tine.KindOf(err) != tine.KindInterrupted {
		t.Errorf("%v", err)
	}
	if ds, err := h.Disks(t.Context(), me, false); err != nil || len(ds) != 0 {
		t.Errorf("disks are left: %v, %v", ds, err)
	}
}

// TestImportMeetsTheQuota: what fits stays, and the error says what to do.
func TestImportMeetsTheQuota(t *testing.T) {
	im, h := newImporter(t)
	_, err := h.CreateDiskWithin(t.Context(), me, "work", volume.Quota{Bytes: 1 << 20})
	ok(t, err)
	err = into(t, im, "/", tarOf(t, tar.Header{Name: "a", Uname: strings.Repeat("x", 700<<10)}, tar.Header{Name: "b", Uname: strings.Repeat("x", 700<<10)}))
	if tine.KindOf(err) != tine.KindQuota || !strings.Contains(tine.HintOf(err), "quota") || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("%v; %s", err, tine.HintOf(err))
	}
}

// TestPut: a file is replaced in one moment and keeps its mode and owner.
func TestPut(t *testing.T) {
	im, _, s := newWork(t)
	put := func(path, text string) error {
		_, err := im.Put(t.Context(), me, File{Disk: "work", Path: path, Mode: 0o604, UID: 5, GID: 6, Interrupt: func() {}}, strings.NewReader(text))
		return err
	}
	ok(t, into(t, im, "/", tarOf(t, tar.Header{Name: "d/old", Mode: 0o4755, Uid: 9, Uname: "old"}, tar.Header{Name: "hard", Linkname: "d/old", Typeflag: tar.TypeLink},
		tar.Header{Name: "l", Linkname: "d", Typeflag: tar.TypeSymlink}, tar.Header{Name: "to old", Linkname: "d/old", Typeflag: tar.TypeSymlink})))
	ok(t, put("/new", "n"), put("/l/old", "replaced"), put("d/empty", ""))
	for path, want := range map[string]string{"/new": "n", "/d/old": "replaced", "/hard": "old", "/d/empty": ""} {
		if got := content(t, s, path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	for path, want := range map[string][2]uint32{"/new": {0o604, 5}, "/d/old": {0o4755, 9}} {
		if a, _, err := s.Resolve(path, false); err != nil || a.Mode&0o7777 != want[0] || a.UID != want[1] {
			t.Errorf("%s: mode %o, owner %d, %v", path, a.Mode&0o7777, a.UID, err)
		}
	}
	for path, want := range map[string]tine.ErrorKind{"/d": tine.KindIsDir, "/": tine.KindIsDir, "/none/x": tine.KindNotFound, "/d/": tine.KindIsDir, "/to old": tine.KindLoop, "": tine.KindIsDir} {
		if err := put(path, "x"); tine.KindOf(err) != want {
			t.Errorf("%q: %v, want %v", path, err, want)
		}
	}
	d, err := s.OpenDir(volume.Root)
	ok(t, err)
	defer d.Close()
	ok(t, d.Read(0, func(e volume.DirEntry) bool {
		if strings.HasPrefix(e.Name, ".tine-") {
			t.Errorf("%s is left", filepath.Join("/", e.Name))
		}
		return true
	}))
}

// atEnd does something when its reader is at the end.
type atEnd struct {
	io.Reader
	do func()
}

func (r *atEnd) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err == io.EOF {
		r.do()
	}
	return n, err
}

// TestEndedAtTheLastMoment: who gives up, or what stops, when all has come already
// gets an error that says why, and no new disk is left.
func TestEndedAtTheLastMoment(t *testing.T) {
	for _, c := range []struct {
		by   string
		want tine.ErrorKind
	}{{"the client", tine.KindInterrupted}, {"the server", tine.KindUnavailable}} {
		im, h := newImporter(t)
		ctx, cancel := context.WithCancel(t.Context())
		end := cancel
		if c.by == "the server" {
			end = im.Stop
		}
		known := make(chan struct{})
		from := &atEnd{tarOf(t, tar.Header{Name: "f", Uname: "x"}), func() { end(); <-known }}
		_, _, _, err := im.ImportTar(ctx, me, Tar{Disk: "new", Interrupt: func() { close(known) }}, from, func(api.ImportLine) {})
		cancel()
		if err == nil || tine.KindOf(err) != c.want {
			t.Errorf("by %s: %v", c.by, err)
		}
		if left := diskNames(t, h); left != "" {
			t.Errorf("by %s: left %s", c.by, left)
		}
		if pending, err := readPending(im.data); err != nil || len(pending) != 0 {
			t.Errorf("by %s: noted %v, %v", c.by, pending, err)
		}
	}
}

// TestStopDuringPut: the file is as it was.
func TestStopDuringPut(t *testing.T) {
	im, _, s := newWork(t)
	ok(t, into(t, im, "/", tarOf(t, tar.Header{Name: "f", Uname: "old"})))
	known := make(chan struct{})
	_, err := im.Put(t.Context(), me, File{Disk: "work", Path: "/f", Interrupt: func() { close(known) }},
		&atEnd{strings.NewReader("new"), func() { im.Stop(); <-known }})
	if tine.KindOf(err) != tine.KindUnavailable || !strings.Contains(err.Error(), "the server is stopping") {
		t.Error(err)
	}
	if got := content(t, s, "/f"); got != "old" {
		t.Errorf("the file holds %q", got)
	}
}
