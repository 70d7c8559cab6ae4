package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the project's folder.
const root = "../.."

// mention matches exported names in documents: topology.Buckets, Policy.Rules or reprise.Config.Logger.
var mention = regexp.MustCompile(`(?:^|[^\w./-])((?:[a-z]+\.)?[A-Z]\w*(?:\.[A-Z]\w*)?)\b`)

// All exported names in the documents are names in public packages, or fields or methods of their types. Documents for
// contributors may also mention names in internal packages.
func TestDocumentsMentionOnlyExistingNames(t *testing.T) {
	public, all := exported(t, false), exported(t, true)
	checked := 0
	walk(t, ".md", func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		known := public
		if strings.Contains(path, "/adr/") || filepath.Dir(path) == root { // for contributors
			known = all
		}
		for n, line := range strings.Split(string(text), "\n") {
			for _, m := range mention.FindAllStringSubmatch(line, -1) {
				owner, name, dotted := strings.Cut(m[1], ".")
				names, ours := known[owner]
				if !dotted || !ours {
					continue
				}
				checked++
				first, second, deep := strings.Cut(name, ".")
				if !names[first] || deep && known[first] != nil && !known[first][second] {
					t.Errorf("%s:%d: %s not found", path, n+1, m[1])
				}
			}
		}
	})
	if checked < 100 {
		t.Errorf("names in the documents: got %d, want at least 100", checked)
	}
}

// sourceFile matches files of the project in documents: a path relative to the root.
var sourceFile = regexp.MustCompile("`((?:[a-z_]+/)*[a-z_]+\\.(?:go|html|js))`")

// All source files that documents for contributors mention exist.
func TestDocumentsMentionOnlyExistingFiles(t *testing.T) {
	checked := 0
	for _, path := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md", "docs/compatibility.md", "docs/guarantees.md"} {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(string(text), "\n") {
			for _, m := range sourceFile.FindAllStringSubmatch(line, -1) {
				checked++
				if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
					t.Errorf("%s:%d: %s not found", path, n+1, m[1])
				}
			}
		}
	}
	if checked < 50 {
		t.Errorf("files in the documents: got %d, want at least 50", checked)
	}
}

// go doc does not show the fields of a type that is an alias for a type in another package. Therefore the comment of such an
// alias lists them.
func TestCommentsOfAliasesListFields(t *testing.T) {
	fields := map[string][]*ast.Ident{} // by package and type
	comments := map[string]string{}     // of aliases in public packages, by the package and name of the other type
	walk(t, ".go", func(path string) {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		public := !strings.Contains(path, "/internal/") && !strings.HasPrefix(path, root+"/examples/")
		for _, d := range file.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.TYPE {
				continue
			}
			for _, s := range decl.Specs {
				spec := s.(*ast.TypeSpec)
				other, ok := spec.Type.(*ast.SelectorExpr)
				switch {
				case !ok:
					fields[file.Name.Name+"."+spec.Name.Name] = members(spec.Type)
				case spec.Assign.IsValid() && public:
					comments[other.X.(*ast.Ident).Name+"."+other.Sel.Name] = decl.Doc.Text() + spec.Doc.Text()
				}
			}
		}
	})
	checked := 0
	for name, comment := range comments {
		for _, field := range fields[name] {
			checked++
			if field.IsExported() && !regexp.MustCompile(`(?m)^\t.*\b`+field.Name+`\b`).MatchString(comment) {
				t.Errorf("comment of the alias for %s: field %s not found", name, field.Name)
			}
		}
	}
	if checked < 15 {
		t.Errorf("fields of aliases: got %d, want at least 15", checked)
	}
}

// exported returns the names that can follow a package name or the name of an exported type. It merges the members of
// types that have the same name.
func exported(t *testing.T, internal bool) map[string]map[string]bool {
	t.Helper()
	known := map[string]map[string]bool{}
	add := func(owner string, names ...*ast.Ident) {
		if known[owner] == nil {
			known[owner] = map[string]bool{}
		}
		for _, n := range names {
			known[owner][n.Name] = true
		}
	}
	walk(t, ".go", func(path string) {
		if strings.HasSuffix(path, "_test.go") || !internal && strings.Contains(path, "/internal/") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		pkg := file.Name.Name
		if pkg == "main" {
			return
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(pkg, d.Name)
				} else if of := receiver(d.Recv.List[0].Type); ast.IsExported(of) {
					add(of, d.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.ValueSpec:
						add(pkg, s.Names...)
					case *ast.TypeSpec:
						add(pkg, s.Name)
						if s.Name.IsExported() {
							add(s.Name.Name, members(s.Type)...)
						}
					}
				}
			}
		}
	})
	return known
}

// receiver returns the name of the type of a method.
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

// members returns the fields of a struct or the methods of an interface. The name of an embedded type is its type name.
func members(e ast.Expr) (names []*ast.Ident) {
	var list *ast.FieldList
	switch e := e.(type) {
	case *ast.StructType:
		list = e.Fields
	case *ast.InterfaceType:
		list = e.Methods
	default:
		return nil
	}
	for _, f := range list.List {
		if len(f.Names) == 0 {
			names = append(names, &ast.Ident{Name: receiver(f.Type)})
		}
		names = append(names, f.Names...)
	}
	return names
}

// walk visits the project's files with the given file name extension.
func walk(t *testing.T, ext string, visit func(path string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != root):
			return filepath.SkipDir
		case !d.IsDir() && strings.HasSuffix(path, ext):
			visit(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
