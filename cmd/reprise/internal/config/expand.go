package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

var (
	variable  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	reference = regexp.MustCompile(`\$\$\{|\$\{[^}]*\}?`)
)

// maxSecret is the maximum size of a file of ${file:PATH}. A larger file is probably a mistake.
const maxSecret = 64 << 10

// expanded returns the value with the references in its text replaced, if it is a string. If a reference is invalid,
// expanded reports it, and the result reports no further problems.
func (v value) expanded() value {
	written, ok := textOf(v.node)
	if !ok || v.written != nil || !strings.Contains(written, "${") {
		return v
	}
	v.written = &written
	text, secrets, err := v.replace(written, func(_ int, s string) string { return s })
	if err != nil {
		v.fail("%s %v", v.name, err)
		v.broken = true
	}
	v.secrets = secrets
	v.node = &ast.StringNode{BaseNode: &ast.BaseNode{}, Token: v.node.GetToken(), Value: text}
	return v
}

// textOf returns the text of a string.
func textOf(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	}
	return "", false
}

// replace replaces the references in a text. It passes each content, with the position of its reference, to the function
// put, whose result replaces the reference. It also returns the contents.
func (d *decoder) replace(s string, put func(at int, content string) string) (text string, contents []string, err error) {
	var b strings.Builder
	end := 0
	for _, m := range reference.FindAllStringIndex(s, -1) {
		b.WriteString(s[end:m[0]])
		end = m[1]
		ref := s[m[0]:m[1]]
		if ref == "$${" {
			b.WriteString("${")
			continue
		}
		content, found := d.known[ref]
		if !found {
			if content, err = d.content(ref); err != nil {
				return "", nil, err
			}
			d.known[ref] = content
			d.reveal(ref, content)
		}
		contents = append(contents, content)
		b.WriteString(put(m[0], content))
	}
	b.WriteString(s[end:])
	return b.String(), contents, nil
}

// content returns the content of a reference.
func (d *decoder) content(ref string) (string, error) {
	name, closed := strings.CutSuffix(ref[len("${"):], "}")
	if !closed {
		return "", errors.New("has ${ without }; write ${NAME}, or $${ for the characters ${")
	}
	if path, isFile := strings.CutPrefix(name, "file:"); isFile {
		return d.secretFile(path)
	}
	name, otherwise, optional := strings.Cut(name, ":-")
	if !variable.MatchString(name) {
		return "", errors.New("has ${…} without the name of an environment variable; write ${NAME}, ${file:PATH}, or $${ for the characters ${")
	}
	content, set := d.lookup(name)
	switch {
	case strings.Contains(otherwise, "${"): // the } of the inner reference has ended the outer one
		return "", fmt.Errorf("has ${ in the default of %s, which cannot contain a reference: write the default itself", name)
	case optional && content == "":
		return otherwise, nil
	case !set:
		return "", fmt.Errorf("needs the environment variable %s, which is not set: set it, or write ${%[1]s:-default}, or $${ for the characters ${", name)
	}
	return content, nil
}

// secretFile returns the content of a file without the line break at its end.
func (d *decoder) secretFile(path string) (string, error) {
	if path == "" {
		return "", errors.New("has ${file:} without a path; write ${file:/run/secrets/NAME}")
	}
	shown := path
	if !filepath.IsAbs(path) {
		path = filepath.Join(d.dir, path)
	}
	f, err := os.Open(path)
	var data []byte
	if err == nil {
		defer f.Close()
		data, err = io.ReadAll(io.LimitReader(f, maxSecret+1)) // a device may be endless
	}
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = failed.Err
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("needs the file %s: %w (create it, or write another path; a relative path is relative to the configuration file)", shown, err)
	case len(data) > maxSecret:
		return "", fmt.Errorf("needs the file %s, which exceeds %d bytes: write the path of a file that contains only the value", shown, maxSecret)
	}
	data = bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r"))
	if len(data) == 0 {
		return "", fmt.Errorf("needs the file %s, which is empty: write the value to it", shown)
	}
	return string(data), nil
}

// scalar returns the node of a value whose text consists of references, with the type of its content. A reference in
// braces has to be in quotes, so that quotes do not make the content a string.
func (v value) scalar() ast.Node {
	if v.written == nil {
		return v.node
	}
	text, _ := textOf(v.node)
	file, err := parseYAML([]byte(text))
	if err != nil || len(file.Docs) != 1 {
		return v.node
	}
	switch n := file.Docs[0].Body.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		if n.GetToken().Value == strings.TrimSpace(text) {
			return retyped(n, v.node.GetToken())
		}
	}
	return v.node
}

// retyped returns a scalar at the position of the token t.
func retyped(n ast.Node, t *token.Token) ast.Node {
	at := *n.GetToken()
	at.Position, at.Prev, at.Next = t.Position, nil, nil
	switch n := n.(type) {
	case *ast.IntegerNode:
		n.Token = &at
	case *ast.FloatNode:
		n.Token = &at
	case *ast.BoolNode:
		n.Token = &at
	}
	return n
}

// address reads the text of a URL. References in the user and the password of the URL need no percent-encoding. A single
// reference for both contains the colon, so that it has to be percent-encoded.
func (v value) address(example string) (string, bool) {
	s, ok := v.text(example)
	if !ok || v.written == nil {
		return s, ok
	}
	begin, end := userinfo(*v.written)
	s, _, err := v.replace(*v.written, func(at int, content string) string {
		if begin <= at && at < end {
			return strings.ReplaceAll(url.QueryEscape(content), "+", "%20")
		}
		return content
	})
	return s, err == nil
}

// userinfo returns the position of the user and the password in the text of a URL with references, or 0, 0.
func userinfo(written string) (begin, end int) {
	plain := reference.ReplaceAllStringFunc(written, func(ref string) string { return strings.Repeat("x", len(ref)) })
	i := strings.Index(plain, "://")
	if i < 0 {
		return 0, 0
	}
	begin = i + len("://")
	authority := plain[begin:]
	if j := strings.IndexAny(authority, "/?#"); j >= 0 {
		authority = authority[:j]
	}
	at := strings.LastIndexByte(authority, '@')
	if at < 0 || !strings.Contains(authority[:at], ":") {
		return 0, 0
	}
	return begin, begin + at
}

// reveal makes problems show a reference instead of its content.
func (r *report) reveal(ref, content string) {
	const shortest = 4 // shorter contents are parts of other words
	if len(content) >= shortest {
		r.revealed = append(r.revealed, [2]string{content, ref})
	}
}

// masked replaces the contents of references in the text of a problem, the longest first, because one may begin with another.
func (r *report) masked(text string) string {
	slices.SortStableFunc(r.revealed, func(a, b [2]string) int { return cmp.Compare(len(b[0]), len(a[0])) })
	var all []string
	for _, x := range r.revealed {
		all = append(all, x[0], x[1])
	}
	return strings.NewReplacer(all...).Replace(text)
}
