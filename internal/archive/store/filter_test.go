package store_test

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/params"
)

// emptyHeaders treats a nil map and an empty map of headers as equal. An empty list differs from a nil list, because it
// selects no messages.
var emptyHeaders = gocmp.FilterValues(func(x, y map[string]string) bool { return len(x)+len(y) == 0 }, gocmp.Ignore())

// maybe draws nil or a list.
func maybe[T any](t *rapid.T, list *rapid.Generator[[]T]) []T {
	if rapid.Bool().Draw(t, "absent") {
		return nil
	}
	return list.Draw(t, "list")
}

// notBlank draws a string that is empty or contains a character other than blanks.
func notBlank(t *rapid.T) string {
	return rapid.Map(anyName, func(text string) string {
		if strings.TrimSpace(text) == "" {
			return ""
		}
		return text
	}).Draw(t, "not blank")
}

// anyName draws names: text, invalid UTF-8, and strings that look like encoded names.
var anyName = rapid.OneOf(
	rapid.String(),
	rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
	rapid.Map(rapid.String(), func(s string) string { return "base64:" + s }),
)

// someText draws a search string that contains a word, or "".
func someText(t *rapid.T) string {
	if text := anyName.Draw(t, "words"); text != "" {
		return text + "a"
	}
	return ""
}

func anyFilter(t *rapid.T) failed.Filter {
	number := func(name string) int64 { return rapid.Int64Range(0, 1000).Draw(t, name) }
	f := failed.Filter{
		Queue:       params.Text(anyName.Draw(t, "queue")),
		States:      maybe(t, rapid.SliceOf(rapid.SampledFrom(failed.States()))),
		Group:       failed.GroupID(number("group")),
		Text:        someText(t),
		Error:       notBlank(t),
		MinAttempts: int(number("min")),
		IDs:         maybe(t, rapid.SliceOf(rapid.Map(rapid.Int64Range(1, 1<<40), func(n int64) failed.ID { return failed.ID(n) }))),
		Replay:      failed.ReplayID(number("replay")),
		Refused:     rapid.Bool().Draw(t, "refused"),
	}
	if rapid.Bool().Draw(t, "bounded") {
		f.MaxAttempts = f.MinAttempts + int(number("max"))
		f.Since = time.Unix(number("since"), 5_000_000).UTC()
		f.Until = f.Since.Add(time.Millisecond)
	}
	if name := anyName.Draw(t, "header"); name != "" {
		f.Headers = map[string]string{name: rapid.SampledFrom([]string{"", " "}).Draw(t, "space") + anyName.Draw(t, "value")}
	}
	return f
}

// The encodings of a filter as a URL query and as JSON are lossless.
func TestFilterIsLossless(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFilter(t)
		v, err := url.ParseQuery(f.Values().Encode())
		if err != nil {
			t.Fatal(err)
		}
		for name := range v {
			if !slices.ContainsFunc(failed.FilterParams(), func(p failed.FilterParam) bool { return p.Name == name }) {
				t.Fatalf("FilterParams does not contain %q", name)
			}
		}
		got, err := failed.ParseFilter(v, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(f, got, emptyHeaders); diff != "" {
			t.Fatalf("filter from URL differs: %s", diff)
		}
		if isZero := gocmp.Equal(f, failed.Filter{}, emptyHeaders); f.IsZero() != isZero {
			t.Fatalf("IsZero: got %v, want %v", f.IsZero(), isZero)
		}
		f.Text, f.Error = strings.ToValidUTF8(f.Text, ""), strings.ToValidUTF8(f.Error, "") // JSON requires valid UTF-8
		for name, value := range f.Headers {
			f.Headers[name] = strings.ToValidUTF8(value, "")
		}
		b, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		var read failed.Filter
		if err := json.Unmarshal(b, &read); err != nil {
			t.Fatalf("cannot decode %s: %v", b, err)
		}
		if diff := gocmp.Diff(f, read, emptyHeaders); diff != "" {
			t.Fatalf("filter from JSON %s differs: %s", b, diff)
		}
	})
}

// A filter with an empty list of IDs differs from a filter for all messages.
func TestEmptyIDListSelectsNoMessages(t *testing.T) {
	var f failed.Filter
	if err := json.Unmarshal([]byte(`{"ids":[]}`), &f); err != nil {
		t.Fatal(err)
	}
	if f.IsZero() || f.IDs == nil {
		t.Error("empty list of IDs selects all messages")
	}
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != `{"ids":[]}` {
		t.Errorf("got %s, want an empty list of IDs", b)
	}
}

// FuzzParseFilter checks that formatting and parsing a valid filter returns the same filter.
func FuzzParseFilter(f *testing.F) {
	for _, seed := range []string{
		"", "queue=orders&state=failed&state=discarded", "header=a%253Ab%2525:x:y&header=n:5", "id=1&id=2&group=7&replay=9",
		"since=2026-03-01T12:00:00Z&until=2026-03-01T12:00:00.001%2B02:00", "queue=base64:Y2Fm6Q==", "text=%00%ff&error=%3Cb%3E",
		"min_attempts=2&max_attempts=1", "queue=a&queue=b", "header=%25zz:1", "id=", "since=9999-12-31T23:59:59%2B23:59",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		v, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		parsed, err := failed.ParseFilter(v, time.Now())
		if err != nil {
			return
		}
		again, err := failed.ParseFilter(parsed.Values(), time.Now())
		if err != nil {
			t.Fatalf("%q: cannot parse the formatted values %v: %v", query, parsed.Values(), err)
		}
		if diff := gocmp.Diff(parsed, again, emptyHeaders); diff != "" {
			t.Fatalf("%q: second filter differs: %s", query, diff)
		}
	})
}
