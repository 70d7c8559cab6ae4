package failed_test

import (
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/topology"
)

// ask has a replay ask for outcomes.
func (m *model) ask(t *rapid.T) {
	r := m.replay(t)
	key := value(m.a.AskOutcomes(ctx, r.ID))(t).Key
	if m.keys == nil {
		m.keys = make(map[failed.ReplayID]string)
	}
	if was := m.keys[r.ID]; was != "" && was != key {
		t.Fatalf("asked twice, the keys are %q and %q", was, key)
	}
	m.keys[r.ID] = key
}

// report reports outcomes as consumers do, in any order, twice, and for messages that were not sent.
func (m *model) report(t *rapid.T) {
	r := m.replay(t)
	var reports []topology.Outcome
	for range rapid.IntRange(1, 3).Draw(t, "n") {
		id := rapid.SampledFrom(append(slices.Sorted(maps.Keys(m.items[r.ID])), 4711)).Draw(t, "id")
		o := topology.Outcome{
			Replay: fmt.Sprintf("%d/%d", r.ID, id), Key: rapid.SampledFrom([]string{m.keys[r.ID], "guess", ""}).Draw(t, "key"), Queue: "a", Attempt: 1,
			Result: rapid.SampledFrom([]string{topology.OutcomeSucceeded, topology.OutcomeRetrying}).Draw(t, "result"),
		}
		reports = append(reports, o)
		_, is := m.items[r.ID][id]
		if _, refused := m.refused[r.ID][id]; !is || refused || o.Key == "" || o.Key != m.keys[r.ID] {
			continue
		}
		if o.Result == topology.OutcomeRetrying {
			m.learn(r, id, failed.OutcomeRetrying)
		} else {
			m.learn(r, id, failed.OutcomeSucceeded)
		}
	}
	check(t, m.a.NoteOutcomes(ctx, reports))
}

// ranks are in the order in which outcomes replace each other.
var ranks = []failed.Outcome{"", failed.OutcomeRetrying, failed.OutcomeSucceeded, failed.OutcomeFailedAgain}

// learn notes an outcome, unless more is known.
func (m *model) learn(r *failed.Replay, id failed.ID, o failed.Outcome) {
	if m.known == nil {
		m.known = make(map[failed.ReplayID]map[failed.ID]failed.Outcome)
	}
	if m.known[r.ID] == nil {
		m.known[r.ID] = make(map[failed.ID]failed.Outcome)
	}
	was := m.known[r.ID][id]
	if slices.Index(ranks, was) >= slices.Index(ranks, o) {
		return
	}
	m.known[r.ID][id] = o
	count := map[failed.Outcome]*int64{
		failed.OutcomeRetrying: &r.Retrying, failed.OutcomeSucceeded: &r.Succeeded, failed.OutcomeFailedAgain: &r.Back,
	}
	*count[o]++
	if n := count[was]; n != nil {
		*n--
	}
}

// isOver reports whether nobody waits for outcomes of a replay any more.
func (m *model) isOver(r *failed.Replay) bool {
	return m.keys[r.ID] == "" || !r.Ended.IsZero() && m.clock.now().Sub(r.Ended) >= failed.VerifyTime
}

// outcome returns what is known of a message after a replay has sent it.
func (m *model) outcome(id failed.ReplayID, of failed.ID) failed.Outcome {
	if _, refused := m.refused[id][of]; refused || !m.items[id][of] {
		return ""
	}
	if o := m.known[id][of]; o != "" {
		return o
	}
	for _, r := range m.replays {
		if r.ID == id && m.isOver(r) {
			return failed.OutcomeUnknown
		}
	}
	return failed.OutcomePending
}

// seen returns a replay as the archive shows it.
func (m *model) seen(r *failed.Replay) *failed.Replay {
	out := *r
	open := max(0, r.Sent-r.Back-r.Succeeded-r.Retrying)
	switch {
	case m.isOver(r):
		out.Unknown = open
	case r.State == failed.ReplayDone && open+r.Retrying > 0:
		out.State = failed.ReplayVerifying
	}
	return &out
}
