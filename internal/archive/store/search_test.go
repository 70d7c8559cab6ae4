package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/internal/testkit/flags"
	"github.com/reprisemq/reprise/topology"
)

func ids(list []failed.Summary) (ids []failed.ID) {
	for _, s := range list {
		ids = append(ids, s.ID)
	}
	return ids
}

func TestSearch(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t, func(c *store.Config) {
			c.Redact = []failed.Rule{{Header: "Authorization"}, {Path: "card.number"}}
		})
		id := value(a.Ingest(t.Context(), []failed.Arrived{{Message: failed.Message{
			FailedQueue: "q.failed", Error: "dial tcp: Connection REFUSED", Reason: "10 attempts made",
			Errors: []reprise.AttemptError{{Attempt: 1, Error: "first there was a timeout"}},
			Content: failed.Content{
				Body:       []byte(`{"order": "A-4711", "card": {"number": "4000-1234"}, "größe": "XXL", "city": "東京", "note": "` + strings.Repeat("n", 200) + `"}`),
				Properties: failed.Properties{MessageID: "550e8400-e29b-41d4", CorrelationID: "corr-7"},
				Headers:    topology.Table{"tenant": "red", "n": int32(-5), "yes": true, "authorization": "Bearer s3cret", "at": time.Unix(1767225600, 0)},
			},
		}}, {Message: failed.Message{FailedQueue: "q.failed", Content: failed.Content{Body: []byte("gzip\xff\x00 order")}}}}))(t)[0]
		for _, text := range []string{
			"refused", "connection dial", "TIMEOUT", "attempts 10", "a-4711", `"order"`, "GRÖSSE größe", "京", "東京",
			"550e8400-e29b-41d4", "corr-7", strings.Repeat("n", 200), "tcp OR:", "xxl*",
		} {
			if text == "GRÖSSE größe" { // the search ignores case, but not spelling
				text = "GRÖßE"
			}
			f := failed.Filter{Text: text}
			if text == "tcp OR:" { // OR is an ordinary word
				list, _, err := a.List(t.Context(), f, store.Page{})
				check(t, err)
				if len(list) > 0 {
					t.Errorf("%q: got %v, want no messages", text, ids(list))
				}
				continue
			}
			list, _, err := a.List(t.Context(), f, store.Page{})
			check(t, err)
			if len(list) != 1 || list[0].ID != id {
				t.Errorf("%q: got %v, want %d", text, ids(list), id)
			}
		}
		for _, f := range []failed.Filter{
			{Headers: map[string]string{"tenant": "red"}},
			{Headers: map[string]string{"n": "-5", "yes": "true"}},
			{Headers: map[string]string{"at": "2026-01-01T00:00:00Z"}},
			{Error: "tcp: Connection REF"},
		} {
			if list := ids(first(a.List(t.Context(), f, store.Page{}))(t)); len(list) != 1 || list[0] != id {
				t.Errorf("%+v: got messages %v, want only %d", f, list, id)
			}
		}
		for _, f := range []failed.Filter{
			{Text: "4000"},
			{Text: "s3cret"},
			{Text: "refuse"},
			{Headers: map[string]string{"authorization": "Bearer s3cret"}},
			{Headers: map[string]string{"authorization": "[redacted]"}},
			{Headers: map[string]string{"tenant": "RED"}},
			{Headers: map[string]string{"n": "5"}},
			{Error: "connection"},
		} {
			if list := ids(first(a.List(t.Context(), f, store.Page{}))(t)); len(list) != 0 {
				t.Errorf("%+v: got messages %v, want none", f, list)
			}
		}
	})
}

func first(list []failed.Summary, _ string, err error) func(rapid.TB) []failed.Summary {
	return value(list, err)
}

