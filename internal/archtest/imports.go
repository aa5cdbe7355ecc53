package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// Module is the import path of the module.
const Module = "tine.dev/tine"

// Rule says what the packages at and below some folders may import of this
// module. Folders are relative to the module; "internal/fs" covers all below
// it.
type Rule struct {
	Of     []string // the packages that the rule is about
	Except []string // and those below Of that it is not about
	Only   []string // if set: all that they may import, besides what lies in the same folder of Of
	Never  []string // what they must not import
	StdLib bool     // they import nothing but the standard library
	Alone  []string // modules of others, which these packages may import and no others may
	Why    string
}

// Rules is the shape of the module.
func Rules() []Rule {
	const fs = "internal/fs/"
	planes := []string{"internal/fs", "internal/source", "internal/box", "internal/gate"}
	rules := []Rule{
		{Of: []string{"internal/tine"}, StdLib: true, Why: "the vocabulary rests on nothing"},
		{Of: []string{fs + "record", fs + "crashpoint", fs + "reclaim"}, Only: []string{"internal/tine", fs + "record"},
			Why: "formats and rules are pure"},
		{Of: []string{fs + "kv", fs + "segment", fs + "blob", fs + "journal"},
			Never: []string{fs + "stratum", fs + "timeline", fs + "usage", fs + "meta", fs + "volume", fs + "fusefs", fs + "s3gw", fs + "wire", fs + "fsck"},
			Why:   "seams lie below the engine"},
		{Of: []string{fs + "blob"}, Only: []string{"internal/tine"}, Why: "objects are bytes: what they mean is for those above"},
		{Of: []string{fs + "cache"}, Only: []string{"internal/tine"}, Why: "frames are bytes: where they come from is for those above"},
		{Of: []string{fs + "object"}, Only: []string{"internal/tine", fs + "blob", fs + "cache", fs + "segment"},
			Never: []string{fs + "blob/mem", fs + "blob/dir", fs + "blob/s3", fs + "blob/faulty"}, Why: "segments in a store know formats and seams, not drivers or rows"},
		{Of: []string{fs + "run"}, Only: []string{"internal/tine", fs + "record", fs + "kv", fs + "blob"},
			Never: []string{fs + "kv/mem", fs + "kv/faulty", fs + "blob/mem", fs + "blob/dir", fs + "blob/s3", fs + "blob/faulty"},
			Why:   "runs know the form of rows, which is that of the row store's driver, and a store's seam"},
		{Of: []string{fs + "segment"}, Never: []string{fs + "blob", fs + "cache", fs + "object"}, Why: "segment files know of stores only that there is a seam"},
		{Of: []string{fs + "blob/s3"}, Alone: []string{"github.com/aws"}, Why: "a store's SDK stays in its driver"},
		{Of: []string{fs + "blob/gcs"}, Alone: []string{"cloud.google.com", "google.golang.org/api"}, Why: "a store's SDK stays in its driver"},
		{Of: []string{fs + "blob/azure"}, Alone: []string{"github.com/Azure"}, Why: "a store's SDK stays in its driver"},
		{Of: []string{fs + "stratum"}, Only: []string{"internal/tine", fs + "record", fs + "kv"}, Never: []string{fs + "kv/pebble", fs + "kv/mem", fs + "kv/faulty"},
			Why: "stored rows know neither drivers nor which lines they belong to"},
		{Of: []string{fs + "timeline"}, Never: []string{fs + "usage", fs + "meta", fs + "volume", fs + "fusefs", fs + "s3gw", fs + "wire", fs + "fsck", fs + "kv/pebble", fs + "kv/mem"},
			Why: "rows with history know seams, not drivers, and not what the rows mean"},
		{Of: []string{fs + "usage"}, Only: []string{"internal/tine", fs + "record", fs + "reclaim", fs + "kv", fs + "stratum", fs + "timeline"},
			Never: []string{fs + "kv/pebble", fs + "kv/mem", fs + "kv/faulty"}, Why: "what is counted are rows and lines, not drivers, and not what the rows mean"},
		{Of: []string{fs + "meta"}, Never: []string{fs + "stratum", fs + "usage", fs + "volume", fs + "fusefs", fs + "s3gw", fs + "wire", fs + "fsck", fs + "kv/pebble", fs + "kv/mem"},
			Why: "the POSIX rules know seams, not drivers, and nothing above them"},
		{Of: []string{fs + "volume"}, Never: []string{fs + "fusefs", fs + "s3gw", fs + "wire", fs + "fsck"}, Why: "the facade knows no front end"},
		{Of: []string{fs + "fsck"}, Only: []string{"internal/tine", fs + "record", fs + "kv"}, Never: []string{fs + "kv/pebble", fs + "kv/mem", fs + "kv/faulty"},
			Why: "a checker that shares code with what it checks shares its mistakes"},
		{Of: []string{fs + "fusefs", fs + "s3gw", fs + "wire"}, Only: []string{"internal/tine", fs + "volume"},
			Why: "front ends see only the facade"},
		{Of: []string{"internal/control", "internal/session"}, Never: []string{fs + "timeline", fs + "stratum", fs + "usage", fs + "meta", fs + "record", fs + "kv", fs + "segment",
			fs + "reclaim", fs + "crashpoint", fs + "blob", fs + "cache", fs + "object", fs + "run", fs + "journal"}, Why: "of the disk they see only the facade and its front ends"},
		{Of: []string{"internal/session"}, Never: []string{"internal/control"}, Why: "control is above sessions"},
		{Of: []string{"internal", "api"}, Never: []string{"cmd", "test", "bench"}, Why: "libraries do not rest on programs"},
		{Of: []string{"internal", "cmd", "api"}, Except: []string{"internal/sim", "internal/archtest"},
			Never: []string{"internal/sim", "internal/archtest"}, Why: "the simulator is for tests"},
		{Of: []string{"api"}, Only: []string{"internal/tine"}, Why: "the public types rest on the vocabulary only"},
	}
	for _, p := range planes {
		others := slices.DeleteFunc(slices.Clone(planes), func(o string) bool { return o == p })
		rules = append(rules, Rule{Of: []string{p}, Never: append(others, "internal/session", "internal/control"),
			Why: "planes do not know each other, nor what is above them"})
	}
	return rules
}

func under(pkg, folder string) bool { return pkg == folder || strings.HasPrefix(pkg, folder+"/") }

func underAny(pkg string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return under(pkg, f) })
}

// CheckImports returns what breaks a rule.
func CheckImports(pkgs []*Package, rules []Rule) []string {
	var bad []string
	for _, p := range pkgs {
		for _, name := range p.Imports() {
			for _, r := range rules {
				if why := r.refuses(p.Path, name); why != "" {
					bad = append(bad, fmt.Sprintf("%s imports %s: %s", p.Path, name, why))
				}
			}
		}
	}
	return bad
}

// refuses returns why a package must not import name, or "".
func (r Rule) refuses(pkg, name string) string {
	if underAny(name, r.Alone) && !underAny(pkg, r.Of) {
		return r.Why
	}
	i := slices.IndexFunc(r.Of, func(f string) bool { return under(pkg, f) })
	if i < 0 || underAny(pkg, r.Except) {
		return ""
	}
	first, _, _ := strings.Cut(name, "/")
	if r.StdLib && strings.Contains(first, ".") {
		return r.Why
	}
	local, ours := strings.CutPrefix(name, Module+"/")
	if !ours {
		return ""
	}
	if len(r.Only) > 0 && !underAny(local, r.Only) && !under(local, r.Of[i]) {
		return r.Why
	}
	if underAny(local, r.Never) {
		return r.Why
	}
	return ""
}
