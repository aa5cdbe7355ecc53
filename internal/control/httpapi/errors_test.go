package httpapi

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"testing"

	"tine.dev/tine/internal/tine"
)

func TestEveryKindHasAStatus(t *testing.T) {
	// The kinds that mean that the server itself failed.
	ours := map[tine.ErrorKind]bool{tine.KindInternal: true, tine.KindCorrupt: true, tine.KindIO: true, tine.KindVersion: true}
	for k := range tine.ErrorKind(tine.NumKinds) {
		got := statusOf(k)
		if http.StatusText(got) == "" || got < 400 {
			t.Errorf("%s: %d", k, got)
		}
		if (got == http.StatusInternalServerError) != ours[k] {
			t.Errorf("%s: %d; a kind that is missing in the table shows as 500", k, got)
		}
	}
	if statusOf(tine.ErrorKind(tine.NumKinds)) != http.StatusInternalServerError {
		t.Error("a kind out of range")
	}
}

func TestToWire(t *testing.T) {
	e := toWire(fmt.Errorf("while asked: %w", tine.Errorf(tine.KindConflict, "moved \xff").WithHint("look")))
	b, err := json.Marshal(e)
	if err != nil || string(b) != `{"kind":"conflict","message":"while asked: moved `+"\uFFFD"+`","hint":"look"}` {
		t.Errorf("%s, %v", b, err)
	}
	if e.GetStatus() != http.StatusConflict {
		t.Error(e.GetStatus())
	}
	if e := toWire(context.Canceled); e.body.Kind != "interrupted" {
		t.Error(e.body)
	}
}

var update = flag.Bool("update", false, "write api/openapi.json anew")

func TestOpenAPIDocumentIsCurrent(t *testing.T) {
	const path = "../../../api/openapi.json"
	want, err := Document()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("api/openapi.json is not what the server serves; run: go generate ./api")
	}
}
