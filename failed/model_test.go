package failed_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/topology"
)

// Whatever people do, the archive has what a list of messages in memory has: the same
// messages are found by the same filters, in the same order, and groups and queues
// count what is there. Of each act is a line in the audit log, and of nothing else.
func TestAnArchiveIsAListOfMessages(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		c := newClock()
		a := db.archive(t, c.use, func(cfg *failed.Config) { cfg.Retention = 40 * time.Hour })
		rapid.Check(t, func(t *rapid.T) {
			db.empty(t, a)
			m := &model{a: a, clock: c, counted: map[failed.ReplayID][2]int64{}}
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
				"end":     m.end,
				"purge":   m.purge,
				"pass":    func(t *rapid.T) { c.pass(time.Duration(rapid.IntRange(1, 30).Draw(t, "hours")) * time.Hour) },
			})
			m.check(t)
		})
	})
}

type model struct {
	a       *failed.Archive
	clock   *clock
	all     []*failed.Message // by ID
	edits   map[failed.ID]int
	replays []*failed.Replay
	items   map[failed.ReplayID]map[failed.ID]bool // whether it is sent
	counted map[failed.ReplayID][2]int64
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
	var arrivals []failed.Arrival
	for range rapid.IntRange(1, 4).Draw(t, "n") {
		last := m.clock.now().Add(-time.Duration(rapid.IntRange(0, 4).Draw(t, "ago")) * time.Second)
		x := failed.Message{
			FailedQueue: "f", Queue: someQueue.Draw(t, "queue"), Error: someError.Draw(t, "error"),
			Attempts: rapid.IntRange(1, 4).Draw(t, "attempts"), FirstFailed: last, LastFailed: last,
			Content: failed.Content{Body: []byte(someTenant.Draw(t, "word")), Headers: topology.Table{"tenant": someTenant.Draw(t, "tenant")}},
		}
		if len(m.replays) > 0 && rapid.Bool().Draw(t, "back") {
			r := rapid.SampledFrom(m.replays).Draw(t, "replay")
			ids := slices.Sorted(maps.Keys(m.items[r.ID]))
			of := rapid.SampledFrom(append(ids, 99999)).Draw(t, "of")
			x.Headers[failed.HeaderReplay] = fmt.Sprintf("%d/%d", r.ID, of)
			if of != 99999 {
				x.Back, x.BackOf = r.ID, of
				r.Back++
			}
		}
		arrivals = append(arrivals, failed.Arrival{Message: x})
	}
	ids := value(m.a.Add(ctx, arrivals))(t)
	for i, id := range ids {
		x := arrivals[i].Message
		x.ID, x.State, x.Archived = id, failed.Failed, m.clock.now()
		m.all = append(m.all, &x)
	}
}

func (m *model) filter(t *rapid.T) (f failed.Filter) {
	maybe := func(what string) bool { return rapid.IntRange(0, 3).Draw(t, what) == 0 }
	if maybe("by queue") {
		f.Queue = rapid.SampledFrom([]string{"a", "b", "none"}).Draw(t, "queue")
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
			f.Group = value(m.a.Get(ctx, some.Draw(t, "of the group").ID))(t).Group
		}
		if maybe("by id") {
			f.IDs = []failed.ID{some.Draw(t, "one").ID, some.Draw(t, "two").ID, 12345}
		}
	}
	f.Refused = maybe("refused")
	if len(m.replays) > 0 && maybe("by replay") {
		f.Replay = rapid.SampledFrom(m.replays).Draw(t, "replay").ID
	}
	return f
}

// meant is a filter of messages that something is done to.
func (m *model) meant(t *rapid.T) failed.Filter {
	f := m.filter(t)
	f.All = gocmp.Equal(f, failed.Filter{})
	return f
}

