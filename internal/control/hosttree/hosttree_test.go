package hosttree

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/fs/archive"
	"tine.dev/tine/internal/tine"
)

func ok(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// pack makes an archive of entries whose data is their name.
func pack(t *testing.T, es ...archive.Entry) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := archive.NewWriter(&b)
	for _, e := range es {
		if e.Type == archive.Regular {
			e.Size = int64(len(e.Name))
		}
		if e.Mode == 0 {
			e.Mode = 0o644
		}
		ok(t, w.Entry(&e))
		if e.Type == archive.Regular {
			_, err := io.WriteString(w, e.Name)
			ok(t, err)
		}
	}
	ok(t, w.Close())
	return &b
}

func me() Owner { return Owner{uint32(os.Geteuid()), uint32(os.Getegid())} }

func unpack(t *testing.T, dir, as string, user Owner, r io.Reader) ([]string, error) {
	t.Helper()
	var notes []string
	_, err := Unpack(t.Context(), archive.NewReader(r, nil), dir, as, user, func(path, text string) { notes = append(notes, path+": "+text) })
	return notes, err
}

func file(name string) archive.Entry { return archive.Entry{Name: name, Type: archive.Regular} }
func dir(name string) archive.Entry {
	return archive.Entry{Name: name, Type: archive.Directory, Mode: 0o755}
}
func link(name, to string) archive.Entry {
	return archive.Entry{Name: name, Type: archive.Symlink, Link: to}
}
func hard(name, to string) archive.Entry {
	return archive.Entry{Name: name, Type: archive.HardLink, Link: to}
}

// TestArchivesCannotEscape: a disk's content is anybody's. Nothing outside of
// the target changes, whatever the archive has.
func TestArchivesCannotEscape(t *testing.T) {
	for name, es := range map[string][]archive.Entry{
		"dots":                      {dir("./"), file("../secret")},
		"a link up":                 {dir("./"), link("up", ".."), file("up/secret")},
		"a link to the target":      {dir("./"), link("x", "../secret"), hard("y", "x/z")},
		"a directory over a link":   {dir("./"), link("d", ".."), dir("d/"), file("d/secret")},
		"a hard link with dots":     {dir("./"), hard("h", "../secret")},
		"a hard link through one":   {dir("./"), link("up", ".."), hard("h", "up/secret")},
		"a link that was there":     {dir("./"), file("there/secret")},
		"a directory over a file":   {dir("./"), file("f"), dir("f/")},
		"a file over a directory":   {dir("./"), dir("d/"), file("d")},
		"a file below a file":       {dir("./"), file("f"), file("f/g")},
		"a second root of a file":   {file("one"), file("one/two")},
		"a pipe that is in the way": {dir("./"), file("pipe")},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			in := filepath.Join(top, "in")
			ok(t, os.WriteFile(filepath.Join(top, "secret"), []byte("old"), 0o600), os.MkdirAll(filepath.Join(in, "to"), 0o755),
				os.Symlink("../..", filepath.Join(in, "to", "there")), unix.Mkfifo(filepath.Join(in, "to", "pipe"), 0o600))
			if _, err := unpack(t, in, "to", me(), pack(t, es...)); err == nil {
				t.Error("no error")
			}
			if b, err := os.ReadFile(filepath.Join(top, "secret")); err != nil || string(b) != "old" {
				t.Errorf("what lies outside is %q, %v", b, err)
			}
			var st unix.Stat_t
			if err := unix.Stat(filepath.Join(top, "secret"), &st); err != nil || st.Nlink != 1 {
				t.Errorf("what lies outside has %d names, %v", st.Nlink, err)
			}
			left, err := filepath.Glob(filepath.Join(in, "to", ".tine-*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left: %q, %v", left, err)
			}
		})
	}
}

