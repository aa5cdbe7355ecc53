package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// File is one parsed source file.
type File struct {
	Path  string // relative to the module
	Test  bool
	Lines int
	AST   *ast.File
}

// Package is a directory of source files.
type Package struct {
	Path  string // relative to the module; "." for its root
	Name  string
	Files []*File
	Fset  *token.FileSet
}

// Imports returns the import paths of the files that ship, each once.
func (p *Package) Imports() []string {
	seen := map[string]bool{}
	var all []string
	for _, f := range p.Files {
		if f.Test {
			continue
		}
		for _, spec := range f.AST.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err == nil && !seen[name] {
				seen[name] = true
				all = append(all, name)
			}
		}
	}
	return all
}

// Load parses all packages below the root of a module.
func Load(fsys fs.FS) ([]*Package, error) {
	fset := token.NewFileSet()
	byDir := map[string]*Package{}
	var all []*Package
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			if base == "testdata" || base == "node_modules" || name != "." && (base[0] == '.' || base[0] == '_') {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") {
			return nil
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(fset, name, src, parser.ParseComments)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		p := byDir[dir]
		if p == nil {
			p = &Package{Path: dir, Fset: fset}
			byDir[dir] = p
			all = append(all, p)
		}
		f := &File{Path: name, Test: strings.HasSuffix(base, "_test.go"), Lines: strings.Count(string(src), "\n"), AST: parsed}
		if !f.Test || p.Name == "" {
			p.Name = parsed.Name.Name
		}
		p.Files = append(p.Files, f)
		return nil
	})
	return all, err
}
