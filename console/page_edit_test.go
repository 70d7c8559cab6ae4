package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/topology"
)

// submit is the form as a browser sends it, which writes line breaks as CR LF.
func submit(f *editFormView) url.Values {
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

// Whoever opens the form and saves it has changed nothing, whatever bytes and types are
// in the message.
func TestEditFormKeepsAll(t *testing.T) {
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
		form := readEditForm(submit(newEditForm(m)), m)
		got, err := form.content(m)
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
	got, err := readEditForm(v, m).content(m)
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
		"no number":      {"header_name": {"n"}, "header_kind": {"integer"}, "header_value": {"x"}},
		"there twice":    {"header_name": {"n", "n"}, "header_kind": {"integer", "text"}, "header_value": {"1", "2"}},
		"the broker's":   {"header_name": {"x-death"}, "header_kind": {"text"}, "header_value": {"1"}},
		"too long":       {"message_id": {strings.Repeat("x", 256)}},
		"kind unknown":   {"header_name": {"n"}, "header_kind": {"table"}, "header_value": {"1"}},
		"name too long":  {"header_name": {strings.Repeat("n", 129)}, "header_kind": {"text"}, "header_value": {"1"}},
		"neither of two": {"header_name": {"b"}, "header_kind": {"boolean"}, "header_value": {"maybe"}},
		"another name":   {"header_name": {"y"}, "header_kind": {keepKind}, "header_value": {""}},
	} {
		if _, err := readEditForm(change, m).content(m); err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
	bytes := &failed.Message{Content: failed.Content{Body: []byte{0xff, 0}}}
	for body, ok := range map[string]bool{"ff 00 01": true, "f": false, "zz": false} {
		if _, err := readEditForm(url.Values{"body": {body}}, bytes).content(bytes); (err == nil) != ok {
			t.Errorf("%q in hexadecimal: %v", body, err)
		}
	}
}

// Of two who edit one message, the second is shown what the first has made of it beside what
// is in their own form, and nothing is lost or replayed before they have said so.
func TestTwoEditOneMessage(t *testing.T) {
	replayer := &waker{}
	c := newConsole(t, Config{Replayer: replayer})
	id := add(t, c.cfg.Archive, nil)
	form := ask(t, c, "GET", "/messages/1/edit", nil).Body.String()
	if !strings.Contains(form, `name="base" value="0"`) || !strings.Contains(form, `name="revision" value="0"`) {
		t.Fatalf("the form does not say what was seen: %s", form)
	}
	if err := c.cfg.Archive.Edit(t.Context(), id, 0, failed.Content{Body: []byte(`{"order":"ann's"}`)}, "ann"); err != nil {
		t.Fatal(err)
	}
	mine := url.Values{"base": {"0"}, "revision": {"0"}, "body": {`{"order":"ben's"}`}}
	for _, do := range []string{"save", "replay"} {
		mine.Set("do", do)
		status, _, body := post(t, c, "/messages/1/edit", mine)
		if status != http.StatusConflict || !strings.Contains(body, "ann has edited this message meanwhile") {
			t.Fatalf("%s: %d %s", do, status, body)
		}
		for _, want := range []string{"ann&#39;s", "ben&#39;s", `name="base" value="0"`, `name="revision" value="1"`, `href="/messages/1/revisions/1"`} {
			if !strings.Contains(body, want) {
				t.Errorf("%s: there is no %s", do, want)
			}
		}
		m, err := c.cfg.Archive.Get(t.Context(), id)
		if err != nil || m.State != failed.Failed || string(m.Current().Body) != `{"order":"ann's"}` {
			t.Fatalf("%s: it is %s, %s: %v", do, m.State, m.Current().Body, err)
		}
	}
	if status, _, _ := post(t, c, "/messages/1/revert", url.Values{"revision": {"0"}}); status != http.StatusConflict {
		t.Errorf("taken back unseen: %d", status)
	}
	mine.Set("revision", "1")
	if status, _, body := post(t, c, "/messages/1/edit", mine); status != http.StatusSeeOther {
		t.Fatalf("having seen it: %d %s", status, body)
	}
	m, err := c.cfg.Archive.Get(t.Context(), id)
	if err != nil || string(m.Current().Body) != `{"order":"ben's"}` || m.State != failed.Replaying {
		t.Errorf("it is %s, %s: %v", m.State, m.Current().Body, err)
	}
	if status, _, _ := post(t, c, "/messages/1/edit", url.Values{"do": {"save"}}); status == http.StatusSeeOther {
		t.Error("a form that does not say what was seen is taken")
	}
}
