package failedcmd

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/topology"
)

func buckets(numbers ...int64) []store.Bucket {
	var all []store.Bucket
	for _, n := range numbers {
		all = append(all, store.Bucket{N: n})
	}
	return all
}

// headerValue draws a value of any AMQP type.
func headerValue() *rapid.Generator[any] {
	flat := rapid.OneOf(
		rapid.Map(rapid.String(), func(s string) any { return s }),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 20), func(b []byte) any { return string(b) }),
		rapid.Map(rapid.Int64(), func(n int64) any { return n }),
		rapid.Map(rapid.Int32(), func(n int32) any { return n }),
		rapid.Map(rapid.Uint16(), func(n uint16) any { return n }),
		rapid.Map(rapid.Float64().Filter(func(f float64) bool { return !math.IsNaN(f) }), func(f float64) any { return f }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.Int64Range(0, 1<<33), func(n int64) any { return time.Unix(n, 0).UTC() }),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 20), func(b []byte) any { return b }),
		rapid.Just[any](nil),
	)
	return rapid.OneOf(flat,
		rapid.Map(rapid.SliceOfN(flat, 1, 3), func(a []any) any { return a }),
		rapid.Map(rapid.MapOfN(rapid.String(), flat, 1, 3), func(m map[string]any) any { return topology.Table(m) }),
	)
}

// If the editor changes nothing, all bytes and types of the message stay the same.
func TestEditRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := api.Content{
			Headers: api.Headers(rapid.MapOfN(rapid.String(), headerValue(), 0, 6).Draw(t, "headers")),
			Body:    []byte(rapid.String().Draw(t, "body")),
		}
		c.Headers["x-reprise-attempts"] = int32(3) // preserved, although the editor does not show it
		text := editFile(api.Summary{ID: 1, Queue: "orders", Error: rapid.String().Draw(t, "error")}, c)
		got, err := readEdit(text, c)
		if err != nil {
			t.Fatalf("edit: got error %v\n%s", err, text)
		}
		if !bytes.Equal(got.Body, c.Body) {
			t.Fatalf("body: got %q, want %q\n%s", got.Body, c.Body, text)
		}
		if diff := cmp.Diff(map[string]any(c.Headers), map[string]any(got.Headers)); diff != "" {
			t.Fatalf("edited message: %s\n%s", diff, text)
		}
	})
}

func TestReadEdit(t *testing.T) {
	before := api.Content{Headers: api.Headers{"lang": "en"}, Body: []byte("x")}
	for name, c := range map[string]struct{ text, want string }{
		"mark":     {"lang: en\n", "not found"},
		"line":     {"# x\nnonsense\n" + bodyMark + "\nx", "line 2: “nonsense” is not a header (write name: text, or name := JSON)"},
		"json":     {"a := {\n" + bodyMark + "\nx", "line 1: a := { is not JSON"},
		"type":     {"a := {\"int99\": 1}\n" + bodyMark + "\nx", "line 1: a: "},
		"twice":    {"a: 1\na: 2\n" + bodyMark + "\nx", "line 2: header “a” must occur once"},
		"own name": {"a := 1\n\"a\": 2\n" + bodyMark + "\nx", "line 2: header “a” must occur once"},
	} {
		if _, err := readEdit(c.text, before); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want %q", name, err, c.want)
		}
	}
	got, err := readEdit("# said by an editor of Windows\r\nn := 5\r\n"+bodyMark+"\r\nbody\n", before)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(api.Headers{"n": int64(5)}, got.Headers); diff != "" || string(got.Body) != "body" {
		t.Errorf("edited message: %s, body %q", diff, got.Body)
	}
}

func TestEditDiff(t *testing.T) {
	content := func(body string) api.Content { return api.Content{Body: []byte(body)} }
	for _, c := range []struct{ before, after, want string }{
		{"a", "b", "@@ -1,2 +1,2 @@\n " + bodyMark + "\n-a\n+b\n"},
		{"a", "", "@@ -1,2 +1 @@\n " + bodyMark + "\n-a\n"},
		{"a", "a\n", "@@ -1,2 +1,2 @@\n " + bodyMark + "\n-a\n\\ No newline at end of file\n+a\n"},
		{"a\x1b[2J", "a", "@@ -1,2 +1,2 @@\n " + bodyMark + "\n-a[2J\n+a\n"},
		{"a", "a", ""},
	} {
		if got := editDiff(content(c.before), content(c.after)); got != c.want {
			t.Errorf("%q to %q: got\n%swant\n%s", c.before, c.after, got, c.want)
		}
	}
}
