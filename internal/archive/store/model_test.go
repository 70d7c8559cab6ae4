package store_test

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/internal/testkit/flags"
	"github.com/reprisemq/reprise/topology"
)

// After any sequence of acts, the archive contains the same messages as a list in memory. Filters select the same
// messages in the same order, and groups and queues have the right counts. The audit log has one entry for each act and
// no other entries.
func TestArchiveMatchesModel(t *testing.T) {
	flags.Default(t, "rapid.checks", "20")
	eachDatabase(t, func(t *testing.T, db database) {
		c := newClock()
		a := db.archive(t, c.use, func(cfg *store.Config) { cfg.Retention = 40 * time.Hour })
		rapid.Check(t, func(t *rapid.T) {
			db.empty(t, a)
			m := &model{
				a: a, clock: c, refused: map[failed.ReplayID]map[failed.ID]string{}, known: map[failed.ReplayID]map[failed.ID]failed.Outcome{},
				secrets: map[failed.ReplayID]string{}, pending: map[failed.ReplayID]int64{},
			}
			t.Repeat(map[string]func(*rapid.T){
				"": func(t *rapid.T) {
					if rapid.IntRange(0, 3).Draw(t, "look") == 0 {
						m.check(t)
					}
				},
				"add":     m.add,
				"add 2":   m.add,
				"discard": m.discard,
				"restore": m.restore,
				"edit":    m.edit,
				"revert":  m.revert,
				"begin":   m.begin,
				"sent":    m.sent,
				"refuse":  m.refuse,
				"settle":  m.settle,
				"end":     m.end,
				"purge":   m.purge,
				"ask":     m.ask,
				"report":  m.report,
				"pass":    func(t *rapid.T) { c.pass(time.Duration(rapid.IntRange(1, 30).Draw(t, "hours")) * time.Hour) },
			})
			m.check(t)
		})
	})
}

type model struct {
	a       *store.Archive
	clock   *clock
	all     []*failed.Message // by ID, from 1
	edits   map[failed.ID]int
	replays []*failed.Replay
	items   map[failed.ReplayID]map[failed.ID]bool // true: the message was sent
	secrets map[failed.ReplayID]string             // only of replays that request outcome reports
	known   map[failed.ReplayID]map[failed.ID]failed.Outcome
	pending map[failed.ReplayID]int64
	refused map[failed.ReplayID]map[failed.ID]string
	acts    int
	purged  map[string]int64
}

var ctx = context.Background()

var (
	someQueue  = rapid.SampledFrom([]string{"a", "b"})
	someError  = rapid.SampledFrom([]string{"order 1: down", "order 22: down", "refused by host x", "Ünknown \x00 reason", ""})
	someTenant = rapid.SampledFrom([]string{"red", "blue"})
	someState  = rapid.SampledFrom(failed.States())
)

func (m *model) add(t *rapid.T) {
	var arrivals []failed.Arrived
	for range rapid.IntRange(1, 4).Draw(t, "n") {
		last := m.clock.now().Add(-time.Duration(rapid.IntRange(0, 4).Draw(t, "ago")) * time.Second)
		x := failed.Message{
			FailedQueue: "f", Queue: someQueue.Draw(t, "queue"), Error: someError.Draw(t, "error"),
			Attempts: rapid.IntRange(1, 4).Draw(t, "attempts"), FirstFailed: last, LastFailed: last,
			Content: failed.Content{Body: []byte(someTenant.Draw(t, "word")), Headers: topology.Table{"tenant": someTenant.Draw(t, "tenant")}},
		}
		if len(m.replays) > 0 && rapid.Bool().Draw(t, "back") {
			m.failsAgain(t, &x)
		}
		arrivals = append(arrivals, failed.Arrived{Message: x})
	}
	ids := value(m.a.Ingest(ctx, arrivals))(t)
	for i, id := range ids {
		x := arrivals[i].Message
		x.ID, x.State, x.Archived = id, failed.Failed, m.clock.now()
		m.all = append(m.all, &x)
	}
}

