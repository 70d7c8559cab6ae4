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

// message is a string that a user reads: an error, a log, output of a command, or a label of a template.
type message struct {
	lines
	s      string
	broken []string // names of the rules that it breaks
	advice []string
}

func (s *source) inComment(line int) bool {
	return s.comments == nil || slices.ContainsFunc(s.comments, func(l lines) bool { return l.first <= line && line <= l.last })
}

// messageAt returns the innermost string on a line, or nil.
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

// countWords counts the words of a text: the parts between spaces that have a letter.
func countWords(s string) (n int) {
	for field := range strings.FieldsSeq(s) {
		if strings.ContainsFunc(field, unicode.IsLetter) {
			n++
		}
	}
	return n
}

// readGo reads the comments and the messages of a Go file. It leaves out the messages of tests.
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
			if !strings.HasPrefix(line, "\t") { // no code
				s.words += countWords(line)
			}
		}
	}
	if strings.HasSuffix(name, "_test.go") {
		return s, nil
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

// messageFuncs are the functions whose strings a user reads: constructors of errors, logs, and output of commands.
var messageFuncs = map[string]bool{
	"errors.New": true, "fmt.Errorf": true, "usagef": true,
	".fail": true, ".refuse": true, ".problem": true, "badRequest": true, ".BadRequest": true,
	".Debug": true, ".Info": true, ".Warn": true, ".Error": true,
	".DebugContext": true, ".InfoContext": true, ".WarnContext": true, ".ErrorContext": true,
	"fmt.Fprintf": true, "fmt.Fprintln": true, "fmt.Printf": true, "fmt.Println": true,
}

// called returns the name of a called function: name, package.name for errors and fmt, or .name.
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

// readMarkdown counts the words outside of code blocks and comments.
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

// readTemplate reads the text and the visible attributes of an HTML template, line by line.
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

// replaceKeepingLines replaces matches and keeps their line breaks.
func replaceKeepingLines(r *regexp.Regexp, content, by string) string {
	return string(r.ReplaceAllFunc([]byte(content), func(b []byte) []byte {
		return append([]byte(by), bytes.Repeat([]byte("\n"), bytes.Count(b, []byte("\n")))...)
	}))
}
