package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strings"
)

const (
	maxFileLines    = 500 // of a file that is not generated
	maxRootFiles    = 20  // of package reprise, without tests
	maxCommentLines = 40  // of a package comment
)

// checkShape checks the files and package comments of packages. root is the folder of the module.
func checkShape(root string, packages []Package) (found []Violation, err error) {
	report := func(what, format string, args ...any) {
		found = append(found, Violation{what, fmt.Sprintf(format, args...)})
	}
	for _, p := range packages {
		if !ours(p.ImportPath) {
			continue
		}
		name := short(p.ImportPath)
		if name == "." && len(p.GoFiles) > maxRootFiles {
			report("files of "+name, "got %d files, want at most %d", len(p.GoFiles), maxRootFiles)
		}
		inside, own := strings.Contains("/"+name+"/", "/internal/"), path.Base(path.Dir(name)) == path.Base(name)
		if strings.HasPrefix(name, "examples/") && p.Name != "main" && !inside && !own {
			report("example "+name, "an example must be a program, in an internal folder, or the package of its example, such as examples/x/x")
		}
		comment := 0
		for _, file := range append(p.GoFiles, p.testFiles()...) {
			content, err := os.ReadFile(filepath.Join(root, name, file))
			if err != nil {
				return nil, err
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, content, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				return nil, err
			}
			if parsed.Doc != nil && !strings.HasSuffix(file, "_test.go") {
				comment = max(comment, strings.Count(parsed.Doc.Text(), "\n"))
			}
			if n := bytes.Count(content, []byte("\n")); n > maxFileLines && !ast.IsGenerated(parsed) {
				report(path.Join(name, file), "got %d lines, want at most %d (split the file by responsibility)", n, maxFileLines)
			}
		}
		switch {
		case comment > maxCommentLines && !strings.HasPrefix(name, "examples/"):
			report("package comment of "+name, "got %d lines, want at most %d", comment, maxCommentLines)
		case comment == 0 && len(p.GoFiles) > 0:
			report("package comment of "+name, "comment not found (state purpose, guarantees and permitted imports)")
		}
	}
	return found, nil
}
