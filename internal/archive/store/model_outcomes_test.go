package store_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/topology"
)

// ask makes a replay request outcome reports.
func (m *model) ask(t *rapid.T) {
	r := m.replay(t)
	secret := value(m.a.AskOutcomes(ctx, r.ID))(t)
	if was := m.secrets[r.ID]; was != "" && was != secret {
		t.Fatalf("two calls of AskOutcomes: got different secrets %q and %q", was, secret)
	}
	m.secrets[r.ID] = secret
}

// report records outcome reports as they can arrive from consumers: in any order, repeatedly, and for messages that are
// not recorded as sent.
func (m *model) report(t *rapid.T) {
	r := m.replay(t)
	var reports []protocol.Outcome
	for range rapid.IntRange(1, 3).Draw(t, "n") {
		id := m.item(t, r)
		queue := someQueue.Draw(t, "queue")
		o := protocol.Outcome{
			Replay: fmt.Sprintf("%d/%d", r.ID, id), Queue: queue, Attempt: 1, Error: someError.Draw(t, "error"),
			Result: rapid.SampledFrom([]string{protocol.OutcomeSucceeded, protocol.OutcomeRetrying}).Draw(t, "result"),
		}
		key, right := m.key(t, r, id, queue)
		o.Key = key
		reports = append(reports, o)
		if !right || !m.has(r, id) {
			continue
		}
		m.noteSent(r, id, true)
		if o.Result == protocol.OutcomeRetrying {
			m.learn(r, id, failed.OutcomeRetrying)
		} else {
			m.learn(r, id, failed.OutcomeSucceeded)
		}
	}
	check(t, m.a.NoteOutcomes(ctx, reports))
}

// settle reports that a queue was empty at some time.
func (m *model) settle(t *rapid.T) {
	queue, at := someQueue.Draw(t, "empty"), m.clock.now().Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "minutes ago"))*time.Minute)
	for _, r := range m.replays {
		if r.Ended.IsZero() || r.Ended.After(at) || m.isOver(r) || r.Plan.To != nil {
			continue
		}
		for _, x := range m.all {
			if x.Queue == queue && m.outcome(r.ID, x.ID) != "" {
				m.learn(r, x.ID, failed.OutcomeSettled)
			}
		}
	}
	check(t, m.a.SettleOutcomes(ctx, []string{queue}, at))
}

// item draws the ID of a message of a replay, or an unknown ID.
func (m *model) item(t *rapid.T, r *failed.Replay) failed.ID {
	return rapid.SampledFrom(append(slices.Sorted(maps.Keys(m.items[r.ID])), 99999)).Draw(t, "item")
}

// has reports whether a replay has sent a message, or may have sent it.
func (m *model) has(r *failed.Replay, id failed.ID) bool {
	_, is := m.items[r.ID][id]
	_, refused := m.refused[r.ID][id]
	return is && !refused
}

// key draws a key, and reports whether it is the valid key for a message that was sent to a queue.
func (m *model) key(t *rapid.T, r *failed.Replay, id failed.ID, queue string) (key string, right bool) {
	secret := m.secrets[r.ID]
	keys := []string{"guess", "", "\x00\xff"}
	if secret != "" {
		keys = append(keys, store.OutcomeKey(secret, r.ID, id+1, queue), store.OutcomeKey(secret, r.ID, id, queue+"2"), store.OutcomeKey(secret, r.ID+1, id, queue))
		if rapid.Bool().Draw(t, "right") {
			return store.OutcomeKey(secret, r.ID, id, queue), true
		}
	}
	return rapid.SampledFrom(keys).Draw(t, "key"), false
}

// failsAgain gives an arrival the replay headers of a message that a replay has sent, or forged headers.
func (m *model) failsAgain(t *rapid.T, x *failed.Message) {
	r := rapid.SampledFrom(m.replays).Draw(t, "replay")
	of := m.item(t, r)
	x.Headers[topology.HeaderReplay] = fmt.Sprintf("%d/%d", r.ID, of)
	SentID := ""
	for _, was := range m.all {
		if was.ID == of {
			SentID = was.SentID()
		}
	}
	x.Properties.MessageID = rapid.SampledFrom([]string{"", "mail", SentID, SentID}).Draw(t, "message id")
	proven := false
	right := x.Properties.MessageID == SentID && SentID != ""
	if rapid.Bool().Draw(t, "with request") {
		request := protocol.OutcomeRequest{
			To: protocol.OutcomeQueuePrefix + "x", Replay: fmt.Sprintf("%d/%d", r.ID, of), Queue: someQueue.Draw(t, "sent to"),
			MessageID: rapid.SampledFrom([]string{SentID, "mail"}).Draw(t, "sent as"),
		}
		request.Key, proven = m.key(t, r, of, request.Queue)
		proven = proven && request.Queue == x.Queue && request.MessageID == x.Properties.MessageID && request.MessageID != ""
		right = proven
		x.Headers[protocol.HeaderOutcome] = request.Table()
	}
	if !right || !m.has(r, of) {
		return
	}
	x.Back, x.BackOf = r.ID, of
	if proven {
		m.noteSent(r, of, true)
	}
	m.learn(r, of, failed.OutcomeFailedAgain)
}

