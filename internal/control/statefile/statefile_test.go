package statefile

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tine.dev/tine/internal/tine"
)

type content struct {
	Names []string `json:"names"`
}

func TestWriteThenRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	var got content
	if err := Read(path, &got); err != nil || got.Names != nil {
		t.Fatalf("a missing file: %v, %v", got, err)
	}
	for _, want := range []string{"a", "b"} {
		if err := Write(path, content{[]string{want}}); err != nil {
			t.Fatal(err)
		}
		if err := Read(path, &got); err != nil || len(got.Names) != 1 || got.Names[0] != want {
			t.Fatalf("read %v, %v; want [%s]", got, err, want)
		}
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Fatalf("files left: %v, %v", left, err)
	}
}

func TestReadRefusesWhatItDoesNotUnderstand(t *testing.T) {
	for _, text := range []string{"", "{", `{"names":[],"more":1}`, `{"names":[]}{}`, `[]`} {
		path := filepath.Join(t.TempDir(), "state.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var got content
		if err := Read(path, &got); tine.KindOf(err) != tine.KindCorrupt || tine.HintOf(err) == "" {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

func TestWriteNamesTheKind(t *testing.T) {
	if err := Write(filepath.Join(t.TempDir(), "no", "state.json"), content{}); tine.KindOf(err) != tine.KindNotFound {
		t.Errorf("a missing directory: %v", err)
	}
}

// TestFlippedBits flips each bit of a file: what is read is either what was
// written or an error that says what to do. Check, which does not know what the
// file should hold, says the same.
func TestFlippedBits(t *testing.T) {
	type mount struct {
		Dir   string `json:"dir"`
		Count int    `json:"count,omitempty"`
	}
	type file struct {
		Format int     `json:"format"`
		Mounts []mount `json:"mounts"`
	}
	for _, want := range []file{{1, []mount{{"/mnt/<work> and \"more\"", 7}, {"/mnt/\u00fc", 0}}}, {1, []mount{}}} {
		dir := t.TempDir()
		path := filepath.Join(dir, "state.json")
		if err := Write(path, want); err != nil {
			t.Fatal(err)
		}
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		wanted, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for i := range whole {
			for bit := range 8 {
				b := bytes.Clone(whole)
				b[i] ^= 1 << bit
				if err := os.WriteFile(path, b, 0o600); err != nil {
					t.Fatal(err)
				}
				var got file
				err := Read(path, &got)
				back, merr := json.Marshal(got)
				if merr != nil || err == nil && !bytes.Equal(back, wanted) {
					t.Errorf("bit %d of byte %d (%q): read %s, %v", bit, i, whole[i], back, merr)
				}
				if err == nil {
					continue
				}
				found++
				if tine.KindOf(err) != tine.KindCorrupt || !strings.Contains(err.Error(), path) || !strings.Contains(tine.HintOf(err), "tine fsck --repair --data "+dir) {
					t.Fatalf("byte %d: %v; %s", i, err, tine.HintOf(err))
				}
				if damage, err := Check(dir); err != nil || len(damage) != 1 || damage[0].Name != "state.json" {
					t.Errorf("byte %d (%q to %q): the check says %v, %v", i, whole[i], b[i], damage, err)
				}
			}
		}
		if found < len(whole)*6 {
			t.Errorf("of %d bits only %d were found", len(whole)*8, found)
		}
	}
}

// TestOtherProgramsReadAndWriteIt: it is JSON, may be laid out anew, and whoever
// changes it takes the checksum out; files of before have none.
func TestOtherProgramsReadAndWriteIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	if err := Write(path, content{[]string{"a", "b"}}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var plain bytes.Buffer
	if err := json.Compact(&plain, b); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		plain.String():                   true,
		plain.String() + "\n\n":          true,
		`{"names":["a","b"]}`:            true,
		`{ "names": ["a", "b"] }` + "\n": true,
		`{"names":["a","c"],` + "\n" + plain.String()[len(`{"names":["a","b"],`):]: false,
		`{"names":["a","b"],"checksum":"crc32c:1"}`:                                false,
		`{"names":["a","b"],"checksum":""}`:                                        false,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var got content
		err := Read(path, &got)
		if (err == nil) != want || want && strings.Join(got.Names, "") != "ab" {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		if damage, err := Check(filepath.Dir(path)); err != nil || (len(damage) == 0) != want {
			t.Errorf("%s: the check says %v, %v", text, damage, err)
		}
	}
}

func TestSetAside(t *testing.T) {
	dir := t.TempDir()
	for i, want := range []string{"state.json", "state.json.1", "state.json.2"} {
		if err := os.WriteFile(filepath.Join(dir, "state.json"), []byte{byte(i)}, 0o600); err != nil {
			t.Fatal(err)
		}
		to, err := SetAside(dir, "state.json")
		if b, rerr := os.ReadFile(to); err != nil || rerr != nil || to != filepath.Join(dir, "damaged", want) || b[0] != byte(i) {
			t.Errorf("%s: %v, %v", to, err, rerr)
		}
		if damage, err := Check(dir); err != nil || len(damage) != 0 {
			t.Errorf("what was set aside is still found: %v, %v", damage, err)
		}
	}
}
