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
	maxRootFiles    = 27  // of package reprise, without tests
	maxFiles        = 35  // of any other package, without tests
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
		most := maxFiles
		if name == "." {
			most = maxRootFiles
		}
		if len(p.GoFiles) > most {
			report("files of "+name, "got %d files, want at most %d (divide the package)", len(p.GoFiles), most)
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
		case comment > maxCommentLines:
			report("package comment of "+name, "got %d lines, want at most %d", comment, maxCommentLines)
		case comment == 0 && len(p.GoFiles) > 0:
			report("package comment of "+name, "comment not found (state purpose, guarantees and permitted imports)")
		}
	}
	return found, nil
}