func (m *model) filter(t *rapid.T) (f failed.Filter) {
	maybe := func(what string) bool { return rapid.IntRange(0, 3).Draw(t, what) == 0 }
	if maybe("by queue") {
		f.Queue = rapid.SampledFrom([]params.Text{"a", "b", "none"}).Draw(t, "queue")
	}
	if maybe("by state") {
		f.States = rapid.SliceOfN(someState, 0, 3).Draw(t, "states")
	}
	if maybe("by text") {
		f.Text = rapid.SampledFrom([]string{"down", "ORDER 22", "red", "ünknown", "blue, down!", "nothing"}).Draw(t, "text")
	}
	if maybe("by error") {
		f.Error = rapid.SampledFrom([]string{"down", "rder 1: d", "\x00 ", "refused by host x", "%"}).Draw(t, "part")
	}
	if maybe("by header") {
		f.Headers = map[string]string{"tenant": someTenant.Draw(t, "tenant")}
	}
	if maybe("by attempts") {
		f.MinAttempts = rapid.IntRange(0, 3).Draw(t, "least")
		f.MaxAttempts = rapid.SampledFrom([]int{0, 3, 4}).Draw(t, "most")
	}
	if maybe("by time") {
		f.Since = m.clock.now().Add(-time.Duration(rapid.IntRange(0, 8000).Draw(t, "since")) * time.Millisecond)
		f.Until = f.Since.Add(time.Duration(rapid.IntRange(1, 4000).Draw(t, "for")) * time.Millisecond)
	}
	if len(m.all) > 0 {
		some := rapid.Custom(func(t *rapid.T) *failed.Message { return rapid.SampledFrom(m.all).Draw(t, "message") })
		if maybe("by group") {
			f.Group = value(m.a.Get(ctx, some.Draw(t, "message of the group").ID))(t).Group
		}
		if maybe("by id") {
			f.IDs = []failed.ID{some.Draw(t, "one").ID, some.Draw(t, "two").ID, 12345}
		}
	}
	f.Refused = maybe("refused")
	if len(m.replays) > 0 && maybe("by replay") {
		f.Replay = rapid.SampledFrom(m.replays).Draw(t, "replay").ID
	}
	if len(m.replays) > 0 && maybe("refused by a replay") {
		f.RefusedBy = rapid.SampledFrom(m.replays).Draw(t, "replay").ID
	} else if len(m.replays) > 0 && maybe("sent by a replay") {
		f.SentBy = rapid.SampledFrom(m.replays).Draw(t, "replay").ID
		f.Outcome = rapid.SampledFrom(append(failed.Outcomes(), "")).Draw(t, "outcome")
	}
	return f
}

// actFilter draws a filter that is valid for an act.
func (m *model) actFilter(t *rapid.T) failed.Filter {
	f := m.filter(t)
	f.All = gocmp.Equal(f, failed.Filter{})
	return f
}

func (m *model) selected(t *rapid.T, f failed.Filter) (out []*failed.Message) {
	for _, x := range m.all {
		all := strings.ToLower(strings.Join([]string{x.Error, string(x.Body)}, " "))
		ok := (f.Queue == "" || string(f.Queue) == x.Queue) &&
			(f.States == nil || slices.Contains(f.States, x.State)) &&
			(f.Error == "" || strings.Contains(x.Error, f.Error)) &&
			(f.Headers == nil || f.Headers["tenant"] == x.Headers["tenant"]) &&
			x.Attempts >= f.MinAttempts && (f.MaxAttempts == 0 || x.Attempts <= f.MaxAttempts) &&
			(f.Since.IsZero() || !x.LastFailed.Before(f.Since) && x.LastFailed.Before(f.Until)) &&
			(f.IDs == nil || slices.Contains(f.IDs, x.ID)) &&
			(f.Replay == 0 || f.Replay == x.Back) && (!f.Refused || x.Refused != "") &&
			(f.RefusedBy == 0 || m.refused[f.RefusedBy][x.ID] != "") &&
			(f.SentBy == 0 || m.outcome(f.SentBy, x.ID) != "" && (f.Outcome == "" || f.Outcome == m.outcome(f.SentBy, x.ID)))
		for _, w := range strings.FieldsFunc(strings.ToLower(f.Text), func(r rune) bool { return strings.ContainsRune(" ,!", r) }) {
			ok = ok && slices.Contains(strings.FieldsFunc(all, func(r rune) bool { return strings.ContainsRune(" :\x00", r) }), w)
		}
		if ok && f.Group != 0 {
			ok = value(m.a.Get(ctx, x.ID))(t).Group == f.Group
		}
		if ok {
			out = append(out, x)
		}
	}
	slices.SortFunc(out, func(a, b *failed.Message) int {
		return cmp.Or(cmp.Compare(b.LastFailed.Unix(), a.LastFailed.Unix()), cmp.Compare(b.ID, a.ID))
	})
	return out
}
