package show

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/reprisemq/reprise/claimcheck"
	"github.com/reprisemq/reprise/encryption"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/topology"
)

func content(kind, body string) failed.Content {
	return failed.Content{Body: []byte(body), Properties: failed.Properties{ContentType: kind}}
}

func (v BodyView) text() string {
	var b strings.Builder
	for _, s := range v.Spans {
		b.WriteString(s.Text)
	}
	return b.String()
}

func with(c failed.Content, header, value string) failed.Content {
	c.Headers = topology.Table{header: value}
	return c
}

func TestViewBody(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	stored := "offloaded body of 17 bytes, sha256 " + hash
	for name, test := range map[string]struct {
		content    failed.Content
		kind, text string
	}{
		"JSON":              {content("application/json; charset=utf-8", `{"b":1.50,"a":"x","b":[]}`), "JSON", "{\n  \"b\": 1.50,\n  \"a\": \"x\",\n  \"b\": []\n}"},
		"looks like JSON":   {content("", ` [1, 2]`), "JSON", "[\n  1,\n  2\n]"},
		"says JSON":         {content("application/json", `{"a":`), "text", `{"a":`},
		"problem":           {content("application/problem+json", `{}`), "JSON", `{}`},
		"XML":               {content("text/xml", `<a><b c="d">e</b><f/></a>`), "XML", "<a>\n  <b c=\"d\">e</b>\n  <f/>\n</a>"},
		"XML with text":     {content("text/xml", `<p>one <b>two</b></p>`), "XML", `<p>one <b>two</b></p>`},
		"XML that ends":     {content("text/xml", `<a><b>`), "text", `<a><b>`},
		"text":              {content("", "hello\nworld"), "text", "hello\nworld"},
		"direction":         {content("", "a\u202eb"), "text", `a\u202eb`},
		"not only text":     {content("text/plain", strings.Repeat("long text ", 10)+"\x00"), "text", strings.Repeat("long text ", 10) + `\x00`},
		"bytes":             {content("application/json", "\xff\x00\x01"), "binary", ""},
		"nothing":           {content("", ""), "text", ""},
		"markup stays text": {content("text/html", "<script>"), "text", "<script>"},
		"encrypted":         {with(content("application/json", "\x0f\xff"), encryption.Header, "2026-11"), "encrypted", ""},
		"stored":            {with(content("application/json", stored), claimcheck.Header, hash), "reference", stored},
		"no reference":      {with(content("application/json", "{}"), claimcheck.Header, hash), "JSON", "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			v := ViewBody(test.content)
			if v.Kind != test.kind || v.text() != test.text {
				t.Errorf("got %s %q, want %s %q", v.Kind, v.text(), test.kind, test.text)
			}
			if (v.Key == "2026-11") != (test.kind == "encrypted") {
				t.Errorf("got the key %q, want it only for the kind encrypted: kind %s", v.Key, test.kind)
			}
			if (v.Hex != "") != (test.kind == "binary") {
				t.Errorf("hexadecimal body: got %q, want it only for the kind binary: kind %s", v.Hex, test.kind)
			}
		})
	}
}

func TestViewForm(t *testing.T) {
	v := ViewBody(content("application/x-www-form-urlencoded", "a=1+2&b=%3Cb%3E&a="))
	want := [][2]string{{"a", "1 2"}, {"b", "<b>"}, {"a", ""}}
	if v.Kind != "form" || len(v.Fields) != 3 || v.Fields[0] != want[0] || v.Fields[1] != want[1] || v.Fields[2] != want[2] {
		t.Errorf("got %s %v, want %v", v.Kind, v.Fields, want)
	}
}

// A compressed body is decompressed only up to the limit of the page.
func TestViewCompressed(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for range 1000 {
		_, _ = z.Write(bytes.Repeat([]byte("a"), 64<<10))
	}
	_ = z.Close()
	v := ViewBody(failed.Content{Body: b.Bytes(), Properties: failed.Properties{ContentEncoding: "gzip"}})
	if v.Coding != "gzip" || !v.Cut || len(v.text()) != MaxBodyShown {
		t.Errorf("got coding %q, want %q, cut %v, %d bytes, want %d", v.Coding, "gzip", v.Cut, len(v.text()), MaxBodyShown)
	}
}

func FuzzViewBody(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e3,"\"\\",null,true]}`, `<a><b/>x</a>`, "a=%41", "\x1f\x8b", "\xff"} {
		f.Add("application/json", "", []byte(s))
		f.Add("application/xml", "", []byte(s))
		f.Add("application/x-www-form-urlencoded", "gzip", []byte(s))
	}
	f.Fuzz(func(t *testing.T, kind, coding string, body []byte) {
		v := ViewBody(failed.Content{Body: body, Properties: failed.Properties{ContentType: kind, ContentEncoding: coding}})
		var text strings.Builder
		text.WriteString(v.text() + v.Hex)
		for _, f := range v.Fields {
			text.WriteString(f[0] + f[1])
		}
		if !utf8.ValidString(text.String()) || strings.ContainsFunc(text.String(), brief.Odd) {
			t.Errorf("body %q: got %q", body, text.String())
		}
	})
}
