package simulation

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/reprisemq/reprise"
)

// steadyName is a work queue that every life has. Its worker has one slot, and its attempts take no time. A message
// that fails is parked after its only attempt. Faults of other queues, or of the failed queue of this work, must not
// delay its messages.
const steadyName = "steady"

// drawSteady returns the steady work.
func drawSteady() Work {
	return Work{
		Design: steadyName, Name: steadyName, Attempts: 1, Workers: 1, Concurrency: 1,
		Delays: []time.Duration{time.Second, time.Second, time.Second},
	}
}

// These constants limit the time until a message reaches its handler.
const (
	steadyWithin  = time.Minute     // from the confirm to the handler
	steadyRecover = 3 * time.Minute // extra time after a disturbance of the worker
)

func init() {
	designs = append(designs, design{Name: steadyName, Copies: true, Marks: true, Build: func(w Work) built {
		b := plain(w, nil, byPolicy(w))
		b.config.Prefetch = 2000 // more than the number of messages that can wait for a confirm
		b.config.CrashLimit = -1 // the worker never processes a message alone
		return b
	}})
	RegisterAct(Act{
		Name: "publish-steady", Weight: 8,
		Draw: func(random *rand.Rand, _ Shape) []Step {
			n := 5 + random.IntN(40)
			return []Step{{On: steadyName, N: n, For: time.Duration(n) * upTo(random, time.Minute)}}
		},
		Do: func(l *Life, s Step) {
			l.Count("publish-steady")
			l.publisher().act(l, func() {
				random := s.Random()
				for i := range s.N {
					m := l.Book.Add(fmt.Sprintf("%x-%d", s.Seed, i), steadyName, random.IntN(300))
					l.Go(func() { l.publisher().send(l, m, built{key: steadyName}) })
					time.Sleep(s.For / time.Duration(s.N))
				}
			})
		},
	})
	RegisterCheck(Check{
		Promise: "a failed message does not block other messages, because a failed handler frees its slot immediately",
		In:      "docs/guarantees.md", Check: checkSteady,
	})
}

// steadyPlan returns the plan of a message of the steady work.
func steadyPlan(id string) Plan {
	p := Plan{Quick: true}
	if source(id, 0).IntN(5) == 0 {
		p.Fails = never
	}
	return p
}

func checkSteady(l *Life, promise string) {
	for _, m := range l.Book.Of(steadyName) {
		for _, s := range m.Sendings {
			if s.Open || s.Err != nil || len(m.Losses) > 0 {
				continue
			}
			from := s.Ended
			if due := m.Due.Add(2 * time.Second); due.After(from) {
				from = due
				if len(l.Disturbed(brokerName, s.Began, due)) > 0 { // a message that passes several wait queues can then be late
					continue
				}
			}
			by := from.Add(steadyWithin)
			if len(m.Runs) > 0 && !m.Runs[0].Began.After(by) || l.steadyDisturbed(from.Add(-steadyRecover), by) {
				continue
			}
			l.Broken(promise, "deliverable at %v, but not handled by %v: %s", from.Sub(l.Began), by.Sub(l.Began), m.History())
			return
		}
	}
}

func (l *Life) steadyDisturbed(from, to time.Time) bool {
	return len(l.Disturbed(workerName(Work{Name: steadyName}, 0), from, to)) > 0 || len(l.Disturbed(brokerName, from, to, "stop", "crash", "disk")) > 0
}

// paused records a disturbance if a worker reports that it has paused or resumed consumption, requeued prefetched
// messages, or been interrupted. Before and after it processes a message alone, a worker subscribes again with a
// different prefetch.
func (l *Life) paused(who string, e reprise.Event) {
	switch {
	case e.Kind == reprise.EventPaused, e.Kind == reprise.EventConsuming, e.Kind == reprise.EventRequeued && e.Delivery == nil:
		l.Disturb(who, "paused").End()
	case e.Kind == reprise.EventInterrupted:
		l.Disturb(who, "interrupted").End()
	}
}
