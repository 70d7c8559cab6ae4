package failed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"strings"

	"github.com/reprisemq/reprise/topology"
)

// Rule names a secret in messages: one of the two is set.
type Rule struct {
	// Header is the name of a header, upper or lower case. In nested tables, too.
	Header string

	// Path is where in a JSON body the secret is: names separated by points, with
	// "*" for any name or index: "card.number", "items.*.token". Everything below it is
	// hidden.
	Path string
}

// Validate reports a rule that says nothing, or twice as much as it may.
func (r Rule) Validate() error {
	if (r.Header == "") == (r.Path == "") {
		return fmt.Errorf("%w: a rule of Redact needs either a Header or a Path, not %+v", ErrInvalid, r)
	}
	return nil
}

// maxJSONDepth bounds the stack.
const maxJSONDepth = 1000

// redacted is in place of a secret.
const redacted = "[redacted]"

// Redact returns the message with "[redacted]" in place of secrets.
// It shares memory with m and changes nothing in it. If there is a rule with a Path, a
// body is hidden as a whole that says it is JSON, or looks like it, and cannot be read,
// and one that is encoded (Properties.ContentEncoding), such as by gzip.
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

// Redact is Message.Redact for a Content, such as that of a Revision.
func (c Content) Redact(rules []Rule) Content {
	names := make(map[string]bool)
	var paths [][]string
	for _, r := range rules {
		if r.Header != "" {
			names[strings.ToLower(r.Header)] = true
		}
		if r.Path != "" {
			paths = append(paths, strings.Split(r.Path, "."))
		}
	}
	if len(names) > 0 {
		c.Headers = redactTable(c.Headers, names)
	}
	switch {
	case len(paths) == 0 || len(c.Body) == 0:
	case !c.Properties.plain():
		c.Body = []byte(redacted) // whoever shows it may decode it
	case isJSON(c):
		c.Body = redactJSON(c.Body, paths)
	}
	return c
}

// isRedacted reports whether rules hide something of c.
func (c Content) isRedacted(rules []Rule) bool {
	shown := c.Redact(rules)
	return !bytes.Equal(shown.Body, c.Body) || !reflect.DeepEqual(shown.Headers, c.Headers)
}

func redactTable(t topology.Table, names map[string]bool) topology.Table {
	t = maps.Clone(t)
	for name, v := range t {
		if names[strings.ToLower(name)] {
			t[name] = redacted
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

func isJSON(c Content) bool {
	if strings.Contains(strings.ToLower(c.Properties.ContentType), "json") {
		return true
	}
	b := bytes.TrimLeft(c.Body, " \t\r\n\ufeff")
	return len(b) > 0 && (b[0] == '{' || b[0] == '[')
}

// redactJSON replaces the values at the paths and leaves all other bytes as they
// are: order, numbers, spaces, and names that come twice.
func redactJSON(body []byte, paths [][]string) []byte {
	w := redactor{in: body, d: json.NewDecoder(bytes.NewReader(body))}
	w.d.UseNumber()
	err := w.value(paths, 0)
	if err == nil {
		if _, end := w.d.Token(); end != io.EOF {
			err = errors.New("more than one value")
		}
	}
	if err != nil {
		return []byte(redacted)
	}
	return append(w.out, body[w.copied:]...)
}

type redactor struct {
	in, out []byte
	copied  int64 // of in
	d       *json.Decoder
}

// value goes through one value, of which paths are to be hidden. An empty path is
// the value itself.
func (w *redactor) value(paths [][]string, depth int) error {
	if depth > maxJSONDepth {
		return errors.New("nested too deep")
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
		// Between the offset before and the value are spaces and a colon or a comma.
		start := end - int64(len(raw))
		if start < before {
			return errors.New("offsets differ")
		}
		w.out = append(w.out, w.in[w.copied:start]...)
		w.out = append(w.out, `"`+redacted+`"`...)
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
	_, err = w.d.Token() // the end of it
	return err
}

// below returns what is left of the paths that go through name.
func below(paths [][]string, name string) (out [][]string) {
	for _, p := range paths {
		if len(p) > 0 && (p[0] == "*" || p[0] == name) {
			out = append(out, p[1:])
		}
	}
	return out
}
