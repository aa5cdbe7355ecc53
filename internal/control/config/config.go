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
	SlowOp         time.Duration // file operations that take so long are traced, if anything is; 0: none
}

// Setting is one line of the table of settings.
type Setting struct {
	Name string // as a flag; in the file '_' stands for '-', in the environment also capitals
	Help string
	set  func(*Config, string) error
}

// Settings lists every setting, in the order of the help text.
func Settings() []Setting {
	return []Setting{
		{"data", "data directory", text(func(c *Config) *string { return &c.Data })},
		{"socket", "unix socket to listen on", text(func(c *Config) *string { return &c.Socket })},
		{"cache-bytes", "memory for cached metadata and data, such as 512MiB; 64MiB unless set", size(func(c *Config) *int64 { return &c.CacheBytes })},
		{"memory-limit", "memory that the whole process tries to stay under, such as 2GiB; no limit unless set", size(func(c *Config) *int64 { return &c.MemoryLimit })},
		{"log-level", "debug, info, warn or error; info unless set", oneOf(func(c *Config) *string { return &c.LogLevel }, "debug", "info", "warn", "error")},
		{"log-format", "text or json; text unless set", oneOf(func(c *Config) *string { return &c.LogFormat }, "text", "json")},
		{"commit-interval", "after how long a change is durable without fsync; 1s unless set", span(func(c *Config) *time.Duration { return &c.CommitInterval })},
		{"undo-keep", "how many checkpoints that rollbacks and promotes have made as their undo are kept for each disk; 3 unless set", count(func(c *Config) *int { return &c.UndoKeep })},
		{"trash-keep", "how long a removed disk can be undeleted, such as 168h; 24h unless set", span(func(c *Config) *time.Duration { return &c.TrashKeep })},
		{"metrics", "also serve metrics on this TCP address, such as :9464; without a host it is loopback", text(func(c *Config) *string { return &c.Metrics })},
		{"slow-op", "file operations that take so long are traced, if OTEL_EXPORTER_OTLP_ENDPOINT is set; 100ms unless set, 0 for none", span(func(c *Config) *time.Duration { return &c.SlowOp })},
		{"stop-timeout", "how long running calls and unmounts may take when the server stops; 30s unless set", span(func(c *Config) *time.Duration { return &c.StopTimeout })},
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
	known := map[string]bool{}
	var names []string
	for _, s := range Settings() {
		key := strings.ReplaceAll(s.Name, "-", "_")
		known[key] = true
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
		default:
			return nil, tine.Errorf(tine.KindInvalid, "%s: %s must be a text or a number, not %T", file, key, v)
		}
	}
	return out, nil
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
