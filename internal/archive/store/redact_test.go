package store_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/topology"
)

func TestRedact(t *testing.T) {
	rules := []failed.Rule{{Header: "Authorization"}, {Path: "card.number"}, {Path: "items.*.token"}, {Path: "all"}}
	for _, c := range []struct{ body, kind, want string }{
		{`{"card": {"number": 4000, "name": "x"}, "n": 1.50}`, "", `{"card": {"number": "[redacted]", "name": "x"}, "n": 1.50}`},
		{`{"items":[{"token":"a"},{"token" : {"b":[1]} },7]}`, "", `{"items":[{"token":"[redacted]"},{"token" : "[redacted]" },7]}`},
		{`{"all":null,"all":[1,2]}`, "", `{"all":"[redacted]","all":"[redacted]"}`},
		{` {"card":"number"}` + "\n", "application/json", ` {"card":"number"}` + "\n"},
		{`{"card":{"n\u0075mber":"4000"}}`, "", `{"card":{"n\u0075mber":"[redacted]"}}`},
		{`{"card":{"number":"4000"`, "", `[redacted]`},
		{`{"a":1} {"card":{"number":"4000"}}`, "", `[redacted]`},
		{"\ufeff" + `{"card":{"number":"4000"}}`, "", `[redacted]`},
		{strings.Repeat("[", 1<<20), "", `[redacted]`},
		{`card.number=4000`, "text/plain", `card.number=4000`},
		{`card.number=4000`, "application/json; charset=utf-8", `[redacted]`},
		{``, "", ``},
	} {
		m := &failed.Message{Content: failed.Content{Body: []byte(c.body), Properties: failed.Properties{ContentType: c.kind}}}
		if got := string(m.Redact(rules).Body); got != c.want {
			t.Errorf("%.60s: got %.60s, want %s", c.body, got, c.want)
		}
		if string(m.Body) != c.body {
			t.Errorf("Redact changed the original to %s", m.Body)
		}
	}
}

// Encoded bodies are hidden, because a viewer may decode them.
func TestRedactEncoded(t *testing.T) {
	rules := []failed.Rule{{Path: "card.number"}}
	for _, c := range []struct{ coding, kind, body, want string }{
		{"gzip", "application/json", "\x1f\x8b\b\x00", "[redacted]"},
		{"GZIP", "text/plain", "\x1f\x8b\b\x00", "[redacted]"},
		{"deflate", "", `{"card":{"number":1}}`, "[redacted]"},
		{"gzip", "application/json", "", ""},
		{"identity", "", `{"card":{"number":1}}`, `{"card":{"number":"[redacted]"}}`},
		{"UTF-8", "", `{"card":{"number":1}}`, `{"card":{"number":"[redacted]"}}`},
	} {
		content := failed.Content{Body: []byte(c.body), Properties: failed.Properties{ContentType: c.kind, ContentEncoding: c.coding}}
		if got := string(content.Redact(rules).Body); got != c.want {
			t.Errorf("%s %q: got %q, want %q", c.coding, c.body, got, c.want)
		}
		if got := string(content.Redact([]failed.Rule{{Header: "a"}}).Body); got != c.body {
			t.Errorf("%s %q without a path: got %q, want no change", c.coding, c.body, got)
		}
	}
}

func TestRedactHeadersAndEdits(t *testing.T) {
	headers := func() topology.Table {
		return topology.Table{"AUTHORIZATION": "s", "n": int32(1), "in": []any{topology.Table{"authorization": []byte("s")}}}
	}
	m := &failed.Message{Content: failed.Content{Headers: headers()}, Edited: &failed.Content{Headers: headers()}}
	got := m.Redact([]failed.Rule{{Header: "authorization"}})
	want := topology.Table{"AUTHORIZATION": "[redacted]", "n": int32(1), "in": []any{topology.Table{"authorization": "[redacted]"}}}
	for _, h := range []topology.Table{got.Headers, got.Edited.Headers} {
		if d := gocmp.Diff(want, h); d != "" {
			t.Error(d)
		}
	}
	if d := gocmp.Diff(headers(), m.Headers); d != "" {
		t.Errorf("Redact changed the original: %s", d)
	}
}

// Redaction of a JSON body hides the values at the paths and changes nothing else.
func TestRedactJSON(t *testing.T) {
	var anything func(depth int) *rapid.Generator[any]
	anything = func(depth int) *rapid.Generator[any] {
		return rapid.Custom(func(t *rapid.T) any {
			switch n := rapid.IntRange(0, 4).Draw(t, "kind"); {
			case n == 0 && depth > 0:
				return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "secret", "<ü>"}), anything(depth-1), 0, 3).Draw(t, "object")
			case n == 1 && depth > 0:
				return rapid.SliceOfN(anything(depth-1), 0, 3).Draw(t, "array")
			case n == 2:
				return rapid.Float64Range(-1e6, 1e6).Draw(t, "number")
			}
			return "needle" + rapid.String().Draw(t, "text")
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		v := map[string]any{"secret": anything(3).Draw(t, "secret"), "list": rapid.SliceOfN(anything(3), 0, 3).Draw(t, "list")}
		body := value(json.Marshal(v))(t)
		if rapid.Bool().Draw(t, "indented") {
			var b bytes.Buffer
			check(t, json.Indent(&b, body, " ", "\t"))
			body = b.Bytes()
		}
		got := failed.Content{Body: body}.Redact([]failed.Rule{{Path: "secret"}, {Path: "list.*"}}).Body
		if bytes.Contains(got, []byte("needle")) || !json.Valid(got) {
			t.Fatalf("body %s: got %s, want valid JSON without secrets", body, got)
		}
		got = failed.Content{Body: body}.Redact([]failed.Rule{{Path: "nothing.here"}}).Body
		if !bytes.Equal(got, body) {
			t.Fatalf("body %s: got %s, want no change", body, got)
		}
	})
}
