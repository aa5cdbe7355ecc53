package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tine.dev/tine/internal/tine"
)

func env(m map[string]string) func(string) string { return func(k string) string { return m[k] } }

func file(t *testing.T, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "tine.toml")
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWhichPlaceWins(t *testing.T) {
	f := file(t, "data = \"/file\"\nlog_level = \"warn\"\ncache_bytes = \"3MiB\"\nundo_keep = 7\ncommit_interval = \"2s\"\n")
	e := env(map[string]string{"TINE_CONFIG": f, "TINE_LOG_LEVEL": "error", "TINE_CACHE_BYTES": "5M"})
	c, err := Load("", map[string]string{"cache-bytes": "9"}, e, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{Data: "/file", Socket: "/run/tine/tine.sock", CacheBytes: 9, LogLevel: "error", LogFormat: "text",
		CommitInterval: 2 * time.Second, UndoKeep: 7, StopTimeout: 30 * time.Second, SlowOp: 100 * time.Millisecond}
	if c != want {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

func TestDefaultsOfAUser(t *testing.T) {
	c, err := Load("", nil, env(map[string]string{"HOME": "/home/u", "XDG_RUNTIME_DIR": "/run/user/9"}), 9)
	if err != nil || c.Data != "/home/u/.local/share/tine" || c.Socket != "/run/user/9/tine.sock" {
		t.Errorf("%+v, %v", c, err)
	}
	if got := DefaultSocket(env(nil), 9); got != "/tmp/tine-9/tine.sock" {
		t.Error(got)
	}
	if got := DefaultData(env(map[string]string{"XDG_DATA_HOME": "/x"}), 9); got != "/x/tine" {
		t.Error(got)
	}
}

func TestBadSettings(t *testing.T) {
	cases := []struct{ name, text, flag, value, says string }{
		{"unknown key", "data_dir = \"/x\"", "", "", `no setting "data_dir"`},
		{"not TOML", "data = ", "", "", "line 1"},
		{"a table", "[data]\nx = 1", "", "", "must be a text or a number"},
		{"a bad level", "", "log-level", "loud", "--log-level"},
		{"a bad size", "", "cache-bytes", "12 parsecs", "--cache-bytes"},
		{"a negative size", "", "cache-bytes", "-1", "--cache-bytes"},
		{"a huge size", "", "cache-bytes", "9999999999TiB", "--cache-bytes"},
		{"a bad duration", "commit_interval = 3", "", "", "commit_interval in"},
		{"an empty path", "", "data", "", "--data"},
		{"a store without a URL", "", "store", "eu", "NAME=URL"},
		{"a store of no name", "", "store", "=file:///x", "NAME=URL"},
		{"a store twice", "", "store", "a=file:///x a=file:///y", "twice"},
		{"a list of numbers", "store = [1]", "", "", "list of texts"},
		{"a list where there is one", "data = [\"/x\"]", "", "", "not a list"},
		{"a bad count", "", "undo-keep", "x", "--undo-keep"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			flags := map[string]string{}
			if c.flag != "" {
				flags[c.flag] = c.value
			}
			_, err := Load(file(t, c.text), flags, env(nil), 0)
			if tine.KindOf(err) != tine.KindInvalid || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v; want it to say %q", err, c.says)
			}
		})
	}
	if _, err := Load("/nonexistent/tine.toml", nil, env(nil), 0); tine.KindOf(err) != tine.KindNotFound {
		t.Errorf("a missing file: %v", err)
	}
}

func TestStores(t *testing.T) {
	f := file(t, "store = [\"a=s3://b?region=r\", \"c=file:///d\"]\n")
	for _, c := range []struct {
		flags map[string]string
		env   map[string]string
		want  string
	}{
		{nil, nil, "a s3://b?region=r|c file:///d|"},
		{nil, map[string]string{"TINE_STORE": "e=file:///f"}, "e file:///f|"},
		{map[string]string{"store": "g=file:///h i=gs://j"}, map[string]string{"TINE_STORE": "e=file:///f"}, "g file:///h|i gs://j|"},
	} {
		cfg, err := Load(f, c.flags, env(c.env), 0)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		cfg.EachStore(func(name, url string) { got += name + " " + url + "|" })
		if got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	const secret = "hush"
	if _, err := Load("", map[string]string{"store": "s3://id:" + secret + "@b"}, env(nil), 0); err == nil || strings.Contains(err.Error(), secret) {
		t.Error(err)
	}
}

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "17": 17, "4K": 4096, "4KiB": 4096, "512MiB": 512 << 20, "2 GiB": 2 << 30, "1T": 1 << 40} {
		if got, err := ParseSize(s); err != nil || got != want {
			t.Errorf("%q: %d, %v", s, got, err)
		}
	}
}
