package api_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/api"
)

// emptyHeaders ignores whether a filter without headers has a map of them. Lists without
// elements differ from absent ones: they select no messages.
var emptyHeaders = cmp.FilterValues(func(x, y api.HeaderTexts) bool { return len(x)+len(y) == 0 }, cmp.Ignore())

// maybe draws a list that may be absent.
func maybe[T any](t *rapid.T, list *rapid.Generator[[]T]) []T {
	if rapid.Bool().Draw(t, "absent") {
		return nil
	}
	return list.Draw(t, "list")
}

// notBlank draws a text that is empty or is more than blanks.
func notBlank(t *rapid.T) string {
	return rapid.Map(rapid.Custom(anyText), func(text api.Text) string {
		if strings.TrimSpace(string(text)) == "" {
			return ""
		}
		return string(text)
	}).Draw(t, "not blank")
}

func anyFilter(t *rapid.T) api.Filter {
	number := func(name string) int64 { return rapid.Int64Range(0, 1000).Draw(t, name) }
	f := api.Filter{
		Queue:       anyText(t),
		States:      maybe(t, rapid.SliceOf(rapid.SampledFrom([]string{"failed", "replaying", "replayed", "discarded"}))),
		Group:       number("group"),
		Text:        notBlank(t),
		Error:       notBlank(t),
		MinAttempts: int(number("min")),
		IDs:         maybe(t, rapid.SliceOf(rapid.Int64Range(1, 1<<40))),
		Replay:      number("replay"),
		Refused:     rapid.Bool().Draw(t, "refused"),
	}
	if rapid.Bool().Draw(t, "bounded") {
		f.MaxAttempts = f.MinAttempts + int(number("max"))
		f.Since = time.Unix(number("since"), 5_000_000).UTC()
		f.Until = f.Since.Add(time.Millisecond)
	}
	if name := anyText(t); name != "" {
		f.Headers = api.HeaderTexts{name: rapid.SampledFrom([]string{"", " "}).Draw(t, "space") + string(anyText(t))}
	}
	return f
}

// A filter survives the address of a request, and package failed.
func TestFilterIsLossless(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFilter(t)
		v, err := url.ParseQuery(f.Values().Encode())
		if err != nil {
			t.Fatal(err)
		}
		for name := range v {
			found := false
			for _, known := range api.FilterNames {
				found = found || known == name
			}
			if !found {
				t.Fatalf("%q is not among FilterNames", name)
			}
		}
		got, err := api.ParseFilter(v, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(f, got, emptyHeaders); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(f, api.FilterOf(f.Filter()), emptyHeaders); diff != "" {
			t.Fatal(diff)
		}
		if isZero := cmp.Equal(f, api.Filter{}, emptyHeaders); f.IsZero() != isZero {
			t.Fatalf("IsZero is %v", f.IsZero())
		}
	})
}

// No messages at all is another filter than all messages.
func TestNoIDsAreNotAll(t *testing.T) {
	var f api.Filter
	if err := json.Unmarshal([]byte(`{"ids":[]}`), &f); err != nil {
		t.Fatal(err)
	}
	if f.IsZero() || f.Filter().IDs == nil {
		t.Error("an empty list of ids selects all messages")
	}
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != `{"ids":[]}` {
		t.Errorf("it is %s", b)
	}
}

// FuzzParseFilter looks for an address that is understood as one filter, and written as
// another.
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
		parsed, err := api.ParseFilter(v, time.Now())
		if err != nil {
			return
		}
		again, err := api.ParseFilter(parsed.Values(), time.Now())
		if err != nil {
			t.Fatalf("%q is written as %v: %v", query, parsed.Values(), err)
		}
		if diff := cmp.Diff(parsed, again, emptyHeaders); diff != "" {
			t.Fatalf("%q: %s", query, diff)
		}
	})
}
