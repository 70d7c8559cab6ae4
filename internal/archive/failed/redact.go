package failed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/reprisemq/reprise/internal/tablejson"
	"github.com/reprisemq/reprise/topology"
)

// Rule selects a secret in messages. Set exactly one of the fields.
type Rule struct {
	// Header is the name of a header at the top level or in a nested table. Case is ignored.
	Header string

	// Path is the location of the secret in a JSON body: names separated by dots, with "*" for any name or index.
	// Examples: "card.number", "items.*.token". Redact hides the whole value at the path.
	Path string
}

// Validate returns an error unless exactly one field is set.
func (r Rule) Validate() error {
	if (r.Header == "") == (r.Path == "") {
		return Invalid("rule must have either a Header or a Path: got %+v", r)
	}
	return nil
}

// maxJSONDepth limits the recursion in redactor.value.
const maxJSONDepth = 1000

// Redacted replaces a secret.
const Redacted = "[redacted]"

// Redact returns a copy of the message in which "[redacted]" replaces secrets. The copy shares memory with m, which is
// not modified. If rules is empty, Redact returns m. If any rule has a Path, Redact hides the whole body if it is
// encoded (Properties.ContentEncoding), for example with gzip, or if it is not valid JSON but has a JSON content type
// or begins like JSON.
func (m *Message) Redact(rules []Rule) *Message {
	if len(rules) == 0 {
		return m
	}
	out := *m
	out.Content = m.Content.Redact(rules)
	if m.Edited != nil {
		edited := m.Edited.Redact(rules)
		out.Edited = &edited
	}
	return &out
}

// Redact applies the rules to a Content, such as the content of a Revision. See Message.Redact.
func (c Content) Redact(rules []Rule) Content {
	names := HiddenNames(rules)
	var paths [][]string
	for _, r := range rules {
		if r.Path != "" {
			paths = append(paths, strings.Split(r.Path, "."))
		}
	}
	if len(names) > 0 {
		c.Headers = redactTable(c.Headers, names)
	}
	switch {
	case len(paths) == 0 || len(c.Body) == 0:
	case !c.Properties.Plain():
		c.Body = []byte(Redacted) // the body is encoded, and a viewer may decode it
	case isJSON(c):
		c.Body = redactJSON(c.Body, paths)
	}
	return c
}

// HiddenNames returns the names of the headers that the rules hide, in lower case.
func HiddenNames(rules []Rule) map[string]bool {
	names := make(map[string]bool)
	for _, r := range rules {
		if r.Header != "" {
			names[strings.ToLower(r.Header)] = true
		}
	}
	return names
}

// isRedacted reports whether the rules hide a part of c.
func (c Content) isRedacted(rules []Rule) bool {
	shown := c.Redact(rules)
	return !bytes.Equal(shown.Body, c.Body) || !tablejson.Equal(shown.Headers, c.Headers)
}

func redactTable(t topology.Table, names map[string]bool) topology.Table {
	t = maps.Clone(t)
	for name, v := range t {
		if names[strings.ToLower(name)] {
			t[name] = Redacted
		} else {
			t[name] = redactValue(v, names)
		}
	}
	return t
}

func redactValue(v any, names map[string]bool) any {
	switch x := v.(type) {
	case topology.Table:
		return redactTable(x, names)
	case map[string]any:
		return redactTable(x, names)
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = redactValue(e, names)
		}
		return out
	}
	return v
}

// HiddenTexts yields the scalar values that Redact hides in a value of a header table. The argument hidden reports whether it hides the
// whole value.
func HiddenTexts(v any, names map[string]bool, hidden bool, yield func(string)) {
	table := func(t map[string]any) {
		for name, v := range t {
			HiddenTexts(v, names, hidden || names[strings.ToLower(name)], yield)
		}
	}
	switch x := v.(type) {
	case topology.Table:
		table(x)
	case map[string]any:
		table(x)
	case []any:
		for _, e := range x {
			HiddenTexts(e, names, hidden, yield)
		}
	case []byte:
		HiddenTexts(string(x), names, hidden, yield)
	default:
		if text, ok := tablejson.Text(x); ok && hidden {
			yield(text)
		}
	}
}

func isJSON(c Content) bool {
	if strings.Contains(strings.ToLower(c.Properties.ContentType), "json") {
		return true
	}
	b := bytes.TrimLeft(c.Body, " \t\r\n\ufeff")
	return len(b) > 0 && (b[0] == '{' || b[0] == '[')
}

// redactJSON replaces the values at the paths. It preserves all other bytes: order, numbers, white space and
// duplicate names.
func redactJSON(body []byte, paths [][]string) []byte {
	w := redactor{in: body, d: json.NewDecoder(bytes.NewReader(body))}
	w.d.UseNumber()
	err := w.value(paths, 0)
	if err == nil {
		if _, end := w.d.Token(); end != io.EOF {
			err = errors.New("body must have exactly one JSON value")
		}
	}
	if err != nil {
		return []byte(Redacted)
	}
	return append(w.out, body[w.copied:]...)
}

type redactor struct {
	in, out []byte
	copied  int64 // the input is processed up to this offset
	d       *json.Decoder
}

// value processes one JSON value. paths contains the paths to hide, relative to this value. An empty path hides the
// value itself.
func (w *redactor) value(paths [][]string, depth int) error {
	if depth > maxJSONDepth {
		return errors.New("JSON is nested too deeply")
	}
	hide := false
	for _, p := range paths {
		hide = hide || len(p) == 0
	}
	if hide {
		before := w.d.InputOffset()
		var raw json.RawMessage
		if err := w.d.Decode(&raw); err != nil {
			return err
		}
		end := w.d.InputOffset()
		// The decoder has skipped white space and a colon or a comma before the value.
		start := end - int64(len(raw))
		if start < before {
			return errors.New("offset of the decoder does not match the value")
		}
		w.out = append(w.out, w.in[w.copied:start]...)
		w.out = append(w.out, `"`+Redacted+`"`...)
		w.copied = end
		return nil
	}
	token, err := w.d.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		for w.d.More() {
			name, err := w.d.Token()
			if err != nil {
				return err
			}
			if err := w.value(below(paths, fmt.Sprint(name)), depth+1); err != nil {
				return err
			}
		}
	case json.Delim('['):
		for i := 0; w.d.More(); i++ {
			if err := w.value(below(paths, fmt.Sprint(i)), depth+1); err != nil {
				return err
			}
		}
	default:
		return nil
	}
	_, err = w.d.Token() // the closing delimiter
	return err
}

// below returns the remaining parts of the paths that begin with name.
func below(paths [][]string, name string) (out [][]string) {
	for _, p := range paths {
		if len(p) > 0 && (p[0] == "*" || p[0] == name) {
			out = append(out, p[1:])
		}
	}
	return out
}
