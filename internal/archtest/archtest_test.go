package archtest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

func TestTheModule(t *testing.T) {
	pkgs, err := Load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(pkgs) < 10 {
		t.Fatalf("only %d packages found", len(pkgs))
	}
	for what, bad := range map[string][]string{
		"import": CheckImports(pkgs, Rules()), "budget": CheckBudgets(pkgs), "words": CheckWords(pkgs), "state": CheckState(pkgs),
	} {
		for _, b := range bad {
			t.Errorf("%s: %s", what, b)
		}
	}
}

// importCase is an import that a rule refuses, or that all let pass.
type importCase struct {
	from, to string
	refused  bool
}

// TestImportRulesFire breaks each rule once, and keeps each once.
func TestImportRulesFire(t *testing.T) {
	checkImportCases(t, []importCase{
		{"internal/tine", "github.com/cockroachdb/pebble/v2", true},
		{"internal/tine", "encoding/binary", false},
		{"internal/tine", Module + "/internal/fs/record", true},
		{"internal/fs/record", Module + "/internal/tine", false},
		{"internal/fs/record", Module + "/internal/fs/kv", true},
		{"internal/fs/reclaim", Module + "/internal/fs/record", false},
		{"internal/fs/reclaim", Module + "/internal/fs/meta", true},
		{"internal/fs/crashpoint", Module + "/internal/fs/volume", true},
		{"internal/fs/kv/pebble", Module + "/internal/fs/meta", true},
		{"internal/fs/kv/pebble", Module + "/internal/fs/kv", false},
		{"internal/fs/segment", Module + "/internal/fs/volume", true},
		{"internal/fs/meta", Module + "/internal/fs/volume", true},
		{"internal/fs/meta", Module + "/internal/fs/kv/pebble", true},
		{"internal/fs/meta", Module + "/internal/fs/timeline", false},
		{"internal/fs/segment", Module + "/internal/fs/stratum", true},
		{"internal/fs/stratum", Module + "/internal/fs/kv", false},
		{"internal/fs/stratum", Module + "/internal/fs/kv/mem", true},
		{"internal/fs/stratum", Module + "/internal/fs/reclaim", true},
		{"internal/fs/stratum", Module + "/internal/fs/timeline", true},
		{"internal/fs/timeline", Module + "/internal/fs/stratum", false},
		{"internal/fs/timeline", Module + "/internal/fs/usage", true},
		{"internal/fs/usage", Module + "/internal/fs/timeline", false},
		{"internal/fs/usage", Module + "/internal/fs/kv/pebble", true},
		{"internal/fs/usage", Module + "/internal/fs/meta", true},
		{"internal/fs/meta", Module + "/internal/fs/stratum", true},
		{"internal/fs/meta", Module + "/internal/fs/usage", true},
		{"internal/fs/volume", Module + "/internal/fs/usage", false},
		{"internal/control", Module + "/internal/fs/usage", true},
		{"internal/fs/timeline", Module + "/internal/fs/meta", true},
		{"internal/fs/timeline", Module + "/internal/fs/kv/pebble", true},
		{"internal/fs/fsck", Module + "/internal/fs/timeline", true},
		{"internal/fs/fusefs", Module + "/internal/fs/timeline", true},
		{"internal/control", Module + "/internal/fs/timeline", true},
		{"internal/fs/volume", Module + "/internal/fs/meta", false},
		{"internal/fs/volume", Module + "/internal/fs/kv/pebble", false},
		{"internal/fs/volume", Module + "/internal/fs/fusefs", true},
		{"internal/fs/fsck", Module + "/internal/fs/meta", true},
		{"internal/fs/fsck", Module + "/internal/fs/record", false},
		{"internal/fs/fsck", Module + "/internal/fs/kv", false},
		{"internal/fs/fsck", Module + "/internal/fs/kv/pebble", true},
		{"internal/fs/fsck", Module + "/internal/fs/segment", true},
		{"internal/fs/fsck", Module + "/internal/fs/reclaim", true},
		{"internal/fs/fusefs", Module + "/internal/fs/meta", true},
		{"internal/fs/fusefs", Module + "/internal/fs/record", true},
		{"internal/fs/fusefs", Module + "/internal/fs/volume", false},
		{"internal/fs/fusefs/kernel", Module + "/internal/fs/fusefs", false},
		{"internal/fs/blob/s3", Module + "/internal/fs/blob", false},
		{"internal/fs/blob/s3", Module + "/internal/fs/record", true},
		{"internal/fs/blob/s3", "github.com/aws/aws-sdk-go-v2/service/s3", false},
		{"internal/fs/blob", "github.com/aws/smithy-go", true},
		{"internal/fs/volume", "cloud.google.com/go/storage", true},
		{"cmd/tine", "github.com/aws/aws-sdk-go-v2/config", true},
		{"internal/control", Module + "/internal/fs/meta", true},
		{"internal/control", Module + "/internal/session", false},
		{"internal/session", Module + "/internal/control", true},
		{"internal/box/gvisor", Module + "/internal/fs/volume", true},
		{"internal/gate", Module + "/internal/box", true},
		{"internal/fs/meta", Module + "/internal/session", true},
		{"internal/session", Module + "/internal/gate", false},
		{"internal/fs/volume", Module + "/internal/sim", true},
		{"internal/sim", Module + "/internal/sim/posix", false},
		{"internal/control", Module + "/cmd/tine", true},
		{"api", Module + "/internal/fs/volume", true},
		{"cmd/tine", Module + "/internal/control", false},
	})
}

