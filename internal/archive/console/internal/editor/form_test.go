package editor

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/claimcheck"
	"github.com/reprisemq/reprise/encryption"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/topology"
)

// submit returns the values that a browser submits for a form, with CR LF as line breaks.
func submit(f *EditFormView) url.Values {
	lines := func(s string) string {
		return strings.ReplaceAll(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s), "\n", "\r\n")
	}
	line := func(s string) string { return strings.NewReplacer("\r", "", "\n", "").Replace(s) }
	v := url.Values{"body": {lines(f.Body)}}
	for _, p := range f.Properties {
		if p.Fixed {
			continue
		}
		v.Set(p.Name, line(p.Value))
	}
	for _, h := range f.Headers {
		v.Add("header_name", line(h.Name))
		if h.Fixed {
			v.Add("header_kind", keepKind)
			v.Add("header_value", "")
			continue
		}
		v.Add("header_kind", h.Kind)
		v.Add("header_value", line(h.Value))
	}
	return v
}

// A form that is submitted without edits does not change the message, regardless of the bytes and types in the message.
func TestEditFormPreservesContent(t *testing.T) {
	text := rapid.OneOf(rapid.StringMatching(`[a-z0-9 "<&]{0,12}`), rapid.SampledFrom([]string{"a\r\nb", "\n\nx\n", "a\rb", "{\"a\":1.0}", "[1,2]", " {}", "\x00", "\xff\xfe", "\u202e"}))
	value := rapid.Custom(func(t *rapid.T) any {
		switch rapid.IntRange(0, 11).Draw(t, "kind") {
		case 0:
			return text.Draw(t, "text")
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2:
			return rapid.Int32().Draw(t, "int32")
		case 3:
			return rapid.Int64().Draw(t, "int64")
		case 4:
			return rapid.Byte().Draw(t, "byte")
		case 5:
			return rapid.Float32().Draw(t, "float32")
		case 6:
			return rapid.Float64().Draw(t, "float64")
		case 7:
			return []byte(text.Draw(t, "bytes"))
		case 8:
			return time.Unix(rapid.Int64Range(0, 1e10).Draw(t, "time"), 0)
		case 9:
			return topology.Table{"in": text.Draw(t, "in")}
		case 10:
			return []any{int16(3), text.Draw(t, "array")}
		}
		return nil
	})
	rapid.Check(t, func(t *rapid.T) {
		m := &failed.Message{Content: failed.Content{
			Body:       []byte(rapid.OneOf(text, rapid.Just(`{"order":17,"items":[]}`)).Draw(t, "body")),
			Headers:    topology.Table{},
			Properties: failed.Properties{ContentType: rapid.StringMatching(`[a-z/+]{0,9}`).Draw(t, "type"), MessageID: text.Draw(t, "id"), Priority: 3, Expiration: "60000"},
		}}
		for range rapid.IntRange(0, 5).Draw(t, "headers") {
			m.Headers[rapid.OneOf(text, rapid.StringMatching(`[a-z]{1,5}|x-death|x-reprise-queue`)).Draw(t, "name")] = value.Draw(t, "value")
		}
		form := ReadEditForm(submit(NewEditForm(m)), m)
		got, err := form.Content(m)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(m.Content, got); d != "" {
			t.Fatal(d)
		}
	})
}

