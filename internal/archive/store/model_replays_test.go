package store_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

func (m *model) begin(t *rapid.T) {
	f := m.actFilter(t)
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
			t.Fatalf("replay without messages: got error %v, want ErrNotFound", err)
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
		t.Skip("no replays")
	}
	return rapid.SampledFrom(m.replays).Draw(t, "replay")
}

func (m *model) sent(t *rapid.T) {
	r := m.replay(t)
	next := value(m.a.UnsentOf(ctx, r.ID, 2))(t)
	if r.State != failed.ReplayRunning && len(next) > 0 {
		t.Fatalf("Next returns messages of a replay in state %s", r.State)
	}
	var ids []failed.ID
	for _, x := range next {
		if sent, is := m.items[r.ID][x.ID]; sent || !is {
			t.Fatalf("Next returns message %d (belongs to the replay: %v, sent: %v)", x.ID, is, sent)
		}
		ids = append(ids, x.ID)
	}
	if r.State == failed.ReplayRunning && len(ids) < int(min(2, r.Left())) {
		t.Fatalf("Next, with %d of %d messages sent: got only %v", r.Sent, r.Total, ids)
	}
	if rapid.Bool().Draw(t, "also others") { // unsent messages, and messages that are already recorded
		ids = append(slices.Collect(maps.Keys(m.items[r.ID])), 4711)
	}
	asked := rapid.Bool().Draw(t, "asked")
	if asked {
		check(t, m.a.Sent(ctx, r.ID, ids))
	} else {
		check(t, m.a.SentUnasked(ctx, r.ID, ids))
	}
	for _, id := range ids {
		m.noteSent(r, id, asked)
	}
}

func (m *model) refuse(t *rapid.T) {
	r := m.replay(t)
	why := fmt.Sprint("too large for replay ", r.ID)
	refusals := []store.Refusal{{ID: 4711, Why: "unknown message"}}
	for _, x := range value(m.a.UnsentOf(ctx, r.ID, 1))(t) {
		refusals = append(refusals, store.Refusal{ID: x.ID, Why: why}, store.Refusal{ID: x.ID, Why: "again"})
		m.noteRefused(r, x.ID, why)
	}
	check(t, m.a.MarkRefused(ctx, r.ID, refusals))
}

// noteRefused records that a replay cannot send a message.
func (m *model) noteRefused(r *failed.Replay, id failed.ID, why string) {
	r.Refused++
	if r.Why == "" {
		r.Why = fmt.Sprintf("cannot send message %d: %s", id, why)
	}
	m.items[r.ID][id] = true
	if m.refused[r.ID] == nil {
		m.refused[r.ID] = make(map[failed.ID]string)
	}
	m.refused[r.ID][id] = why
	for _, x := range m.all {
		if x.ID == id {
			x.State, x.ReplayedBy, x.Refused = failed.Failed, 0, why
		}
	}
}

func (m *model) end(t *rapid.T) {
	r := m.replay(t)
	as := rapid.SampledFrom([]failed.ReplayState{failed.ReplayDone, failed.ReplayCancelled, failed.ReplayStopped}).Draw(t, "as")
	err := m.a.EndReplay(ctx, r.ID, as, "so", "me")
	if r.State != failed.ReplayRunning || as == failed.ReplayDone && r.Left() > 0 {
		if !errors.Is(err, failed.ErrState) {
			t.Fatalf("EndReplay in state %s as %s, %d of %d sent: got error %v, want ErrState", r.State, as, r.Sent, r.Total, err)
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
