package console

import (
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/failed"
)

// What an address says of a filter is that filter again, so that what is replayed is what
// was looked at.
func TestFilterQuery(t *testing.T) {
	text := rapid.StringMatching(`[a-zA-Z0-9<&"'/?=ü.-]{0,12}`)
	moment := rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "none") {
			return time.Time{}
		}
		return time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(t, "ms")).UTC()
	})
	rapid.Check(t, func(t *rapid.T) {
		f := failed.Filter{
			Queue: text.Draw(t, "queue"), Text: text.Draw(t, "text"), Error: text.Draw(t, "error"),
			Group: failed.GroupID(rapid.Int64Range(0, 99).Draw(t, "group")), Replay: failed.ReplayID(rapid.Int64Range(0, 9).Draw(t, "replay")),
			MinAttempts: rapid.IntRange(0, 9).Draw(t, "min"), MaxAttempts: rapid.IntRange(0, 9).Draw(t, "max"),
			Since: moment.Draw(t, "since"), Until: moment.Draw(t, "until"),
		}
		for _, s := range failed.States() {
			if rapid.Bool().Draw(t, string(s)) {
				f.States = append(f.States, s)
			}
		}
		for range rapid.IntRange(0, 3).Draw(t, "ids") {
			f.IDs = append(f.IDs, failed.ID(rapid.Int64Range(1, 99).Draw(t, "id")))
		}
		if rapid.Bool().Draw(t, "header") {
			f.Headers = map[string]string{"tenant": text.Draw(t, "value"), "x-" + text.Draw(t, "name"): "1"}
		}
		query, err := url.ParseQuery(filterQuery(f).Encode())
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseFilter(query, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(f, got); d != "" {
			t.Fatal(d)
		}
	})
}

func TestParseFilter(t *testing.T) {
	now := time.Date(2026, 3, 8, 12, 0, 0, 0, time.UTC)
	f, err := parseFilter(url.Values{"since": {"7d"}, "until": {"90m"}, "header": {"a: b\nc:d"}}, now)
	if err != nil {
		t.Fatal(err)
	}
	want := failed.Filter{
		States: []failed.State{failed.Failed}, Since: now.Add(-7 * 24 * time.Hour), Until: now.Add(-90 * time.Minute),
		Headers: map[string]string{"a": "b", "c": "d"},
	}
	if d := cmp.Diff(want, f); d != "" {
		t.Error(d)
	}
	for name, value := range map[string]string{"state": "lost", "group": "x", "since": "yesterday", "id": "1,2", "header": "tenant", "min": "-1"} {
		if f, err := parseFilter(url.Values{name: {value}}, now); err == nil {
			t.Errorf("%s=%s is %+v", name, value, f)
		}
	}
}
