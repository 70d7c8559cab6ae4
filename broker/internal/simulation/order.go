package simulation

import (
	"cmp"
	"slices"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker/internal/node"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/testhook"
)

// orderName is the design of a worker that keeps the order of messages with the same key.
const orderName = "order"

// The messages of a life have few keys, so that many messages wait behind another one.
const (
	keys      = 6
	headerKey = "key"
)

func init() {
	designs = append(designs, design{Name: orderName, Copies: true, Quorum: true, Rewinds: true, Marks: true, Build: func(w Work) built {
		k := reprise.Keyed{Partitions: 3, Header: headerKey}
		b := plain(w, k.Route(), byPolicy(w))
		b.config.OrderBy = &k
		b.queueOf = func(key string) string { return reprise.PartitionQueue(w.Name, key, k.Partitions) }
		b.key = b.queueOf("key0") + ".held" // for faults
		return b
	}})
	RegisterActor(func(*Life) []Actor { return []Actor{partitions{}} })
	RegisterCheck(Check{
		Promise: "a message begins after all earlier messages with its key were processed or parked; after a crash or a lost connection, a key may repeat from an earlier message on, in order",
		In:      "docs/ordering.md", Check: checkOrder,
	})
	RegisterCheck(Check{
		Promise: "other keys continue while a message waits for its retry",
		In:      "docs/ordering.md", Check: checkContinues,
	})
}

// partitions is an Actor that deletes the partitions at the end of a life. Their markers and proofs occupy memory.
type partitions struct{}

// Begin implements Actor.
func (partitions) Begin(*Life) {}

// Heal implements Actor.
func (partitions) Heal(*Life) {}

// Idle implements Actor.
func (partitions) Idle(*Life) string { return "" }

// End implements Actor. The workers have stopped.
func (partitions) End(l *Life) {
	b := l.Server.Broker()
	if b == nil {
		return
	}
	v := testhook.Of(b).(interface{ Node() *node.Node }).Node().VHost("/")
	for _, q := range v.Queues() {
		if protocol.CheckNotKeyed(q.Name()) != nil {
			_, _ = v.DeleteQueue(q, queue.Condition{})
		}
	}
}

// eachKey calls the function do for the messages of each key of each work with order per key.
func (l *Life) eachKey(do func(w Work, all []*Message)) {
	byKey := make(map[string][]*Message)
	l.eachMessage(func(_ Work, d design, _ built, m *Message) {
		if d.Rewinds {
			byKey[m.Key] = append(byKey[m.Key], m)
		}
	})
	for _, all := range byKey {
		do(l.work(all[0].Work), all)
	}
}

// repeatable returns how often each attempt at a message of an ordered work may run until a given time. Each fault can return
// the message once more, also after a long time: a copy in the held queue and the original may both exist.
func (l *Life) repeatable(w Work, m *Message, until time.Time) int {
	if len(m.Sendings) == 0 {
		return 0
	}
	n, since := m.copies(), m.Sendings[0].Began
	for _, who := range w.consumers() {
		n += len(l.Disturbed(who, since, until))
	}
	return n + len(l.Disturbed(brokerName, since, until, "stop", "crash", "disk"))
}

// checkRepeated checks the number of runs of each attempt at a message of an ordered work.
func (l *Life) checkRepeated(w Work, m *Message, promise string) {
	attempts := make(map[int]int)
	for _, r := range m.Runs {
		attempts[r.Attempt]++
		if most := l.repeatable(w, m, r.Began); attempts[r.Attempt] > most {
			l.Broken(promise, "%s: attempt %d has run %d times, want at most %d: %s", w.Name, r.Attempt, attempts[r.Attempt], most, m.History())
			return
		}
	}
	if most := l.repeatable(w, m, time.Now()); m.Parked > most {
		l.Broken(promise, "%s: parked %d times, want at most %d: %s", w.Name, m.Parked, most, m.History())
	}
}

// stored returns the position at which the only copy of a message was in its queue. It returns 0 if the publisher does not know
// the position.
func (m *Message) stored() (at int) {
	for _, s := range m.Sendings {
		if s.Err == nil && !s.Open {
			at = s.ended
		}
	}
	if m.copies() != 1 || !m.Due.IsZero() {
		return 0
	}
	return at
}

