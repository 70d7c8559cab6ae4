package store_test

import (
	"errors"
	"slices"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/topology"
)

func (m *model) discard(t *rapid.T) {
	f := m.actFilter(t)
	var want int64
	for _, x := range m.selected(t, f) {
		if x.State == failed.Failed {
			x.State, x.Discarded = failed.Discarded, "why"
			want++
		}
	}
	m.acted(want)
	if n := value(m.a.Discard(ctx, f, "why", "me"))(t); n != want {
		t.Fatalf("Discard: got %d messages, want %d", n, want)
	}
}

func (m *model) restore(t *rapid.T) {
	f := m.actFilter(t)
	var want int64
	for _, x := range m.selected(t, f) {
		if x.State == failed.Discarded {
			x.State, x.Discarded = failed.Failed, ""
			want++
		}
	}
	m.acted(want)
	if n := value(m.a.Restore(ctx, f, "me"))(t); n != want {
		t.Fatalf("Restore: got %d messages, want %d", n, want)
	}
}

func (m *model) acted(n int64) {
	if n > 0 {
		m.acts++
	}
}

func (m *model) some(t *rapid.T) *failed.Message {
	if len(m.all) == 0 {
		t.Skip("no messages")
	}
	return rapid.SampledFrom(m.all).Draw(t, "message")
}

func (m *model) edit(t *rapid.T) {
	x := m.some(t)
	c := failed.Content{Body: []byte(anyBytes.Draw(t, "body")), Headers: topology.Table{"n": rapid.Int32().Draw(t, "n")}}
	err := m.a.Edit(ctx, x.ID, x.Revision, c, "me")
	if x.State != failed.Failed {
		if !errors.Is(err, failed.ErrState) {
			t.Fatalf("edit of a message in state %s: got error %v, want ErrState", x.State, err)
		}
		return
	}
	check(t, err)
	if x.Edited != nil && gocmp.Equal(*x.Edited, c, same) {
		return // the edit has no effect
	}
	x.Edited = &c
	m.acts++
	if m.edits == nil {
		m.edits = make(map[failed.ID]int)
	}
	m.edits[x.ID]++
	x.Revision = m.edits[x.ID]
	if n := len(value(m.a.Edits(ctx, x.ID))(t)); n != m.edits[x.ID] {
		t.Fatalf("got %d revisions, want %d", n, m.edits[x.ID])
	}
}

func (m *model) revert(t *rapid.T) {
	x := m.some(t)
	err := m.a.Revert(ctx, x.ID, x.Revision, "me")
	if x.State != failed.Failed || x.Edited == nil {
		if !errors.Is(err, failed.ErrState) {
			t.Fatalf("revert of a message in state %s with edit %v: got error %v, want ErrState", x.State, x.Edited, err)
		}
		return
	}
	check(t, err)
	x.Edited, x.Revision = nil, 0
	m.acts++
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
		t.Fatalf("WouldPurge: got %d messages, want %d", n, want)
	}
	if n := value(m.a.Purge(ctx, "me"))(t); n != want {
		t.Fatalf("Purge: got %d messages, want %d", n, want)
	}
	if want > 0 { // the purge also deletes items of replays that ended before this time
		for _, r := range m.replays {
			if !r.Ended.IsZero() && r.Ended.Before(before) {
				m.items[r.ID], m.refused[r.ID] = nil, nil
			}
		}
	}
}
