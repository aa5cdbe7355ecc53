package api

import (
	"encoding/json"
	"testing"
)

// TestOnlyUTF8IsSent: JSON has no place for other bytes, and encoding would
// put another name in their place.
func TestOnlyUTF8IsSent(t *testing.T) {
	c := serve(t, answer(200, "{}"))
	for text, bad := range map[string]bool{
		"\xff": true, "a\xc3": true, "/m/\xed\xa0\x80": true, `\\` + "\xff": true,
		"\ufffd": false, `\ufffd`: false, `\\ufffd`: false, "é\n\x00\u2028<": false, "": false, `\`: false,
	} {
		b, err := json.Marshal(NewMount{Dir: text})
		if err != nil {
			t.Fatal(err)
		}
		if replaced(b) != bad {
			t.Errorf("%q: %s", text, b)
		}
		_, err = c.Checkpoint(t.Context(), "d", NewCheckpoint{Name: "n", Message: text})
		if (kindOf(err) == "invalid") != bad {
			t.Errorf("%q: %v", text, err)
		}
	}
}