func TestEditForm(t *testing.T) {
	m := &failed.Message{Content: failed.Content{
		Body:    []byte(`{"a":1}`),
		Headers: topology.Table{"n": int32(3), "gone": "x", "x-death": []any{}},
	}}
	v := url.Values{
		"body": {"{\r\n  \"a\": 2\r\n}"}, "type": {"order"},
		"header_name": {"n", "", "new", "flag", ""}, "header_kind": {"integer", "text", "text", "boolean", "text"}, "header_value": {"4", "", "y", "true", ""},
	}
	got, err := ReadEditForm(v, m).Content(m)
	if err != nil {
		t.Fatal(err)
	}
	want := failed.Content{
		Body: []byte(`{"a":2}`), Properties: failed.Properties{Type: "order"},
		Headers: topology.Table{"n": int32(4), "new": "y", "flag": true, "x-death": []any{}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for name, change := range map[string]url.Values{
		"not a number":   {"header_name": {"n"}, "header_kind": {"integer"}, "header_value": {"x"}},
		"repeated name":  {"header_name": {"n", "n"}, "header_kind": {"integer", "text"}, "header_value": {"1", "2"}},
		"broker header":  {"header_name": {"x-death"}, "header_kind": {"text"}, "header_value": {"1"}},
		"too long":       {"message_id": {strings.Repeat("x", 256)}},
		"unknown kind":   {"header_name": {"n"}, "header_kind": {"table"}, "header_value": {"1"}},
		"name too long":  {"header_name": {strings.Repeat("n", 129)}, "header_kind": {"text"}, "header_value": {"1"}},
		"not a boolean":  {"header_name": {"b"}, "header_kind": {"boolean"}, "header_value": {"maybe"}},
		"unknown header": {"header_name": {"y"}, "header_kind": {keepKind}, "header_value": {""}},
	} {
		if _, err := ReadEditForm(change, m).Content(m); err == nil {
			t.Errorf("%s: form was accepted", name)
		}
	}
	bytes := &failed.Message{Content: failed.Content{Body: []byte{0xff, 0}}}
	for body, ok := range map[string]bool{"ff 00 01": true, "f": false, "zz": false} {
		if _, err := ReadEditForm(url.Values{"body": {body}}, bytes).Content(bytes); (err == nil) != ok {
			t.Errorf("hexadecimal body %q: got error %v", body, err)
		}
	}
}

// The form does not change an encrypted body or its message id. A body replaces a reference and its header.
func TestEditFormOfSealedBody(t *testing.T) {
	v := url.Values{"body": {"{}"}, messageID: {"2"}, "type": {"order"}}
	m := &failed.Message{Content: failed.Content{Body: []byte{0xf, 0xff}, Headers: topology.Table{encryption.Header: "key"}, Properties: failed.Properties{MessageID: "1"}}}
	want := m.Content
	want.Properties.Type = "order"
	got, err := ReadEditForm(v, m).Content(m)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(d, err)
	}
	hash := strings.Repeat("ab", 32)
	m.Content.Body, m.Content.Headers = []byte("offloaded body of 17 bytes, sha256 "+hash), topology.Table{claimcheck.Header: hash}
	want = failed.Content{Body: []byte("{}"), Headers: topology.Table{}, Properties: failed.Properties{MessageID: "2", Type: "order"}}
	got, err = ReadEditForm(v, m).Content(m)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(d, err)
	}
}

// The form indents JSON, and saves an edited body on one line with its original spacing. If only the white space was
// edited, the body does not change.
func TestEditPreservesJSONSpacing(t *testing.T) {
	for _, test := range []struct{ before, change, to, want string }{
		{`{"a":1,"b":[1,2]}`, `1,`, `7,`, `{"a":7,"b":[7,2]}`},
		{`{"a": 1, "b": [1, 2]}`, `1,`, `7,`, `{"a": 7, "b": [7, 2]}`},
		{`{"a": "x, \"y: z", "b": {}}`, `z`, `w`, `{"a": "x, \"y: w", "b": {}}`},
		{` { "a" : 1 ,"b":2 } `, `2`, `3`, `{"a":1,"b":3}`},
		{` { "a" : 1 ,"b":2 } `, `nothing`, ``, ` { "a" : 1 ,"b":2 } `},
		{`{"n":12345678901234567890.10,"n":1}`, `nothing`, ``, `{"n":12345678901234567890.10,"n":1}`},
	} {
		how, text := editableBody([]byte(test.before))
		if how != bodyIndent || !strings.Contains(text, "\n  \"") {
			t.Errorf("editableBody(%s): got %s, want %s, %s", test.before, how, bodyIndent, text)
			continue
		}
		f := EditFormView{How: how, Body: strings.ReplaceAll(text, test.change, test.to)}
		got, err := f.bytes([]byte(test.before))
		if err != nil || string(got) != test.want {
			t.Errorf("%s with %q for %q: got %s, want %s: %v", test.before, test.to, test.change, got, test.want, err)
		}
	}
}
