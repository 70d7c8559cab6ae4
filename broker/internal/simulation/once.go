package simulation

import (
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/idempotent"
)

// onceName is the design of a worker that suppresses duplicates with package idempotent.
const onceName = "once"

func init() {
	designs = append(designs, design{Name: onceName, Copies: true, Marks: true, Once: true, Build: func(w Work) built { return plain(w, nil, byPolicy(w)) }})
	RegisterCheck(Check{
		Promise: "an effect happens once, unless the process exits between the effect and its record",
		In:      "docs/duplicates.md", Check: checkOnce,
	})
	RegisterCheck(Check{
		Promise: "a worker that suppresses duplicates parks a message without an ID",
		In:      "docs/duplicates.md", Check: checkKeyless,
	})
}

// once returns the middleware for the workers of a work. All workers share a store, which survives their restarts.
func (l *Life) once(w Work) (reprise.Middleware, error) {
	l.mu.Lock()
	if l.stores == nil {
		l.stores = make(map[string]*idempotent.Memory)
	}
	if l.stores[w.Name] == nil {
		l.stores[w.Name] = new(idempotent.Memory)
	}
	store := l.stores[w.Name]
	l.mu.Unlock()
	return idempotent.Middleware(store, idempotent.Config{Retention: 60 * 24 * time.Hour})
}

func checkOnce(l *Life, promise string) {
	l.eachMessage(func(w Work, d design, _ built, m *Message) {
		if !d.Once {
			return
		}
		n := 0
		for _, r := range m.Runs {
			if r.Manner != succeeds || r.Cut || r.Ended.IsZero() {
				continue
			}
			// The in-memory store records the success as soon as the handler returns, unless the process crashes at that moment.
			if len(l.Disturbed(r.Who, r.Ended, r.Ended.Add(time.Millisecond), "crash")) == 0 {
				n++
			}
		}
		if n > 1 {
			l.Broken(promise, "%s: done %d times: %s", w.Name, n, m.History())
		}
	})
}

func checkKeyless(l *Life, promise string) {
	l.eachMessage(func(w Work, d design, _ built, m *Message) {
		if d.Once && m.MessageID == "" && (len(m.Runs) > 0 || m.confirmed() && m.Parked == 0 && len(m.Losses) == 0) {
			l.Broken(promise, "%s: parked %d times: %s", w.Name, m.Parked, m.History())
		}
	})
}
