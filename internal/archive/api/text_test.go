package api_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/topology"
)

func anyText(t *rapid.T) api.Text {
	return api.Text(rapid.OneOf(
		rapid.String(),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		rapid.Map(rapid.String(), func(s string) string { return "base64:" + s }),
	).Draw(t, "text"))
}

// JSON preserves arbitrary bytes, in values and in names.
func TestTextPreservesBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := anyText(t)
		b, err := json.Marshal([]any{text, params.Texts{string(text): "x"}})
		if err != nil || !utf8.Valid(b) {
			t.Fatalf("text %q: got %q, %v", text, b, err)
		}
		var value api.Text
		var names params.Texts
		if err := json.Unmarshal(b, &[]any{&value, &names}); err != nil {
			t.Fatal(err)
		}
		if value != text || len(names) != 1 || names[string(text)] != "x" {
			t.Fatalf("text %q: got value %q, want %q, names %q", text, value, text, names)
		}
	})
}

func TestTextEncodesOnlyInvalidUTF8(t *testing.T) {
	for text, want := range map[api.Text]string{
		"orders":     "orders",
		"café":       "café",
		"caf\xe9":    "base64:Y2Fm6Q==",
		"base64:x":   "base64:YmFzZTY0Ong=",
		"":           "",
		"\x00\n\x7f": "\x00\n\x7f",
	} {
		if got, _ := text.MarshalText(); string(got) != want {
			t.Errorf("text %q: got %q, want %q", text, got, want)
		}
	}
}

func TestContentPreservesMessage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := func() string { return string(anyText(t)) }
		before := failed.Content{
			Body:    rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
			Headers: topology.Table{text(): text(), "i": rapid.Int64().Draw(t, "i"), "f": rapid.Float32().Draw(t, "f"), "nil": nil},
			Properties: failed.Properties{
				ContentType: text(), ContentEncoding: text(), CorrelationID: text(), ReplyTo: text(), MessageID: text(), Type: text(),
				AppID: text(), UserID: text(), Expiration: text(), Priority: rapid.Byte().Draw(t, "priority"),
				Timestamp: time.Unix(rapid.Int64Range(0, 1<<35).Draw(t, "time"), 0).UTC(), Exchange: text(), RoutingKey: text(),
			},
		}
		b, err := json.Marshal(api.ContentOf(before))
		if err != nil {
			t.Fatal(err)
		}
		var after api.Content
		if err := json.Unmarshal(b, &after); err != nil {
			t.Fatal(err)
		}
		if before.Body == nil {
			before.Body = []byte{}
		}
		if diff := cmp.Diff(before, after.Content()); diff != "" {
			t.Fatal(diff)
		}
		if after.Text != nil && *after.Text != string(before.Body) {
			t.Fatalf("Text: got %q for the body %q", *after.Text, before.Body)
		}
	})
}

func TestIsText(t *testing.T) {
	for body, want := range map[string]bool{
		"":                        true,
		"a\tb\r\n<b>":             true,
		"日本":                      true,
		"a\x00":                   false,
		"\x1b[31m":                false,
		"\xff":                    false,
		"\u0085":                  false,
		"\uFFFD":                  true,
		strings.Repeat("x", 1000): true,
	} {
		if got := api.IsText([]byte(body)); got != want {
			t.Errorf("IsText(%q): got %v, want %v", body, got, want)
		}
	}
}

func TestContentOmitsLargeText(t *testing.T) {
	for size, want := range map[int]bool{api.MaxText: true, api.MaxText + 1: false} {
		c := api.ContentOf(failed.Content{Body: make([]byte, size)})
		if c.Text != nil {
			t.Fatal("body of zeros has Text")
		}
		c = api.ContentOf(failed.Content{Body: []byte(strings.Repeat("x", size))})
		if (c.Text != nil) != want || len(c.Body) != size {
			t.Errorf("body of %d bytes: has Text %v", size, c.Text != nil)
		}
	}
}
