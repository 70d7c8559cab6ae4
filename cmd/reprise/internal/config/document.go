package config

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// decoder reads a file.
type decoder struct {
	*report
	source
	lines   []string
	dir     string // base of relative paths
	lookup  func(string) (string, bool)
	aliases map[*ast.AliasNode]ast.Node
	known   map[string]string // contents of references, so that one configuration reads a file once
}

func (r *report) decoder(s source, lookup func(string) (string, bool)) *decoder {
	s.data = bytes.TrimPrefix(s.data, []byte("\ufeff")) // byte order mark of some editors
	d := &decoder{report: r, source: s, lines: splitLines(s.data), dir: filepath.Dir(s.name), lookup: lookup, known: map[string]string{}}
	r.files = append(r.files, file{s.name, excerpts{source: d.lines}})
	return d
}

// file returns the keys of the top level.
func (d *decoder) file() (*fields, bool) {
	root, ok := d.document()
	if !ok {
		return nil, false
	}
	return root.fields(theFile)
}

// failAt reports a problem. It always returns false, so that readers can return its result.
func (d *decoder) failAt(at Position, format string, args ...any) bool {
	if at.Line < 1 {
		at = d.at(1, 1)
	}
	d.problems = append(d.problems, Problem{at, d.masked(fmt.Sprintf(format, args...))})
	return false
}

// maxDepth is the maximum nesting of lists and mappings. Configurations need far less, and the recursive parser can
// handle this depth.
const maxDepth = 200

// theFile is the name of the top level in problems.
const theFile = "the file"

// at returns a position in the file.
func (d *decoder) at(line, column int) Position { return Position{d.name, line, column} }

// document parses the content and returns its only document.
func (d *decoder) document() (value, bool) {
	start := d.at(1, 1)
	for i, line := range d.lines {
		if !utf8.ValidString(line) || strings.Contains(line, "\x00") {
			d.failAt(d.at(i+1, 1), "the file must be in UTF-8: save it in this encoding")
			return value{}, false
		}
	}
	if line, deep := tooDeep(d.lines); deep {
		d.failAt(d.at(line, 1), "lists and mappings must not be nested more than %d deep", maxDepth)
		return value{}, false
	}
	file, err := parseYAML(d.data)
	if err != nil {
		d.syntax(err)
		return value{}, false
	}
	d.aliases = map[*ast.AliasNode]ast.Node{}
	defer d.hide(file) // after the aliases are resolved
	var docs []*ast.DocumentNode
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if _, directive := doc.Body.(*ast.DirectiveNode); !directive {
			docs = append(docs, doc)
		}
	}
	switch {
	case len(docs) == 0:
		d.failAt(start, "the file is empty; write at least\nworkers:\n  - queue: NAME\n    exec: [PROGRAM]")
		return value{}, false
	case len(docs) > 1:
		d.failAt(d.position(docs[1].Body), "the file must contain one document: remove --- and the lines after it")
		return value{}, false
	}
	before := len(d.problems)
	ast.Walk(&anchors{decoder: d, named: map[string]ast.Node{}}, docs[0].Body)
	if len(d.problems) > before {
		return value{}, false // aliases without an anchor would cause misleading problems
	}
	return d.value(theFile, docs[0].Body), true
}

// parseYAML calls the parser and recovers from panics, because the parser is a third-party package and the input is
// arbitrary.
func parseYAML(data []byte) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("the parser failed")
		}
	}()
	return parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
}

func (d *decoder) syntax(err error) {
	at, text := d.at(1, 1), err.Error()
	var located interface {
		GetMessage() string
		GetToken() *token.Token
	}
	if errors.As(err, &located) {
		text = located.GetMessage()
		if t := located.GetToken(); t != nil && t.Position != nil {
			at = d.at(t.Position.Line, t.Position.Column)
		}
	}
	if strings.Contains(text, "\t") {
		text = "tabs must not be used as indentation: use spaces"
	}
	d.failAt(at, "file is not valid YAML: %s", text)
}

// anchors resolves each alias to the last preceding anchor with the same name.
type anchors struct {
	*decoder
	named map[string]ast.Node
}

// Visit implements [ast.Visitor].
func (a *anchors) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.AnchorNode:
		if n.Name != nil && n.Value != nil {
			a.named[n.Name.GetToken().Value] = n.Value
		}
	case *ast.AliasNode:
		if n.Value == nil {
			a.failAt(a.position(n), "an alias needs a name; write *NAME")
			return nil
		}
		name := n.Value.GetToken().Value
		target, found := a.named[name]
		if !found {
			a.failAt(a.position(n), "an alias needs an anchor; write the same name after & before an earlier value, or put the string in quotes")
			return nil
		}
		a.aliases[n] = target
	}
	return a
}

// tooDeep returns the line at which the nesting may exceed maxDepth. It counts brackets, even in quotes and comments,
// and also returns a line with too much indentation or too many indicators.
func tooDeep(lines []string) (line int, deep bool) {
	depth := 0
	for i, l := range lines {
		begun := 0
		for _, r := range l {
			switch r {
			case '[', '{':
				depth++
			case ']', '}':
				depth = max(0, depth-1)
			case '-', '?', ':', '&', '!', '*':
				begun++
			}
		}
		indent := len(l) - len(strings.TrimLeft(l, " \t"))
		if depth > maxDepth || begun > 10*maxDepth || indent > 10*maxDepth {
			return i + 1, true
		}
	}
	return 0, false
}

// position returns the start of a node.
func (d *decoder) position(n ast.Node) Position {
	var t *token.Token
	switch n := n.(type) {
	case nil:
	case *ast.MappingNode:
		// The token of a block mapping is the first colon.
		t = n.Start
		if !n.IsFlowStyle && len(n.Values) > 0 {
			t = n.Values[0].Key.GetToken()
		}
	case *ast.MappingValueNode:
		t = n.Key.GetToken()
	default:
		t = n.GetToken()
	}
	if t == nil || t.Position == nil {
		return Position{}
	}
	return d.at(t.Position.Line, t.Position.Column)
}
