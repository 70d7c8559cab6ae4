package archtest

import (
	"bytes"
	"cmp"
	"flag"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const apiFile = "testdata/api.txt"

var updateAPI = flag.Bool("update", false, "write the exported names to api.txt")

// The exported names of public packages, with their types, match api.txt. A removed or changed line can break users'
// programs (see docs/compatibility.md).
func TestExportedNamesMatchList(t *testing.T) {
	now := slices.Sorted(maps.Keys(api(t)))
	if *updateAPI {
		if err := os.WriteFile(apiFile, []byte(strings.Join(now, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(apiFile)
	if err != nil {
		t.Fatal(err)
	}
	before := strings.Split(strings.TrimSpace(string(text)), "\n")
	report := func(what string, lines, others []string) {
		for _, line := range lines {
			if !slices.Contains(others, line) {
				t.Errorf("%s: %s", what, line)
			}
		}
	}
	report("removed", before, now)
	report("added", now, before)
	if t.Failed() {
		t.Log("if the change is intended, run go test ./internal/archtest -run TestExported -update, and add a line to CHANGELOG.md")
	}
}

// api returns a line for each exported name of the public packages.
func api(t *testing.T) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	walk(t, ".go", func(path string) {
		name, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		name = filepath.ToSlash(name)
		if strings.HasSuffix(path, "_test.go") || matches([]string{"bench/...", "examples/..."}, name) || strings.Contains(name+"/", "internal/") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if file.Name.Name == "main" {
			return
		}
		for _, d := range file.Decls {
			for _, line := range declared(d) {
				all[strings.Replace(name, ".", "reprise", 1)+": "+line] = true
			}
		}
	})
	return all
}

// declared returns a line for each exported name of a declaration, its fields and its methods.
func declared(d ast.Decl) (lines []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Recv == nil {
			lines = append(lines, "func "+d.Name.Name+signature(d.Type))
		} else if d.Name.IsExported() && ast.IsExported(receiver(d.Recv.List[0].Type)) {
			lines = append(lines, "method ("+source(d.Recv.List[0].Type)+") "+d.Name.Name+signature(d.Type))
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				for _, n := range s.Names {
					if n.IsExported() {
						lines = append(lines, strings.TrimSpace(d.Tok.String()+" "+n.Name+" "+source(s.Type)))
					}
				}
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					lines = append(lines, declaredType(s)...)
				}
			}
		}
	}
	return lines
}

func declaredType(s *ast.TypeSpec) (lines []string) {
	head := "type " + s.Name.Name
	if s.TypeParams != nil {
		head += "[" + types(s.TypeParams) + "]"
	}
	if s.Assign != token.NoPos {
		head += " ="
	}
	var fields []*ast.Field
	switch of := s.Type.(type) {
	case *ast.StructType:
		lines, fields = append(lines, head+" struct"), of.Fields.List
	case *ast.InterfaceType:
		lines, fields = append(lines, head+" interface"), of.Methods.List
	default:
		return append(lines, head+" "+source(s.Type))
	}
	for _, f := range fields {
		text := " " + source(f.Type)
		if method, ok := f.Type.(*ast.FuncType); ok && len(f.Names) > 0 {
			if _, ok := s.Type.(*ast.InterfaceType); ok {
				text = signature(method)
			}
		}
		for _, n := range f.Names {
			if n.IsExported() {
				lines = append(lines, head+", "+n.Name+text)
			}
		}
		if len(f.Names) == 0 {
			lines = append(lines, head+", embeds"+text)
		}
	}
	return lines
}

// signature returns the types of parameters and results, without their names.
func signature(f *ast.FuncType) string {
	text := "(" + types(f.Params) + ")"
	if f.TypeParams != nil {
		text = "[" + types(f.TypeParams) + "]" + text
	}
	if f.Results != nil {
		text += " (" + types(f.Results) + ")"
	}
	return text
}

func types(list *ast.FieldList) string {
	var all []string
	for _, f := range list.List {
		all = append(all, slices.Repeat([]string{source(f.Type)}, cmp.Or(len(f.Names), 1))...)
	}
	return strings.Join(all, ", ")
}

// source returns the source of an expression on one line.
func source(e ast.Expr) string {
	if e == nil {
		return ""
	}
	if f, ok := e.(*ast.FuncType); ok {
		return "func" + signature(f)
	}
	var b bytes.Buffer
	if err := printer.Fprint(&b, token.NewFileSet(), e); err != nil {
		panic(err)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
