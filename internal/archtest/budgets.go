package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
)

// The budgets. Past them a reader loses the thread.
const (
	MaxFileLines        = 600
	UsualFileLines      = 450 // only one file in ten may be longer
	MaxFunctionLines    = 80
	MaxStructFields     = 24
	MaxInterfaceMethods = 11
	MaxPackageLines     = 6000 // without tests
)

// CheckBudgets returns what is too large.
func CheckBudgets(pkgs []*Package) []string {
	var bad, long []string
	files := 0
	for _, p := range pkgs {
		lines := 0
		for _, f := range p.Files {
			files++
			if f.Lines > MaxFileLines {
				bad = append(bad, fmt.Sprintf("%s has %d lines; at most %d", f.Path, f.Lines, MaxFileLines))
			}
			if f.Lines > UsualFileLines {
				long = append(long, f.Path)
			}
			if !f.Test {
				lines += f.Lines
			}
			bad = append(bad, p.declarations(f)...)
		}
		if lines > MaxPackageLines {
			bad = append(bad, fmt.Sprintf("package %s has %d lines; at most %d", p.Path, lines, MaxPackageLines))
		}
	}
	if len(long) > max(1, files/10) {
		bad = append(bad, fmt.Sprintf("%d of %d files have more than %d lines: %v", len(long), files, UsualFileLines, long))
	}
	return bad
}

// declarations checks functions, structs and interfaces.
func (p *Package) declarations(f *File) []string {
	var bad []string
	ast.Inspect(f.AST, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			lines := p.Fset.Position(n.End()).Line - p.Fset.Position(n.Pos()).Line + 1
			if lines > MaxFunctionLines {
				bad = append(bad, fmt.Sprintf("%s: function %s has %d lines; at most %d", f.Path, n.Name.Name, lines, MaxFunctionLines))
			}
			if n.Name.Name == "init" && n.Recv == nil {
				bad = append(bad, f.Path+": func init(); wire things up in main")
			}
		case *ast.TypeSpec:
			switch t := n.Type.(type) {
			case *ast.StructType:
				if c := fieldCount(t.Fields); c > MaxStructFields {
					bad = append(bad, fmt.Sprintf("%s: struct %s has %d fields; at most %d", f.Path, n.Name.Name, c, MaxStructFields))
				}
			case *ast.InterfaceType:
				if c := fieldCount(t.Methods); c > MaxInterfaceMethods {
					bad = append(bad, fmt.Sprintf("%s: interface %s has %d methods; at most %d", f.Path, n.Name.Name, c, MaxInterfaceMethods))
				}
			}
		}
		return true
	})
	return bad
}

func fieldCount(l *ast.FieldList) int {
	n := 0
	for _, f := range l.List {
		n += max(1, len(f.Names))
	}
	return n
}

var unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)

// CheckWords returns comments that say that something is not finished, and
// packages whose name says nothing.
func CheckWords(pkgs []*Package) []string {
	var bad []string
	for _, p := range pkgs {
		if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "base"}, p.Name) {
			bad = append(bad, fmt.Sprintf("package %s: the name %q says nothing of what is in it", p.Path, p.Name))
		}
		documented := false
		for _, f := range p.Files {
			documented = documented || f.AST.Doc != nil
			for _, group := range f.AST.Comments {
				if w := unfinished.FindString(group.Text()); w != "" {
					bad = append(bad, fmt.Sprintf("%s: a comment says %s", p.Fset.Position(group.Pos()), w))
				}
			}
		}
		if !documented {
			bad = append(bad, fmt.Sprintf("package %s has no package comment", p.Path))
		}
	}
	return bad
}

// CheckState returns package-level variables that hold changing state: those
// that some function assigns to, and locks and counters, which are of no use
// unless something changes.
func CheckState(pkgs []*Package) []string {
	var bad []string
	for _, p := range pkgs {
		vars := map[string]ast.Node{}
		for _, f := range p.Files {
			if f.Test {
				continue
			}
			for _, d := range f.AST.Decls {
				g, ok := d.(*ast.GenDecl)
				if !ok || g.Tok != token.VAR {
					continue
				}
				for _, s := range g.Specs {
					v := s.(*ast.ValueSpec)
					if isState(v.Type) {
						bad = append(bad, fmt.Sprintf("%s: %s is state of the whole program", f.Path, v.Names[0].Name))
					}
					for _, n := range v.Names {
						vars[n.Name] = v
					}
				}
			}
		}
		for _, f := range p.Files {
			if !f.Test {
				bad = append(bad, p.assignments(f, vars)...)
			}
		}
	}
	return bad
}

// isState reports whether a type is from sync or sync/atomic.
func isState(t ast.Expr) bool {
	if i, ok := t.(*ast.IndexExpr); ok {
		t = i.X
	}
	s, ok := t.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && (x.Name == "sync" || x.Name == "atomic")
}

// assignments finds the places in functions that change a package variable.
func (p *Package) assignments(f *File, vars map[string]ast.Node) []string {
	var bad []string
	check := func(e ast.Expr) {
		id := rootOf(e)
		if id == nil || id.Name == "_" {
			return
		}
		decl, ok := vars[id.Name]
		if !ok || id.Obj != nil && id.Obj.Decl != decl {
			return
		}
		bad = append(bad, fmt.Sprintf("%s: changes the package variable %s", p.Fset.Position(e.Pos()), id.Name))
	}
	ast.Inspect(f.AST, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, e := range n.Lhs {
					check(e)
				}
			}
		case *ast.IncDecStmt:
			check(n.X)
		case *ast.CallExpr:
			if fn, ok := n.Fun.(*ast.Ident); ok && (fn.Name == "delete" || fn.Name == "clear") && len(n.Args) > 0 {
				check(n.Args[0])
			}
		}
		return true
	})
	return bad
}

// rootOf returns the identifier that an assignable expression starts with.
func rootOf(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}