func (m *model) selected(t *rapid.T, f failed.Filter) (out []*failed.Message) {
	for _, x := range m.all {
		all := strings.ToLower(strings.Join([]string{x.Error, string(x.Body)}, " "))
		ok := (f.Queue == "" || f.Queue == x.Queue) &&
			(f.States == nil || slices.Contains(f.States, x.State)) &&
			(f.Error == "" || strings.Contains(x.Error, f.Error)) &&
			(f.Headers == nil || f.Headers["tenant"] == x.Headers["tenant"]) &&
			x.Attempts >= f.MinAttempts && (f.MaxAttempts == 0 || x.Attempts <= f.MaxAttempts) &&
			(f.Since.IsZero() || !x.LastFailed.Before(f.Since) && x.LastFailed.Before(f.Until)) &&
			(f.IDs == nil || slices.Contains(f.IDs, x.ID)) &&
			(f.Replay == 0 || f.Replay == x.Back) && (!f.Refused || x.Refused != "")
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

func (m *model) discard(t *rapid.T) {
	f := m.meant(t)
	var want int64
	for _, x := range m.selected(t, f) {
		if x.State == failed.Failed {
			x.State, x.Discarded = failed.Discarded, "why"
			want++
		}
	}
	m.acted(want)
	if n := value(m.a.Discard(ctx, f, "why", "me"))(t); n != want {
		t.Fatalf("%d discarded, not %d", n, want)
	}
}

func (m *model) restore(t *rapid.T) {
	f := m.meant(t)
	var want int64
	for _, x := range m.selected(t, f) {
		if x.State == failed.Discarded {
			x.State, x.Discarded = failed.Failed, ""
			want++
		}
	}
	m.acted(want)
	if n := value(m.a.Restore(ctx, f, "me"))(t); n != want {
		t.Fatalf("%d restored, not %d", n, want)
	}
}

func (m *model) acted(n int64) {
	if n > 0 {
		m.acts++
	}
}

func (m *model) some(t *rapid.T) *failed.Message {
	if len(m.all) == 0 {
		t.Skip("there is none")
	}
	return rapid.SampledFrom(m.all).Draw(t, "message")
}

func (m *model) edit(t *rapid.T) {
	x := m.some(t)
	c := failed.Content{Body: []byte(anyBytes.Draw(t, "body")), Headers: topology.Table{"n": rapid.Int32().Draw(t, "n")}}
	err := m.a.Edit(ctx, x.ID, x.Revision, c, "me")
	if x.State != failed.Failed {
		if !errors.Is(err, failed.ErrState) {
			t.Fatalf("editing what is %s: %v", x.State, err)
		}
		return
	}
	check(t, err)
	x.Edited = &c
	m.acts++
	if m.edits == nil {
		m.edits = make(map[failed.ID]int)
	}
	m.edits[x.ID]++
	x.Revision = m.edits[x.ID]
	if n := len(value(m.a.Edits(ctx, x.ID))(t)); n != m.edits[x.ID] {
		t.Fatalf("%d revisions after %d edits", n, m.edits[x.ID])
	}
}

func (m *model) revert(t *rapid.T) {
	x := m.some(t)
	err := m.a.Revert(ctx, x.ID, x.Revision, "me")
	if x.State != failed.Failed || x.Edited == nil {
		if !errors.Is(err, failed.ErrState) {
			t.Fatalf("reverting what is %s, edited %v: %v", x.State, x.Edited, err)
		}
		return
	}
	check(t, err)
	x.Edited, x.Revision = nil, 0
	m.acts++
}

func (m *model) begin(t *rapid.T) {
	f := m.meant(t)
	items := make(map[failed.ID]bool)
	var selected []*failed.Message
	for _, x := range m.selected(t, f) {
		if x.State == failed.Failed {
			selected = append(selected, x)
			items[x.ID] = false
		}
	}
	r, err := m.a.BeginReplay(ctx, failed.Plan{Filter: f, Rate: 7}, "me")
	if len(items) == 0 {
		if !errors.Is(err, failed.ErrNotFound) {
			t.Fatalf("a replay of nothing: %v", err)
		}
		return
	}
	check(t, err)
	m.acts++
	for _, x := range selected {
		x.State, x.ReplayedBy, x.Refused = failed.Replaying, r.ID, ""
	}
	if m.items == nil {
		m.items = make(map[failed.ReplayID]map[failed.ID]bool)
	}
	m.items[r.ID] = items
	m.replays = append(m.replays, &failed.Replay{
		ID: r.ID, Plan: failed.Plan{Filter: f, Rate: 7}, State: failed.ReplayRunning, Actor: "me", Begun: m.clock.now(), Total: int64(len(items)),
	})
}

func (m *model) replay(t *rapid.T) *failed.Replay {
	if len(m.replays) == 0 {
		t.Skip("there is none")
	}
	return rapid.SampledFrom(m.replays).Draw(t, "replay")
}

func (m *model) sent(t *rapid.T) {
	r := m.replay(t)
	next := value(m.a.Next(ctx, r.ID, 2))(t)
	if r.State != failed.ReplayRunning && len(next) > 0 {
		t.Fatalf("a replay that is %s has more to send", r.State)
	}
	var ids []failed.ID
	for _, x := range next {
		if sent, is := m.items[r.ID][x.ID]; sent || !is {
			t.Fatalf("message %d is to be sent: an item: %v, sent: %v", x.ID, is, sent)
		}
		ids = append(ids, x.ID)
	}
	if r.State == failed.ReplayRunning && len(ids) < int(min(2, r.Left())) {
		t.Fatalf("%d of %d are sent, and %v come next", r.Sent, r.Total, ids)
	}
	if rapid.Bool().Draw(t, "others, too") { // late, or again
		ids = append(slices.Collect(maps.Keys(m.items[r.ID])), 4711)
	}
	check(t, m.a.Sent(ctx, r.ID, ids))
	for _, id := range ids {
		if sent, is := m.items[r.ID][id]; sent || !is {
			continue
		}
		m.items[r.ID][id] = true
		r.Sent++
		for _, x := range m.all {
			if x.ID == id && (x.State == failed.Failed || x.State == failed.Replaying && x.ReplayedBy == r.ID) {
				x.State, x.ReplayedBy = failed.Replayed, r.ID
			}
		}
	}
}

func (m *model) refuse(t *rapid.T) {
	r := m.replay(t)
	refusals := []failed.Refusal{{ID: 4711, Why: "there is none"}}
	for _, x := range value(m.a.Next(ctx, r.ID, 1))(t) {
		refusals = append(refusals, failed.Refusal{ID: x.ID, Why: "too large"}, failed.Refusal{ID: x.ID, Why: "again"})
		r.Refused++
		if r.Why == "" {
			r.Why = fmt.Sprintf("message %d cannot be sent: too large", x.ID)
		}
		m.items[r.ID][x.ID] = true
		for _, x := range m.all {
			if x.ID == refusals[1].ID {
				x.State, x.ReplayedBy, x.Refused = failed.Failed, 0, "too large"
			}
		}
	}
	check(t, m.a.Refuse(ctx, r.ID, refusals))
}

func (m *model) end(t *rapid.T) {
	r := m.replay(t)
	as := rapid.SampledFrom([]failed.ReplayState{failed.ReplayDone, failed.ReplayCancelled, failed.ReplayStopped}).Draw(t, "as")
	err := m.a.EndReplay(ctx, r.ID, as, "so", "me")
	if r.State != failed.ReplayRunning || as == failed.ReplayDone && r.Left() > 0 {
		if !errors.Is(err, failed.ErrState) {
			t.Fatalf("ending what is %s as %s, %d of %d sent: %v", r.State, as, r.Sent, r.Total, err)
		}
		return
	}
	check(t, err)
	m.acts++
	r.State, r.Why, r.Ended = as, "so", m.clock.now()
	for _, x := range m.all {
		if x.State == failed.Replaying && x.ReplayedBy == r.ID {
			x.State, x.ReplayedBy = failed.Failed, 0
		}
	}
}

func (m *model) purge(t *rapid.T) {
	before := m.clock.now().Add(-40 * time.Hour)
	var want int64
	if m.purged == nil {
		m.purged = make(map[string]int64)
	}
	m.all = slices.DeleteFunc(m.all, func(x *failed.Message) bool {
		old := x.State != failed.Replaying && x.Archived.Before(before)
		if old {
			want++
			m.purged[x.Queue]++
		}
		return old
	})
	m.acted(want)
	if n := value(m.a.WouldPurge(ctx))(t); n != want {
		t.Fatalf("%d would be purged, not %d", n, want)
	}
	if n := value(m.a.Purge(ctx, "me"))(t); n != want {
		t.Fatalf("%d purged, not %d", n, want)
	}
	if want > 0 { // what ended before is forgotten
		for _, r := range m.replays {
			if !r.Ended.IsZero() && r.Ended.Before(before) {
				m.items[r.ID] = nil
			}
		}
	}
}

func (m *model) check(t *rapid.T) {
	m.checkList(t)
	m.checkCounts(t)
	for _, want := range m.replays {
		got := value(m.a.Replay(ctx, want.ID))(t)
		if d := gocmp.Diff(want, got, same); d != "" {
			t.Fatalf("replay: (-want +got)\n%s", d)
		}
	}
	acts := 0
	for cursor := failed.Cursor(""); ; {
		page, next, err := m.a.Acts(ctx, failed.Page{After: cursor, Size: 7})
		check(t, err)
		acts += len(page)
		if cursor = next; next == "" {
			break
		}
	}
	if acts != m.acts {
		t.Fatalf("%d acts are on record, not %d", acts, m.acts)
	}
}

func (m *model) checkList(t *rapid.T) {
	f := m.filter(t)
	selected := m.selected(t, f)
	var got, want []failed.Summary
	for cursor := failed.Cursor(""); ; {
		page, next, err := m.a.List(ctx, f, failed.Page{After: cursor, Size: 2})
		check(t, err)
		got = append(got, page...)
		if cursor = next; next == "" {
			break
		}
	}
	for _, x := range selected {
		want = append(want, failed.Summary{
			ID: x.ID, State: x.State, Queue: x.Queue, FailedQueue: x.FailedQueue, Archived: x.Archived, Attempts: x.Attempts, Error: x.Error,
			FirstFailed: x.FirstFailed, LastFailed: x.LastFailed, Edited: x.Edited != nil, ReplayedBy: x.ReplayedBy,
			Back: x.Back, BackOf: x.BackOf, Discarded: x.Discarded, Refused: x.Refused, Size: len(x.Body),
		})
	}
	for i := range got {
		got[i].Group = 0
	}
	if d := gocmp.Diff(want, got, same); d != "" {
		t.Fatalf("%+v: (-want +got)\n%s", f, d)
	}
	if n := value(m.a.Count(ctx, f))(t); n.N != int64(len(want)) || n.More {
		t.Fatalf("%+v: counted %v, not %d", f, n, len(want))
	}
	i := len(selected)
	for x, err := range m.a.Each(ctx, f) {
		check(t, err)
		if i--; i < 0 || x.ID != selected[i].ID {
			t.Fatalf("%+v: Each yields %d", f, x.ID)
		}
		if d := gocmp.Diff(selected[i].Edited, x.Edited, same); d != "" {
			t.Fatalf("edited: %s", d)
		}
	}
	if i != 0 {
		t.Fatalf("Each leaves out %d", i)
	}
}

func (m *model) checkCounts(t *rapid.T) {
	type key struct {
		queue, text string
	}
	count := func(c *failed.Counts, s failed.State) {
		switch s {
		case failed.Failed:
			c.Failed++
		case failed.Replaying:
			c.Replaying++
		case failed.Replayed:
			c.Replayed++
		case failed.Discarded:
			c.Discarded++
		}
	}
	groups, queues := make(map[key]failed.Counts), make(map[string]failed.Counts)
	for _, x := range m.all {
		k := key{x.Queue, failed.Fingerprint(x.Error)}
		g, q := groups[k], queues[x.Queue]
		count(&g, x.State)
		count(&q, x.State)
		groups[k], queues[x.Queue] = g, q
	}
	order := rapid.SampledFrom([]failed.GroupOrder{failed.ByLast, failed.ByFailed}).Draw(t, "order")
	got := make(map[key]failed.Counts)
	var before *failed.Group
	for cursor := failed.Cursor(""); ; {
		page, next, err := m.a.Groups(ctx, failed.GroupFilter{Order: order}, failed.Page{After: cursor, Size: 2})
		check(t, err)
		for _, g := range page {
			if before != nil && (order == failed.ByLast && before.Last.Before(g.Last) || order == failed.ByFailed && before.Counts.Failed < g.Counts.Failed) {
				t.Fatalf("by %q, %+v comes before %+v", order, before, g)
			}
			before = &g
			got[key{g.Queue, g.Text}] = g.Counts
			var n int64
			for _, b := range g.Trend.Days {
				n += b.N
			}
			if n < g.Counts.Total() {
				t.Fatalf("%d failures in the trend of a group that has %d", n, g.Counts.Total())
			}
		}
		if cursor = next; next == "" {
			break
		}
	}
	if d := gocmp.Diff(groups, got, same); d != "" {
		t.Fatalf("groups: (-want +got)\n%s", d)
	}
	for _, q := range value(m.a.Queues(ctx))(t) {
		if q.Counts != queues[q.Queue] || q.Purged != m.purged[q.Queue] {
			t.Fatalf("%+v, not %+v with %d purged", q, queues[q.Queue], m.purged[q.Queue])
		}
		delete(queues, q.Queue)
	}
	if len(queues) > 0 {
		t.Fatalf("missing queues: %v", queues)
	}
}
