package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// source is the prose of a file.
type source struct {
	words     int
	generated bool
	comments  []lines // nil means that the whole file is prose
	messages  []*message
}

type lines struct{ first, last int }

// message is a string outside of documents and Go comments: an error, a log, output of a command or a test, the name
// of a test, a label in a template, or a comment in a script.
type message struct {
	lines
	s      string
	broken []string // names of the broken rules
	advice []string
}

func (s *source) inComment(line int) bool {
	return s.comments == nil || slices.ContainsFunc(s.comments, func(l lines) bool { return l.first <= line && line <= l.last })
}

// messageAt returns the innermost message on a line, or nil.
func (s *source) messageAt(line int) (found *message) {
	for _, t := range s.messages {
		if t.first <= line && line <= t.last {
			found = t
		}
	}
	return found
}

func (s *source) addMessage(first, last int, value string) {
	if countWords(value) < 2 {
		return
	}
	t := &message{lines: lines{first, last}, s: value}
	t.broken, t.advice = broken(value)
	s.messages = append(s.messages, t)
}

// countWords counts the words of a text. A word is a part between spaces that contains a letter.
func countWords(s string) (n int) {
	for field := range strings.FieldsSeq(s) {
		if strings.ContainsFunc(field, unicode.IsLetter) {
			n++
		}
	}
	return n
}

// readGo reads the comments, the messages and the names of tests of a Go file.
func readGo(name string, content []byte) (*source, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s := &source{generated: ast.IsGenerated(file), comments: []lines{}}
	for _, group := range file.Comments {
		s.comments = append(s.comments, lines{set.Position(group.Pos()).Line, set.Position(group.End()).Line})
		for line := range strings.SplitSeq(group.Text(), "\n") {
			if !strings.HasPrefix(line, "\t") { // a line of code begins with a tab
				s.words += countWords(line)
			}
		}
	}
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasSuffix(name, "_test.go") {
			if words, ok := testName(f.Name.Name); ok {
				s.addMessage(set.Position(f.Pos()).Line, set.Position(f.Name.End()).Line, words)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || !messageFuncs[called(call)] {
			return true
		}
		for _, arg := range call.Args {
			if value := constant(arg); value != "" {
				s.addMessage(set.Position(arg.Pos()).Line, set.Position(arg.End()).Line, value)
			}
		}
		return true
	})
	return s, nil
}

// capital matches a word in a name.
var capital = regexp.MustCompile(`[A-Z]+[a-z0-9]*`)

// testName returns the name of a test as lower-case words. It returns false if the name is not the name of a test.
func testName(name string) (string, bool) {
	for _, kind := range []string{"Test", "Fuzz", "Benchmark"} {
		if rest, ok := strings.CutPrefix(name, kind); ok {
			return strings.ToLower(strings.TrimSpace(capital.ReplaceAllString(rest, " $0"))), true
		}
	}
	return "", false
}

// messageFuncs lists the functions whose string arguments are messages. The functions create errors, logs, and output of
// commands and tests.
var messageFuncs = map[string]bool{
	"errors.New": true, "fmt.Errorf": true, "usagef": true,
	".fail": true, ".refuse": true, ".problem": true, "badRequest": true, ".BadRequest": true,
	".Debug": true, ".Info": true, ".Warn": true, ".Error": true,
	".DebugContext": true, ".InfoContext": true, ".WarnContext": true, ".ErrorContext": true,
	".Errorf": true, ".Fatal": true, ".Fatalf": true, ".Log": true, ".Logf": true, ".Skip": true, ".Skipf": true,
	"fmt.Fprintf": true, "fmt.Fprintln": true, "fmt.Printf": true, "fmt.Println": true,
}

// called returns the name of the called function as package.name (for errors and fmt), .name (for other selectors) or
// name.
func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if pkg, ok := f.X.(*ast.Ident); ok && (pkg.Name == "errors" || pkg.Name == "fmt") {
			return pkg.Name + "." + f.Sel.Name
		}
		return "." + f.Sel.Name
	}
	return ""
}

// constant joins the string literals of an expression.
func constant(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(e.Value)
		return s
	case *ast.BinaryExpr:
		return constant(e.X) + constant(e.Y)
	case *ast.ParenExpr:
		return constant(e.X)
	}
	return ""
}

var (
	markdownCode    = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```[ \t]*$")
	markdownOff     = regexp.MustCompile(`(?s)<!--\s*vale off\s*-->.*?(?:<!--\s*vale on\s*-->|\z)`)
	markdownComment = regexp.MustCompile(`(?s)<!--.*?-->`)
)

// readMarkdown counts the words outside code blocks, comments and sections for which Vale is off.
func readMarkdown(content string) *source {
	for _, r := range []*regexp.Regexp{markdownOff, markdownCode, markdownComment} {
		content = r.ReplaceAllString(content, "")
	}
	return &source{words: countWords(content)}
}

var (
	templateCode   = regexp.MustCompile(`(?s)\{\{.*?\}\}`)
	templateHidden = regexp.MustCompile(`(?s)<(?:script|style|svg)\b.*?</(?:script|style|svg)>|<!--.*?-->`)
	templateInline = regexp.MustCompile(`</?(?:a|b|strong|em|code|small|span)\b[^>]*>`)
	templateTag    = regexp.MustCompile(`<[^>]*>`)
	templateLabel  = regexp.MustCompile(`(?:title|aria-label|placeholder|alt)="([^"]+)"`)
)

// readTemplate reads the visible words and attributes of an HTML template, line by line.
func readTemplate(content string) *source {
	content = replaceKeepingLines(templateCode, content, "…")
	content = replaceKeepingLines(templateHidden, content, "")
	s := new(source)
	for i, line := range strings.Split(content, "\n") {
		for _, m := range templateLabel.FindAllStringSubmatch(line, -1) {
			s.addMessage(i+1, i+1, m[1])
		}
	}
	content = replaceKeepingLines(templateInline, content, " ")
	content = replaceKeepingLines(templateTag, content, "\x00")
	for i, line := range strings.Split(content, "\n") {
		for part := range strings.SplitSeq(line, "\x00") {
			s.addMessage(i+1, i+1, strings.Join(strings.Fields(part), " "))
		}
	}
	return s
}

var (
	hashComment  = regexp.MustCompile(`(?:^|[ \t])#+ (.*)$`)
	slashComment = regexp.MustCompile(`(?:^|[ \t])(?://|/\*|\*) (.*?)(?:\*/)?$`)
)

// readScript reads the comments of a file. Consecutive lines that contain only a comment form one message.
func readScript(content string, comment *regexp.Regexp) *source {
	s := &source{comments: []lines{}}
	var block []string
	flush := func(last int) {
		s.addMessage(last-len(block)+1, last, strings.Join(block, " "))
		block = nil
	}
	all := strings.Split(content, "\n")
	for i, line := range all {
		m := comment.FindStringSubmatchIndex(line)
		whole := m != nil && strings.TrimSpace(line[:m[0]]) == ""
		if !whole {
			flush(i) // the previous line was the last line of the block
		}
		if m == nil {
			continue
		}
		text := line[m[2]:m[3]]
		s.words += countWords(text)
		block = append(block, text)
		if !whole {
			flush(i + 1)
		}
	}
	flush(len(all))
	return s
}

// replaceKeepingLines replaces matches and keeps their line breaks.
func replaceKeepingLines(r *regexp.Regexp, content, by string) string {
	return string(r.ReplaceAllFunc([]byte(content), func(b []byte) []byte {
		return append([]byte(by), bytes.Repeat([]byte("\n"), bytes.Count(b, []byte("\n")))...)
	}))
}
