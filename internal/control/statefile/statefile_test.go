package statefile

import (
	"os"
	"path/filepath"
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