// TestStoreImportRulesFire does the same for what lies between the engine and a
// store.
func TestStoreImportRulesFire(t *testing.T) {
	checkImportCases(t, []importCase{
		{"internal/fs/cache", Module + "/internal/tine", false},
		{"internal/fs/cache", Module + "/internal/fs/blob", true},
		{"internal/fs/object", Module + "/internal/fs/segment", false},
		{"internal/fs/object", Module + "/internal/fs/blob/s3", true},
		{"internal/fs/object", Module + "/internal/fs/record", true},
		{"internal/fs/segment", Module + "/internal/fs/object", true},
		{"internal/fs/segment", Module + "/internal/fs/blob", true},
		{"internal/control", Module + "/internal/fs/object", true},
		{"internal/fs/run", Module + "/internal/fs/kv/pebble", false},
		{"internal/fs/run", Module + "/internal/fs/blob/dir", true},
		{"internal/fs/run", Module + "/internal/fs/timeline", true},
		{"internal/control", Module + "/internal/fs/run", true},
	})
}

func checkImportCases(t *testing.T, cases []importCase) {
	t.Helper()
	for _, c := range cases {
		pkgs, err := Load(fstest.MapFS{c.from + "/x.go": &fstest.MapFile{
			Data: []byte(fmt.Sprintf("// Package x.\npackage x\n\nimport _ %q\n", c.to))}})
		if err != nil {
			t.Fatal(err)
		}
		if bad := CheckImports(pkgs, Rules()); (len(bad) > 0) != c.refused {
			t.Errorf("%s imports %s: refused %v, want %v; %q", c.from, c.to, len(bad) > 0, c.refused, bad)
		}
	}
}

// TestBudgetsFire checks each budget just within and just past it.
func TestBudgetsFire(t *testing.T) {
	const head = "// Package x.\npackage x\n"
	repeat := strings.Repeat
	fields := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "\tF%d int\n", i)
		}
		return b.String()
	}
	methods := func(n int) string { return strings.ReplaceAll(fields(n), " int", "()") }
	check := func(pkgs []*Package) []string {
		return append(append(CheckBudgets(pkgs), CheckWords(pkgs)...), CheckState(pkgs)...)
	}
	for name, c := range map[string]struct{ good, bad string }{
		"file":       {head + repeat("\n", MaxFileLines-2), head + repeat("\n", MaxFileLines-1)},
		"function":   {head + "func f() {" + repeat("\n", MaxFunctionLines-1) + "}", head + "func f() {" + repeat("\n", MaxFunctionLines) + "}"},
		"struct":     {head + "type T struct {\n" + fields(MaxStructFields) + "}", head + "type T struct {\n" + fields(MaxStructFields+1) + "}"},
		"interface":  {head + "type T interface {\n" + methods(MaxInterfaceMethods) + "}", head + "type T interface {\n" + methods(MaxInterfaceMethods+1) + "}"},
		"init":       {head + "func initial() {}", head + "func init() {}"},
		"name":       {head, "// Package util.\npackage util\n"},
		"comment":    {head, "package x\n"},
		"unfinished": {head + "// done\n", head + "// TO" + "DO: more\n"},
		"assign":     {head + "var v = 1\nfunc f() { v := 2; v = 3; _ = v }", head + "var v = 1\nfunc f() { v = 2 }"},
		"index":      {head + "var m = map[int]int{}\nfunc f() int { return m[1] }", head + "var m = map[int]int{}\nfunc f() { m[1] = 2 }"},
		"field":      {head + "var s struct{ a int }\nfunc f() int { return s.a }", head + "var s struct{ a int }\nfunc f() { s.a++ }"},
		"delete":     {head + "var m map[int]int\nfunc f() int { return len(m) }", head + "var m map[int]int\nfunc f() { delete(m, 1) }"},
		"lock":       {head + "import \"sync\"\ntype t struct{ mu sync.Mutex }", head + "import \"sync\"\nvar mu sync.Mutex"},
	} {
		for src, want := range map[string]bool{c.good: false, c.bad: true} {
			pkgs, err := Load(fstest.MapFS{"x/x.go": &fstest.MapFile{Data: []byte(src)}})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if bad := check(pkgs); (len(bad) > 0) != want {
				t.Errorf("%s: refused %v, want %v: %q", name, len(bad) > 0, want, bad)
			}
		}
	}
}

func TestLargePackagesAndManyLongFiles(t *testing.T) {
	files := fstest.MapFS{}
	for i := range 20 {
		src := "// Package x.\npackage x\n" + strings.Repeat("\n", UsualFileLines-3)
		files[fmt.Sprintf("x/%d.go", i)] = &fstest.MapFile{Data: []byte(src)}
	}
	for i, want := range []int{1, 2} {
		if i == 1 {
			for k := range 3 {
				files[fmt.Sprintf("x/%d.go", k)].Data = append(files[fmt.Sprintf("x/%d.go", k)].Data, "\n\n"...)
			}
		}
		pkgs, err := Load(files)
		if err != nil {
			t.Fatal(err)
		}
		if bad := CheckBudgets(pkgs); len(bad) != want {
			t.Errorf("%d findings, want %d: %q", len(bad), want, bad)
		}
	}
}