// A search string has no syntax, so any string that contains a word is valid.
func TestSearchAcceptsAnyText(t *testing.T) {
	flags.Default(t, "rapid.checks", "25")
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		hostile := rapid.OneOf(anyBytes, rapid.SampledFrom([]string{
			`"`, `a"b`, `a AND`, `NOT`, `NEAR(a b)`, `a*`, `^a`, `words:a`, `-a`, `{a b}:c`, `(`, `a & | ! b`, `a:*B`, `'`, `\`, `a\`, `;--`, "a\x00b", "$1", "?1", "{search}", "%s%d", "¶q1", "ß İ ǆ",
		}), rapid.StringMatching(`[a"'()*:&|!<>\\^{} $?-]{1,12}`))
		rapid.Check(t, func(t *rapid.T) {
			text := hostile.Draw(t, "text")
			id := value(a.Ingest(ctx, []failed.Arrived{{Message: failed.Message{FailedQueue: "q.failed", Error: text}}}))(t)[0]
			for _, f := range []failed.Filter{
				{Text: text},
				{Text: text, Queue: "q"},
				{Error: text, IDs: []failed.ID{id}},
				{Text: text, States: []failed.State{failed.Failed}, IDs: []failed.ID{id}},
			} {
				list, _, err := a.List(ctx, f, store.Page{Size: 1})
				if f.Text != "" && errors.Is(err, failed.ErrInvalid) {
					if strings.ContainsAny(text, "abcdefghijklmnopqrstuvwxyz0123456789") {
						t.Fatalf("text %q: got error %v", text, err)
					}
					continue
				}
				if f.Error != "" && strings.TrimSpace(f.Error) == "" {
					if !errors.Is(err, failed.ErrInvalid) {
						t.Fatalf("blank error %q: got error %v, want ErrInvalid", text, err)
					}
					continue
				}
				check(t, err)
				if len(list) == 0 {
					t.Fatalf("%+v does not find message %d", f, id)
				}
				value(a.Count(ctx, f))(t)
			}
			_, _, err := a.List(ctx, failed.Filter{Headers: map[string]string{text: text}}, store.Page{})
			check(t, err)
			_, _, err = a.Groups(ctx, store.GroupFilter{Text: text, Queue: params.Text(text)}, store.Page{})
			check(t, err)
		})
	})
}

// Even if messages arrive between two pages, the pages contain each earlier message once, in the same order.
func TestPagesAreStable(t *testing.T) {
	flags.Default(t, "rapid.checks", "25")
	eachDatabase(t, func(t *testing.T, db database) {
		c := newClock()
		a := db.archive(t, c.use)
		rapid.Check(t, func(t *rapid.T) {
			db.empty(t, a)
			add := func(n int) {
				for range n {
					last := c.now().Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "later")) * time.Second)
					value(a.Ingest(ctx, []failed.Arrived{{Message: failed.Message{FailedQueue: someQueue.Draw(t, "queue"), Error: "word", LastFailed: last}}}))(t)
				}
			}
			add(rapid.IntRange(0, 12).Draw(t, "before"))
			f := rapid.SampledFrom([]failed.Filter{{}, {Queue: "a"}, {Text: "word"}, {States: []failed.State{failed.Failed, failed.Discarded}}, {MinAttempts: 0, MaxAttempts: 1}}).Draw(t, "filter")
			all := ids(first(a.List(ctx, f, store.Page{}))(t))
			var got []failed.ID
			there := make(map[failed.ID]bool)
			for _, id := range all {
				there[id] = true
			}
			for next := string(""); ; {
				page, after, err := a.List(ctx, f, store.Page{After: next, Size: 3})
				check(t, err)
				for _, s := range page {
					if there[s.ID] {
						got = append(got, s.ID)
					}
				}
				if next = after; next == "" {
					break
				}
				add(rapid.IntRange(0, 3).Draw(t, "between"))
			}
			if len(got) != len(all) {
				t.Fatalf("got pages %v, want %v", got, all)
			}
			for i := range got {
				if got[i] != all[i] {
					t.Fatalf("got pages %v, want %v", got, all)
				}
			}
		})
	})
}

func TestListRejectsInvalidArguments(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		now := time.Now()
		for _, c := range []struct {
			f    failed.Filter
			p    store.Page
			says string
		}{
			{failed.Filter{States: []failed.State{"lost"}}, store.Page{}, `state “lost” not found`},
			{failed.Filter{Error: " \n"}, store.Page{}, "error must not be blank"},
			{failed.Filter{Text: "!?"}, store.Page{}, "text must have a letter or a digit"},
			{failed.Filter{MinAttempts: 3, MaxAttempts: 2}, store.Page{}, "must not be more than"},
			{failed.Filter{MinAttempts: -1}, store.Page{}, "must not be negative"},
			{failed.Filter{Since: now, Until: now}, store.Page{}, "must be before"},
			{failed.Filter{}, store.Page{Size: 1001}, "must be between 0 and 1000"},
			{failed.Filter{}, store.Page{After: "!"}, "is not a cursor"},
		} {
			_, _, err := a.List(t.Context(), c.f, c.p)
			if !errors.Is(err, failed.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%+v %+v: got error %v, want %q", c.f, c.p, err, c.says)
			}
		}
		if _, _, err := a.Groups(t.Context(), store.GroupFilter{State: "lost"}, store.Page{}); !errors.Is(err, failed.ErrInvalid) {
			t.Errorf("groups in an unknown state: got error %v, want ErrInvalid", err)
		}
		blank := failed.Filter{Error: " \t\u00a0"}
		if n, err := a.Discard(t.Context(), blank, "so", "me"); !errors.Is(err, failed.ErrInvalid) {
			t.Errorf("discard by blank error: got %d, %v, want ErrInvalid", n, err)
		}
		if _, err := a.BeginReplay(t.Context(), failed.Plan{Filter: blank}, "me"); !errors.Is(err, failed.ErrInvalid) {
			t.Errorf("replay by blank error: got error %v, want ErrInvalid", err)
		}
		all := failed.Filter{All: true}
		if _, err := a.Discard(t.Context(), all, " ", "me"); !errors.Is(err, failed.ErrInvalid) {
			t.Errorf("discard without a reason: got error %v, want ErrInvalid", err)
		}
		if _, err := a.Discard(t.Context(), all, "so", ""); !errors.Is(err, failed.ErrInvalid) {
			t.Errorf("discard without an actor: got error %v, want ErrInvalid", err)
		}
	})
}
