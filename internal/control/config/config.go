// Package config decides what a server runs with. A setting can be given in
// four places; the first that names it wins:
//
//  1. a flag of `tine serve`
//  2. an environment variable, TINE_ and the setting in capitals
//  3. the TOML file of --config or TINE_CONFIG
//  4. the default
//
// A name in the file that no setting has is an error, because a misspelt
// setting that is silently ignored is found out too late.
package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/tine"
)

// Config is what a server runs with.
type Config struct {
	Data           string        // the data directory, absolute
	Socket         string        // the unix socket to listen on, absolute
	CacheBytes     int64         // of rows and segment blocks; 0: the engine's default
	MemoryLimit    int64         // bytes the Go runtime tries to stay under; 0: none
	LogLevel       string        // debug, info, warn or error
	LogFormat      string        // text or json
	CommitInterval time.Duration // 0: the engine's default
	UndoKeep       int           // automatic checkpoints to keep a disk; 0: the engine's default
	TrashKeep      time.Duration // how long a removed disk can be undeleted; 0: the engine's default
	StopTimeout    time.Duration // how long running calls and unmounts may take when stopping
	Metrics        string        // TCP address at which metrics are served; empty: on the socket only
	Stores         string        // object stores, each NAME=URL, separated by blanks
	StoreLease     time.Duration // how long a server must not be heard of before its trees in stores are taken up; 0: the engine's default
	SlowOp         time.Duration // file operations that take so long are traced, if anything is; 0: none
}

// Setting is one line of the table of settings.
type Setting struct {
	Name string // as a flag; in the file '_' stands for '-', in the environment also capitals
	Help string
	set  func(*Config, string) error
	Many bool // a flag that may be given several times, a list in the file; its values come separated by blanks
	// Hidden settings are for tests.
	Hidden bool
}

// Settings lists every setting, in the order of the help text.
func Settings() []Setting {
	return []Setting{
		{Name: "data", Help: "data directory", set: text(func(c *Config) *string { return &c.Data })},
		{Name: "socket", Help: "unix socket to listen on", set: text(func(c *Config) *string { return &c.Socket })},
		{Name: "cache-bytes", Help: "memory for cached metadata and data, such as 512MiB; 64MiB unless set", set: size(func(c *Config) *int64 { return &c.CacheBytes })},
		{Name: "memory-limit", Help: "memory that the whole process tries to stay under, such as 2GiB; no limit unless set", set: size(func(c *Config) *int64 { return &c.MemoryLimit })},
		{Name: "log-level", Help: "debug, info, warn or error; info unless set", set: oneOf(func(c *Config) *string { return &c.LogLevel }, "debug", "info", "warn", "error")},
		{Name: "log-format", Help: "text or json; text unless set", set: oneOf(func(c *Config) *string { return &c.LogFormat }, "text", "json")},
		{Name: "commit-interval", Help: "after how long a change is durable without fsync; 1s unless set", set: span(func(c *Config) *time.Duration { return &c.CommitInterval })},
		{Name: "undo-keep", Help: "how many checkpoints that rollbacks and promotes have made as their undo are kept for each disk; 3 unless set", set: count(func(c *Config) *int { return &c.UndoKeep })},
		{Name: "trash-keep", Help: "how long a removed disk can be undeleted, such as 168h; 24h unless set", set: span(func(c *Config) *time.Duration { return &c.TrashKeep })},
		{Name: "metrics", Help: "also serve metrics on this TCP address, such as :9464; without a host it is loopback", set: text(func(c *Config) *string { return &c.Metrics })},
		{Name: "store", Help: "an object store that disks may live in, as NAME=URL, such as eu=s3://bucket/prefix?region=eu-central-1; may be given several times. It is remembered. " +
			"A server that has no disk takes up what lies in it", set: storeList, Many: true},
		{Name: "store-lease", Help: "how long another server must not be heard of before its disks in stores are taken up", set: span(func(c *Config) *time.Duration { return &c.StoreLease }), Hidden: true},
		{Name: "slow-op", Help: "file operations that take so long are traced, if OTEL_EXPORTER_OTLP_ENDPOINT is set; 100ms unless set, 0 for none", set: span(func(c *Config) *time.Duration { return &c.SlowOp })},
		{Name: "stop-timeout", Help: "how long running calls and unmounts may take when the server stops; 30s unless set", set: span(func(c *Config) *time.Duration { return &c.StopTimeout })},
	}
}

// Load merges the four places. Flags holds the flags that were given; getenv
// is os.Getenv or a test's. The paths of the result are absolute.
func Load(file string, flags map[string]string, getenv func(string) string, uid int) (Config, error) {
	c := Config{
		Data: DefaultData(getenv, uid), Socket: DefaultSocket(getenv, uid),
		LogLevel: "info", LogFormat: "text", StopTimeout: 30 * time.Second, SlowOp: 100 * time.Millisecond,
	}
	if file == "" {
		file = getenv("TINE_CONFIG")
	}
	inFile, err := readFile(file)
	if err != nil {
		return c, err
	}
	for _, s := range Settings() {
		key := strings.ReplaceAll(s.Name, "-", "_")
		env := "TINE_" + strings.ToUpper(key)
		from, value := "--"+s.Name, ""
		if v, ok := flags[s.Name]; ok {
			value = v
		} else if v := getenv(env); v != "" {
			from, value = env, v
		} else if v, ok := inFile[key]; ok {
			from, value = key+" in "+file, v
		} else {
			continue
		}
		if err := s.set(&c, value); err != nil {
			return c, tine.Errorf(tine.KindInvalid, "%s: %w", from, err)
		}
	}
	for _, p := range []*string{&c.Data, &c.Socket} {
		if *p, err = filepath.Abs(*p); err != nil {
			return c, oserr.Wrap(err, "find the current directory")
		}
	}
	return c, nil
}

