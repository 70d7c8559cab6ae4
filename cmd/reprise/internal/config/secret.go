package config

import (
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// excerpts contains the lines of a file and the parts to hide, because logs show excerpts and files contain
// passwords. The end of a malformed password is unknown, so excerpts hide whole values, depending on their keys.
type excerpts struct {
	source []string
	hidden map[int][]span // by index of the line
	known  bool           // the file could be parsed, so hidden is complete
}

// span is a part of a line, in rune indexes from 0. An end of -1 is the end of the line.
type span struct{ begin, end int }

// line returns the hidden spans of a line. It returns false if errors must not contain the line.
func (e excerpts) line(i int) ([]span, bool) {
	if e.known {
		return append(slices.Clone(e.hidden[i]), urls(e.source[i])...), true // URLs in comments
	}
	return e.unparsed(i)
}

// urls returns the spans of a line that may contain the passwords of URLs. A password that is not correctly
// percent-encoded can contain any character.
func urls(line string) []span {
	var all []span
	if i := strings.Index(line, "://"); i >= 0 {
		if j := strings.LastIndexByte(line, '@'); j > i {
			all = append(all, span{runes(line[:i+3]), runes(line[:j])})
		}
	}
	if m := passwordIs.FindStringIndex(line); m != nil {
		all = append(all, span{runes(line[:m[1]]), -1})
	}
	return all
}

func runes(s string) int { return len([]rune(s)) }

var (
	passwordIs = regexp.MustCompile(`(?i)password=`)
	// confidential matches names of secrets.
	confidential = regexp.MustCompile(`(?i)passw|passphrase|secret|token|credential|authorization|api.?key|dsn`)
	// holdsSecrets matches keys whose values are hidden, or contain such keys.
	holdsSecrets = regexp.MustCompile(`(?i)\b(headers?|users?|env|environment|broker|amqp|duplicates|archive|management|store|url|uri|endpoint)["']?\s*(:|$)`)
)

// unparsed is like line, for a file that could not be parsed. It shows only lines that are known to be harmless.
func (e excerpts) unparsed(i int) ([]span, bool) {
	line := e.source[i]
	spans := urls(line)
	masked, _ := mask([]rune(line), spans, 0)
	rest := passwordIs.ReplaceAllString(strings.ReplaceAll(string(masked), "://…@", ""), "")
	if strings.Contains(rest, "://") || strings.Contains(rest, "@") || confidential.MatchString(rest) {
		return nil, false
	}
	if holdsSecrets.MatchString(line) && len(spans) == 0 {
		return nil, false
	}
	// Values may follow on lines below their key, and a text may have several lines.
	for depth := indent(line); i > 0 && depth > 0; {
		i--
		above := e.source[i]
		if strings.TrimSpace(above) == "" || indent(above) >= depth {
			continue
		}
		depth = indent(above)
		if holdsSecrets.MatchString(above) {
			return nil, false
		}
	}
	return spans, true
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " \t-")) }

// secretKeys are the keys whose values are hidden completely, including nested values.
var secretKeys = []string{"broker", "store", "url", "endpoint", "management", "headers", "env", "secret", "users"}

// secretTexts are the keys whose values are hidden unless they are mappings.
var secretTexts = []string{"http", "duplicates", "archive", "telemetry"}

// among reports whether key is a word in words, or a synonym or a misspelling of such a word, because a misspelled key
// must not reveal a password.
func among(key string, words []string) bool {
	key = strings.ToLower(strings.ReplaceAll(key, "-", "_"))
	return slices.ContainsFunc(words, func(w string) bool {
		return edits(key, w) <= 1 || slices.ContainsFunc(synonyms[w], func(s string) bool { return s == key || len(s) > 3 && edits(key, s) <= 1 })
	})
}

// looksSecret reports whether s is hidden regardless of its key.
func looksSecret(s string) bool {
	return strings.Contains(s, "://") && strings.Contains(s, "@") || passwordIs.MatchString(s)
}

// hide computes the hidden spans of a parsed file.
func (d *decoder) hide(file *ast.File) {
	shown := &d.files[indexOf(d.files, d.name)].excerpts
	*shown = excerpts{d.lines, map[int][]span{}, true}
	h := hider{excerpts: *shown, aliases: d.aliases, seen: map[ast.Node]bool{}}
	for _, doc := range file.Docs {
		ast.Walk(h, doc.Body)
	}
}

// hider hides the secret parts of a node, or the whole node.
type hider struct {
	excerpts
	secret  bool
	aliases map[*ast.AliasNode]ast.Node
	seen    map[ast.Node]bool
}

// Visit implements [ast.Visitor].
func (h hider) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return nil
	case *ast.MappingNode, *ast.SequenceNode:
		return h
	case *ast.MappingValueNode:
		key := n.Key.GetToken()
		if shownKey(key.Value) != key.Value {
			h.conceal(key, key)
		}
		_, mapping := resolved(n.Value, h.aliases).(ast.MapNode)
		h.secret = h.secret || among(key.Value, secretKeys) || among(key.Value, secretTexts) && !mapping
		ast.Walk(h, n.Value)
		return nil
	case *ast.AnchorNode, *ast.TagNode:
		if h.secret {
			h.conceal(n.GetToken(), n.GetToken())
		}
		return h
	case *ast.AliasNode:
		target, found := h.aliases[n]
		switch {
		case !h.secret:
		case !found: // a password may begin with *
			h.conceal(n.Start, n.Start)
			return h
		case !h.seen[target]: // an alias may refer to itself
			h.seen[target] = true
			ast.Walk(h, target)
		}
		return nil
	case *ast.LiteralNode:
		if h.secret || looksSecret(n.Value.Value) {
			h.conceal(n.Start, n.Value.GetToken())
		}
		return nil
	}
	if t := n.GetToken(); t != nil && (h.secret || looksSecret(t.Value)) {
		h.conceal(t, t)
	}
	return nil
}

// conceal hides the text from the token first up to the token after last. If the positions of the parser are wrong, it
// hides too much rather than too little.
func (h hider) conceal(first, last *token.Token) {
	if first == nil || first.Position == nil || last == nil {
		return
	}
	line, begin := first.Position.Line-1, first.Position.Column-1
	if !h.begins(line, begin, first) {
		begin = 0
	}
	lastLine, end := len(h.source)-1, -1
	if next := last.Next; next != nil && next.Position != nil {
		lastLine, end = next.Position.Line-1, next.Position.Column-1
		if !h.begins(lastLine, end, next) {
			end = -1
		}
	}
	for i := max(0, line); i <= min(lastLine, len(h.source)-1); i++ {
		s := span{0, -1}
		if i == line {
			s.begin = begin
		}
		if i == lastLine {
			s.end = end
		}
		h.hidden[i] = append(h.hidden[i], s)
	}
}

// begins reports whether a token begins at the position that the parser reported.
func (h hider) begins(line, column int, t *token.Token) bool {
	if line < 0 || line >= len(h.source) {
		return false
	}
	text, r := []rune(strings.TrimSpace(t.Origin)), []rune(h.source[line])
	return column >= 0 && column < len(r) && len(text) > 0 && r[column] == text[0]
}

// shownKey returns the part of a key that problems may show. If the space after the colon is missing, the key
// contains the value: "broker:amqp://…", "PASSWORD=…".
func shownKey(key string) string {
	if i := strings.IndexAny(key, " :=@"); i >= 0 {
		return key[:i] + "…"
	}
	return key
}
