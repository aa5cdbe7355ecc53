// Package statefile keeps small pieces of state as JSON files that survive a
// crash: written to a temporary file, flushed, renamed over the old one, and
// the directory flushed. A reader sees the old content or the new, never a
// mixture. It is meant for a few kilobytes that change rarely and that a
// person may want to read.
//
// The last member of each document is a checksum of the others, so that a byte
// that the device has changed within a text, such as a directory's name, is found
// and not believed. It is a member and not a line of its own so that programs that
// read JSON, such as jq, read the files. It does not count blanks between members,
// so that a file may be laid out anew; whoever changes what it says leaves the
// member out, and a file without one is taken as it is.
package statefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/tine"
)

// Write replaces the file's content by v. It is durable on return. Callers
// see to it that there is one writer at a time.
func Write(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		b, err = sign(b)
	}
	if err != nil {
		return tine.Errorf(tine.KindInternal, "encode %s: %w", path, err)
	}
	return oserr.Wrap(write(path, b), "write %s", path)
}

// sign adds the checksum to an object with at least one member.
func sign(b []byte) ([]byte, error) {
	sum, err := checksum(b)
	if err != nil {
		return nil, err
	}
	body, ok := bytes.CutSuffix(b, []byte("\n}"))
	if !ok {
		return nil, errors.New("not an object with members")
	}
	return fmt.Appendf(bytes.Clone(body), ",\n  \"checksum\": \"crc32c:%s\"\n}\n", sum), nil
}

// checksum is that of a document without blanks.
func checksum(b []byte) (string, error) {
	var plain bytes.Buffer
	if err := json.Compact(&plain, b); err != nil {
		return "", err
	}
	return fmt.Sprintf("%08x", crc32.Checksum(plain.Bytes(), crc32.MakeTable(crc32.Castagnoli))), nil
}

// verify returns the document without its checksum, which must hold if there is
// one. A last member that is not quite a checksum stays, for the decoder to refuse.
func verify(b []byte) ([]byte, error) {
	at := regexp.MustCompile(`,\s*"checksum":\s*"crc32c:([0-9a-f]{8})"\s*}\s*$`).FindSubmatchIndex(b)
	if at == nil {
		return b, nil
	}
	body := append(bytes.Clone(b[:at[0]]), '}')
	sum, err := checksum(body)
	if want := string(b[at[2]:at[3]]); err == nil && sum != want {
		err = fmt.Errorf("its checksum is %s and not %s, as the file says", sum, want)
	}
	return body, err
}

func write(path string, b []byte) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp)
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// Read decodes the file into v. A file that does not exist leaves v as it is. One
// that is damaged is tine.KindCorrupt. Fields that v does not know are an error:
// they were written by a newer program, which this one must not undo.
func Read(path string, v any) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return oserr.Wrap(err, "read %s", path)
	}
	if b, err = verify(b); err == nil {
		err = decode(b, v)
	}
	return damaged(path, err)
}

func decode(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, end := d.Token(); end != io.EOF {
		return errors.New("something follows the document")
	}
	return nil
}

func damaged(path string, err error) error {
	if err == nil {
		return nil
	}
	return tine.Errorf(tine.KindCorrupt, "%s is damaged: %w", path, err).
		WithHint("`tine fsck --repair --data %s` moves it to the folder \"damaged\" there, and what it lists is forgotten; "+
			"or mend it by hand, and take its member \"checksum\" out", filepath.Dir(path))
}

// Check looks at all state files of a directory and returns an error, as Read
// does, for each that is damaged, in the order of their names. It does not know
// what they should say, only that they are as they were written.
func Check(dir string) ([]Damage, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, oserr.Wrap(err, "list %s", dir)
	}
	var found []Damage
	for _, e := range entries {
		if !e.Type().IsRegular() || filepath.Ext(e.Name()) != ".json" {
			continue
		}
		path := filepath.Join(dir, e.Name())
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			b, err = verify(b)
		}
		var members map[string]json.RawMessage
		if err == nil {
			err = decode(b, &members)
		}
		for name, value := range members { // a checksum that is none, or has another name
			if err == nil && (name == "checksum" || bytes.HasPrefix(value, []byte(`"crc32c:`))) {
				err = errors.New("its checksum is damaged")
			}
		}
		if err != nil {
			found = append(found, Damage{e.Name(), damaged(path, err)})
		}
	}
	return found, nil
}

// Damage is a state file, by its name in the directory, and what is wrong.
type Damage struct {
	Name string
	Err  error
}

// SetAside moves a damaged file of a directory to the folder "damaged" in it,
// durably, and returns where it is. No file there is replaced. Nobody else may
// use the directory.
func SetAside(dir, name string) (string, error) {
	to := filepath.Join(dir, "damaged")
	if err := os.MkdirAll(to, 0o700); err != nil {
		return "", oserr.Wrap(err, "make %s", to)
	}
	target := filepath.Join(to, name)
	for n := 1; ; n++ {
		// A link, unlike a rename, does not replace.
		err := os.Link(filepath.Join(dir, name), target)
		if errors.Is(err, fs.ErrExist) {
			target = filepath.Join(to, fmt.Sprintf("%s.%d", name, n))
			continue
		}
		if err == nil {
			err = syncDir(to)
		}
		if err == nil {
			err = os.Remove(filepath.Join(dir, name))
		}
		if err == nil {
			err = syncDir(dir)
		}
		return target, oserr.Wrap(err, "move %s to %s", name, to)
	}
}

// CheckFormat refuses a file of a format that this program does not know.
// Errors: KindVersion.
func CheckFormat(path string, format, known int) error {
	if format == known {
		return nil
	}
	return tine.Errorf(tine.KindVersion, "%s has format %d; this program knows %d", path, format, known).
		WithHint("use the version of tine that wrote it")
}
