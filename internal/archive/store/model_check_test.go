package store_test

import (
	"cmp"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

func (m *model) check(t *rapid.T) {
	m.checkList(t)
	m.checkCounts(t)
	for _, want := range m.replays {
		got := value(m.a.Replay(ctx, want.ID))(t)
		if d := gocmp.Diff(m.seen(want), got, same); d != "" {
			t.Fatalf("replay: (-want +got)\n%s", d)
		}
	}
	acts := 0
	for cursor := string(""); ; {
		page, next, err := m.a.Acts(ctx, store.ActFilter{}, store.Page{After: cursor, Size: 7})
		check(t, err)
		acts += len(page)
		if cursor = next; next == "" {
			break
		}
	}
	if acts != m.acts {
		t.Fatalf("got %d acts, want %d", acts, m.acts)
	}
}

func (m *model) checkList(t *rapid.T) {
	f := m.filter(t)
	selected := m.selected(t, f)
	var got, want []failed.Summary
	for cursor := string(""); ; {
		page, next, err := m.a.List(ctx, f, store.Page{After: cursor, Size: 2})
		check(t, err)
		got = append(got, page...)
		if cursor = next; next == "" {
			break
		}
	}
	for _, x := range selected {
		refused := x.Refused
		if f.RefusedBy != 0 {
			refused = m.refused[f.RefusedBy][x.ID]
		}
		want = append(want, failed.Summary{
			ID: x.ID, State: x.State, Queue: x.Queue, FailedQueue: x.FailedQueue, Archived: x.Archived, Attempts: x.Attempts, Error: x.Error,
			FirstFailed: x.FirstFailed, LastFailed: x.LastFailed, Edited: x.Edited != nil, ReplayedBy: x.ReplayedBy,
			Back: x.Back, BackOf: x.BackOf, Discarded: x.Discarded, Refused: refused, MessageID: x.Properties.MessageID, Size: len(x.Body),
			Outcome: m.outcome(cmp.Or(f.SentBy, x.ReplayedBy), x.ID),
		})
	}
	for i := range got {
		if why := got[i].WhyUnknown; (why != "") != (got[i].Outcome == failed.OutcomeUnknown) {
			t.Fatalf("message %d: outcome %s does not match WhyUnknown %q", got[i].ID, got[i].Outcome, why)
		}
		got[i].Group, got[i].WhyUnknown = 0, ""
	}
	if d := gocmp.Diff(want, got, same); d != "" {
		t.Fatalf("List %+v: (-want +got)\n%s", f, d)
	}
	if n := value(m.a.Count(ctx, f))(t); n.N != int64(len(want)) || n.More {
		t.Fatalf("Count %+v: got %v, want %d", f, n, len(want))
	}
	i := len(selected)
	for x, err := range m.a.Each(ctx, f) {
		check(t, err)
		if i--; i < 0 || x.ID != selected[i].ID {
			t.Fatalf("Each %+v: unexpected message %d", f, x.ID)
		}
		if d := gocmp.Diff(selected[i].Edited, x.Edited, same); d != "" {
			t.Fatalf("Each: edited content differs: %s", d)
		}
	}
	if i != 0 {
		t.Fatalf("Each: %d messages are missing", i)
	}
}

func (m *model) checkCounts(t *rapid.T) {
	type key struct {
		queue, text string
	}
	count := func(c *store.Counts, s failed.State) {
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
	groups, queues := make(map[key]store.Counts), make(map[string]store.Counts)
	for _, x := range m.all {
		k := key{x.Queue, failed.Fingerprint(x.Error)}
		g, q := groups[k], queues[x.Queue]
		count(&g, x.State)
		count(&q, x.State)
		groups[k], queues[x.Queue] = g, q
	}
	mostFailed := rapid.Bool().Draw(t, "order")
	got := make(map[key]store.Counts)
	var before *store.Group
	for cursor := string(""); ; {
		page, next, err := m.a.Groups(ctx, store.GroupFilter{MostFailed: mostFailed}, store.Page{After: cursor, Size: 2})
		check(t, err)
		for _, g := range page {
			if before != nil && (!mostFailed && before.Last.Before(g.Last) || mostFailed && before.Counts.Failed < g.Counts.Failed) {
				t.Fatalf("Groups (most failed first: %v): group %+v comes before %+v", mostFailed, before, g)
			}
			before = &g
			got[key{string(g.Queue), g.Text}] = g.Counts
			var n int64
			for _, b := range g.Days {
				n += b.N
			}
			if n < g.Counts.Total() {
				t.Fatalf("trend of a group: got %d failures, want at least %d", n, g.Counts.Total())
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
		if q.Counts != queues[string(q.Queue)] || q.Purged != m.purged[string(q.Queue)] {
			t.Fatalf("queue: got %+v, want counts %+v and %d purged", q, queues[string(q.Queue)], m.purged[string(q.Queue)])
		}
		delete(queues, string(q.Queue))
	}
	if len(queues) > 0 {
		t.Fatalf("missing queues: %v", queues)
	}
}