// noteSent records that a replay has sent a message, with or without a request.
func (m *model) noteSent(r *failed.Replay, id failed.ID, asked bool) {
	if sent, is := m.items[r.ID][id]; sent || !is {
		return
	}
	m.items[r.ID][id] = true
	r.Sent++
	for _, x := range m.all {
		if x.ID != id || x.State != failed.Failed && x.State != failed.Replaying {
			continue
		}
		if x.State == failed.Replaying && x.ReplayedBy != r.ID { // a later replay must not send it again
			m.noteRefused(m.replays[x.ReplayedBy-1], id, fmt.Sprintf("replay %d has sent it", r.ID))
		}
		x.State, x.ReplayedBy, x.Refused = failed.Replayed, r.ID, ""
	}
	o := m.known[r.ID][id]
	if o == "" && asked {
		o = failed.OutcomePending
	} else if o == "" {
		o = failed.OutcomeUnknown
	}
	m.know(r, id, o)
	m.count(r, o, 1)
}

// ranks lists the outcomes in ascending order: an outcome replaces all outcomes before it.
var ranks = []failed.Outcome{"", failed.OutcomeUnknown, failed.OutcomePending, failed.OutcomeRetrying, failed.OutcomeSettled, failed.OutcomeSucceeded, failed.OutcomeFailedAgain}

// learn records an outcome, unless an outcome with a higher rank is known. It does not count messages that are not
// recorded as sent.
func (m *model) learn(r *failed.Replay, id failed.ID, o failed.Outcome) {
	was := m.known[r.ID][id]
	if slices.Index(ranks, was) >= slices.Index(ranks, o) {
		return
	}
	m.know(r, id, o)
	if m.items[r.ID][id] {
		m.count(r, was, -1)
		m.count(r, o, 1)
	}
}

func (m *model) know(r *failed.Replay, id failed.ID, o failed.Outcome) {
	if m.known[r.ID] == nil {
		m.known[r.ID] = make(map[failed.ID]failed.Outcome)
	}
	m.known[r.ID][id] = o
}

func (m *model) count(r *failed.Replay, o failed.Outcome, n int64) {
	switch o {
	case failed.OutcomePending:
		m.pending[r.ID] += n
	case failed.OutcomeRetrying:
		r.Retrying += n
	case failed.OutcomeSettled:
		r.Settled += n
	case failed.OutcomeSucceeded:
		r.Succeeded += n
	case failed.OutcomeFailedAgain:
		r.Back += n
	}
}

// isOver reports whether the archive no longer waits for outcomes of a replay.
func (m *model) isOver(r *failed.Replay) bool {
	return !r.Ended.IsZero() && m.clock.now().Sub(r.Ended) >= failed.VerifyTime
}

// outcome returns the expected outcome of a message of a replay.
func (m *model) outcome(id failed.ReplayID, of failed.ID) failed.Outcome {
	if _, refused := m.refused[id][of]; refused || !m.items[id][of] {
		return ""
	}
	o := m.known[id][of]
	for _, r := range m.replays {
		if r.ID == id && m.isOver(r) && (o == failed.OutcomePending || o == failed.OutcomeRetrying) {
			return failed.OutcomeUnknown
		}
	}
	return o
}

// seen returns the replay as the archive should return it.
func (m *model) seen(r *failed.Replay) *failed.Replay {
	out := *r
	pending := m.pending[r.ID]
	if m.isOver(r) {
		pending, out.Retrying = 0, 0
	}
	out.Unknown = out.Sent - out.Back - out.Succeeded - out.Settled - out.Retrying - pending
	out.Verifying = r.State == failed.ReplayDone && pending+out.Retrying > 0
	return &out
}
