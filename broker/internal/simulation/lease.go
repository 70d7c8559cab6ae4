package simulation

import (
	"context"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/reprisemq/reprise"
)

// leasesName is a design whose worker counts crashes, also of a classic queue.
const leasesName = "leases"

// A worker with a short lease moves most of its messages into its lease queue, some of them immediately.
func init() {
	designs = append(designs, design{Name: leasesName, Copies: true, Marks: true, Build: func(w Work) built {
		b := plain(w, nil, byPolicy(w))
		b.config.Lease = 3 * time.Second
		return b
	}})
	RegisterCheck(Check{
		Promise: "one attempt at a time holds the lease of a message, unless a connection is lost during a renewal",
		In:      "docs/adr/0030-leases-for-long-attempts.md", Check: checkLeases,
	})
}

// hold leases half of the messages at the beginning of the attempt.
func (b *Book) hold(ctx context.Context, m *Message, r *Run) {
	if len(m.Body)%2 != 0 || reprise.SaveCheckpoint(ctx, []byte(m.MessageID)) != nil { // fails while the broker is unreachable
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	r.Held = time.Now()
	b.note(m, "attempt %d holds the lease", r.Attempt)
}

// leaseEvent is an event of an attempt: it begins, holds the lease, or ends.
type leaseEvent struct {
	run  *Run
	kind string
}

// oneHolder is the promise for one message. Its state is the attempt that holds the lease, or nil. An attempt without a lease does
// not know that the broker has redelivered its message, so it may run while another attempt holds the lease.
var oneHolder = porcupine.Model{
	Init: func() any { return (*Run)(nil) },
	Step: func(state, input, _ any) (bool, any) {
		holder, e := state.(*Run), input.(leaseEvent)
		switch {
		case e.kind != "ends":
			if e.kind == "holds" {
				return holder == nil, e.run
			}
			return holder == nil, holder
		case holder == e.run:
			return true, (*Run)(nil)
		}
		return true, holder
	},
}

// leaseHistory returns the events of the attempts at a message. An attempt takes the lease at some time between its begin and the
// return of SaveCheckpoint. Events of the same moment have any order, because in these lives, a lease ends and a
// message expires in the same moment.
func leaseHistory(runs []*Run) (all []porcupine.Operation) {
	add := func(r *Run, kind string, call, end time.Time) {
		all = append(all, porcupine.Operation{ClientId: len(all), Input: leaseEvent{r, kind}, Call: 2 * call.UnixNano(), Return: 2*end.UnixNano() + 1})
	}
	for _, r := range runs {
		add(r, "begins", r.Began, r.Began)
		if !r.Held.IsZero() {
			add(r, "holds", r.Began, r.Held)
		}
		if !r.Ended.IsZero() {
			add(r, "ends", r.Ended, r.Ended)
		}
	}
	return all
}

// checkLeases checks the lives in which a renewal takes no time. A cut at a random time is then not during a renewal.
func checkLeases(l *Life, promise string) {
	if s := l.Script.Shape; s.Disk || s.Latency > 0 {
		return
	}
	l.eachMessage(func(w Work, _ design, b built, m *Message) {
		if w.Design != leasesName || m.copies() != 1 || !slices.ContainsFunc(m.Runs, func(r *Run) bool { return !r.Held.IsZero() }) || l.leaseSlowed(b, m) {
			return
		}
		l.Count("lease history")
		if !porcupine.CheckOperations(oneHolder, leaseHistory(m.Runs)) {
			l.Broken(promise, "%s", m.History())
		}
	})
}

// leaseSlowed reports whether a fault may have prolonged a renewal, or interrupted it at a certain byte.
func (l *Life) leaseSlowed(b built, m *Message) bool {
	from := m.Sendings[0].Began
	slow := len(l.Disturbed(brokerName, from, time.Now(), "blocked")) + len(l.Disturbed("queue/"+b.key, from, time.Now()))
	for _, r := range m.Runs {
		slow += len(l.Disturbed(r.Who, from, time.Now(), "half-dead", "stall", "timeout"))
		for _, cut := range l.Disturbed(r.Who, from, time.Now(), "cut") {
			if cut.To.After(cut.From) {
				slow++
			}
		}
	}
	return slow > 0
}