// TestUnpackMergesAndReplaces: what exists is kept or replaced as cp does.
func TestUnpackMergesAndReplaces(t *testing.T) {
	top := t.TempDir()
	in := func(parts ...string) string { return filepath.Join(append([]string{top}, parts...)...) }
	ok(t, os.MkdirAll(in("t", "d"), 0o700), os.WriteFile(in("t", "d", "keep"), []byte("kept"), 0o600), os.WriteFile(in("t", "d", "f"), []byte("old"), 0o600),
		os.Link(in("t", "d", "f"), in("other name")), os.Symlink("../secret", in("t", "l")), os.WriteFile(in("secret"), []byte("old"), 0o600))
	d := dir("./d/")
	d.Mode, d.Mtime = 0o2500, 1e18+5
	notes, err := unpack(t, top, "t", me(), pack(t, dir("./"), d, file("./d/f"), hard("./d/g", "./d/f"), hard("./d/g", "./d/f"), link("./d/keep2", "keep"), file("./l")))
	if err != nil || len(notes) > 0 {
		t.Fatal(err, notes)
	}
	for path, want := range map[string]string{"t/d/keep": "kept", "t/d/f": "./d/f", "t/d/g": "./d/f", "other name": "old", "t/l": "./l", "secret": "old", "t/d/keep2": "kept"} {
		if b, err := os.ReadFile(in(path)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", path, b, err)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(in("t", "d"), &st); err != nil || st.Mode&0o7777 != 0o2500 || st.Mtim.Nano() != 1e18+5 {
		t.Errorf("the directory has mode %o and time %d, %v", st.Mode, st.Mtim.Nano(), err)
	}
	ok(t, os.Chmod(in("t", "d"), 0o700))
	// The content alone leaves the directory as it is.
	before, err := os.Stat(top)
	ok(t, err)
	root := dir("./")
	root.Mode = 0o777
	_, err = unpack(t, top, ".", me(), pack(t, root, file("./new")))
	ok(t, err)
	if after, err := os.Stat(top); err != nil || after.Mode() != before.Mode() {
		t.Errorf("the target has mode %v, %v", after.Mode(), err)
	}
	if _, err := unpack(t, top, ".", me(), pack(t, file("one"))); tine.KindOf(err) != tine.KindNotDir {
		t.Errorf("a file as the content of a directory: %v", err)
	}
	if _, err := unpack(t, in("none"), "x", me(), pack(t, file("one"))); tine.KindOf(err) != tine.KindNotFound {
		t.Errorf("a target that is not there: %v", err)
	}
}

// TestOrdinaryUser: rights that speak of an owner who cannot be kept are not
// kept either.
func TestOrdinaryUser(t *testing.T) {
	top := t.TempDir()
	user := Owner{UID: 4711, GID: 4711} // no process of root changes owners for it
	own, other := file("./own"), file("./other")
	own.Mode, own.UID, own.GID = 0o6755, 4711, 4711
	other.Mode = 0o6755
	if _, err := unpack(t, top, "t", user, pack(t, dir("./"), own, other)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint32{"own": 0o6755, "other": 0o755} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(top, "t", name), &st); err != nil || st.Mode&0o7777 != want || st.Uid != uint32(os.Geteuid()) {
			t.Errorf("%s: mode %o, owner %d, %v", name, st.Mode, st.Uid, err)
		}
	}
}

// TestPackWhatIsNamed: trees, single files, links, contents, and what cannot be
// packed.
func TestPackWhatIsNamed(t *testing.T) {
	top := t.TempDir()
	in := func(parts ...string) string { return filepath.Join(append([]string{top}, parts...)...) }
	ok(t, os.MkdirAll(in("d", "sub"), 0o755), os.WriteFile(in("d", "sub", "f"), []byte("x"), 0o600), os.Link(in("d", "sub", "f"), in("d", "g")), os.Symlink("d", in("l")))
	names := func(at, as string, owner *Owner) string {
		t.Helper()
		var b bytes.Buffer
		w := archive.NewWriter(&b)
		if _, err := Pack(t.Context(), w, at, as, owner, func(string, string) {}); err != nil {
			return "error: " + tine.KindOf(err).String()
		}
		ok(t, w.Close())
		var out []string
		r := archive.NewReader(&b, nil)
		for {
			e, err := r.Next()
			if err == io.EOF {
				return strings.Join(out, " ")
			}
			ok(t, err)
			if owner != nil && (e.UID != owner.UID || e.GID != owner.GID) {
				t.Errorf("%s belongs to %d:%d", e.Name, e.UID, e.GID)
			}
			out = append(out, string(e.Type)+e.Name)
		}
	}
	count := func(s, what string) int { return strings.Count(" "+s, " "+what) }
	if got := names(in("d"), "x", &Owner{7, 8}); count(got, "5x/") != 2 || count(got, "0x/") != 1 || count(got, "1x/") != 1 {
		t.Errorf("a tree: %s", got)
	}
	if got := names(in("d")+"/.", ".", nil); count(got, "5sub/") != 1 || len(strings.Fields(got)) != 3 {
		t.Errorf("a content: %s", got)
	}
	for at, want := range map[string]string{in("l"): "2x", in("d", "g"): "0x", in("none"): "error: not_found", in("d", "g") + "/": "error: not_a_directory"} {
		if got := names(at, "x", nil); got != want {
			t.Errorf("%s: %s, want %s", at, got, want)
		}
	}
	if got := names(in("l")+"/", "x", nil); count(got, "5x/") != 2 {
		t.Errorf("a link with a slash: %s", got)
	}
	if got := names(in("d", "g"), ".", nil); got != "error: not_a_directory" {
		t.Errorf("the content of a file: %s", got)
	}
	t.Chdir(in("d", "sub"))
	if got := names("f", "x", nil); got != "0x" {
		t.Errorf("a relative path: %s", got)
	}
	if got := names("..", "x", nil); count(got, "5x/") != 2 {
		t.Errorf("the directory above: %s", got)
	}
	broken := errors.New("broken")
	w := archive.NewWriter(failing{broken})
	if _, err := Pack(t.Context(), w, in("d"), "x", nil, func(string, string) {}); !errors.Is(err, broken) {
		t.Errorf("a pipe that breaks: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
