package blob_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"tine.dev/tine/internal/fs/blob"
)

func TestSecretsAreNotPrinted(t *testing.T) {
	s := blob.NewSecret(secret)
	if s.Reveal() != secret || s.Empty() || !(blob.Secret{}).Empty() || !blob.NewSecret("").Empty() || (blob.Secret{}).Reveal() != "" {
		t.Fatal("a secret does not hold its text")
	}
	deep := struct {
		Open   blob.Secret
		closed blob.Secret
		list   []blob.Secret
		at     *blob.Secret
	}{s, s, []blob.Secret{s}, &s}
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		fmt.Fprintf(&out, verb+verb+verb, s, &s, deep)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("told", "secret", s, "deep", deep)
	slog.New(slog.NewTextHandler(&log, nil)).Info("told", "secret", s, "deep", deep)
	encoded, err := json.Marshal(deep)
	if err != nil {
		t.Fatal(err)
	}
	told := out.String() + log.String() + string(encoded)
	if strings.Contains(told, secret) || strings.Contains(strings.ToLower(told), fmt.Sprintf("%x", secret)) {
		t.Errorf("the secret is told: %s", told)
	}
	if !strings.Contains(string(encoded), "(secret)") {
		t.Errorf("encoded as %s", encoded)
	}
}