// readFile returns the file's settings as text.
func readFile(file string) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	var raw map[string]any
	if _, err := toml.DecodeFile(file, &raw); err != nil {
		var parse toml.ParseError
		if errors.As(err, &parse) {
			return nil, tine.Errorf(tine.KindInvalid, "%s, line %d: %s", file, parse.Position.Line, parse.Message)
		}
		return nil, oserr.Wrap(err, "read the configuration")
	}
	known, many := map[string]bool{}, map[string]bool{}
	var names []string
	for _, s := range Settings() {
		key := strings.ReplaceAll(s.Name, "-", "_")
		known[key], many[key] = true, s.Many
		names = append(names, key)
	}
	out := map[string]string{}
	for key, v := range raw {
		if !known[key] {
			return nil, tine.Errorf(tine.KindInvalid, "%s: there is no setting %q", file, key).
				WithHint("the settings are %s", strings.Join(names, ", "))
		}
		switch v := v.(type) {
		case string:
			out[key] = v
		case int64:
			out[key] = strconv.FormatInt(v, 10)
		case []any:
			text, ok := list(v)
			if !many[key] || !ok {
				return nil, tine.Errorf(tine.KindInvalid, "%s: %s must be %s", file, key, map[bool]string{true: "a list of texts", false: "a text or a number, not a list"}[many[key]])
			}
			out[key] = text
		default:
			return nil, tine.Errorf(tine.KindInvalid, "%s: %s must be a text or a number, not %T", file, key, v)
		}
	}
	return out, nil
}

// list joins the texts of a list.
func list(vs []any) (string, bool) {
	var out []string
	for _, v := range vs {
		s, ok := v.(string)
		if !ok || strings.ContainsAny(s, " \t\n") {
			return "", false
		}
		out = append(out, s)
	}
	return strings.Join(out, " "), true
}

// storeList takes stores over. Its errors do not quote them: a URL may hold a
// credential by mistake.
func storeList(c *Config, v string) error {
	seen := map[string]bool{}
	for _, s := range strings.Fields(v) {
		name, url, ok := strings.Cut(s, "=")
		if !ok || url == "" || tine.CheckName("store", name) != nil {
			return errors.New("a store is written NAME=URL, such as eu=s3://bucket/prefix")
		}
		if seen[name] {
			return fmt.Errorf("the store %q is given twice", name)
		}
		seen[name] = true
	}
	c.Stores = v
	return nil
}

// EachStore calls fn with the name and the URL of each store, in their order.
func (c Config) EachStore(fn func(name, url string)) {
	for _, s := range strings.Fields(c.Stores) {
		name, url, _ := strings.Cut(s, "=")
		fn(name, url)
	}
}

func text(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		if v == "" {
			return fmt.Errorf("the value is empty")
		}
		*field(c) = v
		return nil
	}
}

func oneOf(field func(*Config) *string, words ...string) func(*Config, string) error {
	return func(c *Config, v string) error {
		for _, w := range words {
			if v == w {
				*field(c) = v
				return nil
			}
		}
		return fmt.Errorf("%q is not one of %s", v, strings.Join(words, ", "))
	}
}

func span(field func(*Config) *time.Duration) func(*Config, string) error {
	return func(c *Config, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d < 0 {
			return fmt.Errorf("%q is not a duration such as 500ms, 30s or 24h", v)
		}
		*field(c) = d
		return nil
	}
}

func count(field func(*Config) *int) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			return fmt.Errorf("%q is not a count", v)
		}
		*field(c) = n
		return nil
	}
}

func size(field func(*Config) *int64) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := ParseSize(v)
		if err != nil {
			return err
		}
		*field(c) = n
		return nil
	}
}

// ParseSize reads a number of bytes: digits, then nothing, KiB, MiB, GiB or
// TiB (K, M, G and T mean the same).
func ParseSize(s string) (int64, error) {
	digits := strings.TrimRight(s, "KMGTiBkmgtb ")
	n, err := strconv.ParseInt(digits, 10, 64)
	shift := -1
	switch strings.TrimSpace(strings.ToLower(s[len(digits):])) {
	case "", "b":
		shift = 0
	case "k", "kib":
		shift = 10
	case "m", "mib":
		shift = 20
	case "g", "gib":
		shift = 30
	case "t", "tib":
		shift = 40
	}
	if err != nil || shift < 0 || n < 0 || n > (1<<62)>>shift {
		return 0, fmt.Errorf("%q is not a size such as 536870912, 512MiB or 2GiB", s)
	}
	return n << shift, nil
}
