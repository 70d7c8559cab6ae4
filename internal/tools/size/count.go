package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"path"
	"slices"
	"strings"
)

// size contains the counts of a package.
type size struct {
	files, lines, code             int
	exported, members              int
	testFiles, testLines, testCode int
}

func (s size) plus(t size) size {
	s.files += t.files
	s.lines += t.lines
	s.code += t.code
	s.exported += t.exported
	s.members += t.members
	s.testFiles += t.testFiles
	s.testLines += t.testLines
	s.testCode += t.testCode
	return s
}

var (
	// ignored lists folders that are not counted.
	ignored = []string{"examples", "bench", "testdata", "node_modules"}

	// forTests lists folders with packages that only tests and tools use.
	forTests = []string{
		"conformance", "broker/internal/chaos", "broker/internal/simulation",
		"internal/archtest", "internal/backofftest", "internal/browsertest", "internal/chaos", "internal/docstest", "internal/interop",
		"internal/presettest", "internal/testkit", "internal/tools", "internal/topologytest", "internal/upgradetest", "internal/workertest",
	}
)

// counts reports whether the sum includes a file.
func counts(name string) bool {
	if path.Ext(name) != ".go" {
		return false
	}
	for folder := range strings.SplitSeq(path.Dir(name), "/") {
		if slices.Contains(ignored, folder) || len(folder) > 1 && strings.HasPrefix(folder, ".") {
			return false
		}
	}
	return true
}

// add adds a file to its package.
func add(packages map[string]size, name string, content []byte) error {
	if !counts(name) {
		return nil
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", name, err)
	}
	if ast.IsGenerated(file) {
		return nil
	}
	folder := path.Dir(name)
	lines, code := bytes.Count(content, []byte("\n")), codeLines(content)
	s := packages[folder]
	if strings.HasSuffix(name, "_test.go") || below(folder, forTests) {
		s.testFiles++
		s.testLines += lines
		s.testCode += code
	} else {
		s.files++
		s.lines += lines
		s.code += code
		if importable(folder) && file.Name.Name != "main" {
			top, members := exported(file)
			s.exported += top
			s.members += members
		}
	}
	packages[folder] = s
	return nil
}

func below(folder string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return folder == f || strings.HasPrefix(folder, f+"/") })
}

func importable(folder string) bool { return !slices.Contains(strings.Split(folder, "/"), "internal") }

// codeLines counts the lines that have a token.
func codeLines(content []byte) int {
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(content))
	var s scanner.Scanner
	s.Init(file, content, nil, 0)
	lines := make(map[int]bool)
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue // the scanner inserted the semicolon
		}
		first := file.Line(pos)
		for line := first; line <= first+strings.Count(literal, "\n"); line++ {
			lines[line] = true
		}
	}
}

// exported counts the exported names at the top level of a file, and the exported methods and fields of exported types.
func exported(file *ast.File) (top, members int) {
	count := func(n *int, names ...*ast.Ident) {
		for _, name := range names {
			if name.IsExported() {
				*n++
			}
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				count(&top, d.Name)
			} else if ast.IsExported(receiver(d.Recv.List[0].Type)) {
				count(&members, d.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					count(&top, spec.Names...)
				case *ast.TypeSpec:
					count(&top, spec.Name)
					if !spec.Name.IsExported() {
						continue
					}
					for _, f := range fields(spec.Type) {
						count(&members, f.Names...)
					}
				}
			}
		}
	}
	return top, members
}

func fields(e ast.Expr) []*ast.Field {
	switch e := e.(type) {
	case *ast.StructType:
		return e.Fields.List
	case *ast.InterfaceType:
		return e.Methods.List
	}
	return nil
}

// receiver returns the name of a method's receiver type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