// precedes reports whether a publisher published the message before it published the other one.
func (m *Message) precedes(other *Message) bool {
	at := m.stored()
	return at > 0 && len(other.Sendings) > 0 && at < other.Sendings[0].began
}

// completes reports whether a message of an ordered work needs no further run.
func (r *Run) completes() bool {
	return !r.Cut && (r.Manner == succeeds || r.How == reprise.EventParked)
}

// parkedAlone reports whether a worker parked the message on delivery, at an unknown time.
func (m *Message) parkedAlone() bool {
	return m.Parked > 0 && !slices.ContainsFunc(m.Runs, func(r *Run) bool { return r.How == reprise.EventParked })
}

// checkOrder replays the runs of each key. Runs of an earlier epoch than a previous run are fenced, as the documents require of
// handlers.
func checkOrder(l *Life, promise string) {
	l.eachKey(func(_ Work, all []*Message) {
		type event struct {
			at  int
			m   *Message
			run *Run
		}
		var events []event
		for _, m := range all {
			for _, r := range m.Runs {
				events = append(events, event{r.began, m, r})
				if r.ended > 0 {
					events = append(events, event{r.ended, m, r})
				}
			}
		}
		slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
		epoch, done := int64(0), make(map[*Message]int) // positions of the last completions
		begun, repeated := make(map[*Message]bool), false
		// inOrder checks the messages before m, or all messages: each is done, and was done again after an earlier message.
		inOrder := func(m *Message) bool {
			for _, before := range all {
				if before.parkedAlone() || m != nil && !before.precedes(m) || m == nil && len(before.Runs) == 0 {
					continue
				}
				if done[before] == 0 {
					l.Broken(promise, "%s begins before the end of %s", m.orEnd(), before.History())
					return false
				}
				for _, first := range all {
					if repeated && done[first] > done[before] && first.precedes(before) {
						l.Broken(promise, "%s begins, and %s\n\twas repeated without %s", m.orEnd(), first.History(), before.History())
						return false
					}
				}
			}
			return true
		}
		running := make(map[*Run]*Message)
		for _, e := range events {
			if e.at == e.run.ended {
				delete(running, e.run)
				if e.run.Epoch >= epoch && e.run.completes() {
					repeated = repeated || done[e.m] > 0
					done[e.m] = e.at
				}
				continue
			}
			for other, m := range running {
				if other.Epoch == e.run.Epoch || !l.runDisturbed(other) {
					l.Broken(promise, "%s begins attempt %d (epoch %d) during attempt %d (epoch %d) of %s", e.m.History(), e.run.Attempt, e.run.Epoch, other.Attempt, other.Epoch, m.History())
					return
				}
			}
			running[e.run] = e.m
			if e.run.Epoch < epoch {
				continue
			}
			epoch = e.run.Epoch
			if !begun[e.m] && !inOrder(e.m) {
				return
			}
			begun[e.m] = true
		}
		inOrder(nil)
	})
}

// orEnd returns the history of a message, or "the end" for nil.
func (m *Message) orEnd() string {
	if m == nil {
		return "the end"
	}
	return m.History()
}

// These constants limit the time until a message begins that waits for no other message of its key.
const (
	continuesWithin  = 5 * time.Minute
	continuesRecover = 10 * time.Minute // time without a disturbance before it
)

func checkContinues(l *Life, promise string) {
	if l.Script.Shape.Sync >= time.Second { // the copies of a burst take long
		return
	}
	l.eachKey(func(w Work, all []*Message) {
		for _, m := range all {
			if m.stored() == 0 {
				continue
			}
			from := m.Sendings[len(m.Sendings)-1].Ended
			for _, before := range all {
				if before != m && !m.precedes(before) {
					for _, r := range before.Runs {
						if r.Ended.After(from) {
							from = r.Ended
						}
					}
					if before.parkedAlone() {
						return
					}
				}
			}
			by := from.Add(continuesWithin)
			if len(m.Runs) > 0 && !m.Runs[0].Began.After(by) || l.disturbedBetween(w, from.Add(-continuesRecover), by) {
				continue
			}
			l.Broken(promise, "could begin at %v, but did not begin by %v: %s", from.Sub(l.Began), by.Sub(l.Began), m.History())
			return
		}
	})
}
