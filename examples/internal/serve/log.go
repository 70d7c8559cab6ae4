package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
)

// log writes a line for each message that was settled, and counts. It is a
// reprise.Observer.
type log struct {
	out   io.Writer
	width int // of the queues' names

	mu       sync.Mutex
	received int
	kinds    map[reprise.EventKind]int
	underWay map[attempt][]string // what stands for the messages, in the order they came
}

// attempt is what tells one from another, as far as events tell: messages without
// an id look alike.
type attempt struct {
	queue, id string
	n         int
}

func newLog(out io.Writer, workers []reprise.WorkerConfig) *log {
	l := &log{out: out, kinds: make(map[reprise.EventKind]int), underWay: make(map[attempt][]string)}
	for _, w := range workers {
		l.width = max(l.width, len(w.Queue))
	}
	return l
}

// noting wraps a handler, and notes what is shown of a message that has no id.
func (l *log) noting(queue string, h reprise.Handler) reprise.Handler {
	return reprise.HandlerFunc(func(ctx context.Context, m *reprise.Message) error {
		name := m.MessageID
		if name == "" {
			name = fmt.Sprintf("%.40q", m.Body)
		}
		l.mu.Lock()
		a := attempt{queue, m.MessageID, m.Attempt}
		l.underWay[a] = append(l.underWay[a], name)
		l.received++
		l.mu.Unlock()
		return h.Handle(ctx, m)
	})
}

// Observe implements reprise.Observer.
func (l *log) Observe(e reprise.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e.Kind {
	case reprise.EventDone:
		l.line(e, "done")
	case reprise.EventRetried:
		l.line(e, "failed, comes back in "+e.Delay.String())
	case reprise.EventParked:
		l.line(e, "parked: "+text(e.Err))
	case reprise.EventDebounced:
		l.received++
		l.write(e, e.MessageID, "equal to another one, which was handled for it")
	case reprise.EventGivenBack, reprise.EventDropped:
		l.line(e, "not settled, is delivered again")
	default:
		return
	}
	l.kinds[e.Kind]++
}

// line writes one of a message that was handled, as a rule: some had used up their
// attempts, or their workers had died each time, or they waited for others like
// them. l.mu is held.
func (l *log) line(e reprise.Event, what string) {
	name := e.MessageID
	a := attempt{e.Queue, e.MessageID, e.Attempt}
	names := l.underWay[a]
	switch len(names) {
	case 0:
		l.received++
	case 1:
		name = names[0]
		delete(l.underWay, a)
	default:
		name, l.underWay[a] = names[0], names[1:]
	}
	l.write(e, name, what)
}

func (l *log) write(e reprise.Event, name, what string) {
	if name == "" {
		name = "no id"
	}
	fmt.Fprintf(l.out, "%s  %-*s  %s  attempt %d: %s\n", time.Now().Format(time.TimeOnly), l.width, e.Queue, name, e.Attempt, what)
}

func text(err error) string {
	if err == nil {
		return "no reason given"
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}

// balance writes what it comes to.
func (l *log) balance() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var (
		done, back, parked = l.kinds[reprise.EventDone], l.kinds[reprise.EventRetried], l.kinds[reprise.EventParked]
		equal              = l.kinds[reprise.EventDebounced]
		again              = l.kinds[reprise.EventGivenBack] + l.kinds[reprise.EventDropped]
	)
	fmt.Fprintf(l.out, "\nbalance: %d received = %d done + %d to come back + %d parked", l.received, done, back, parked)
	for _, rare := range []struct {
		n    int
		what string
	}{{equal, "equal to one of these"}, {again, "not settled, to be delivered again"}} {
		if rare.n > 0 {
			fmt.Fprintf(l.out, " + %d %s", rare.n, rare.what)
		}
	}
	fmt.Fprintln(l.out)
	if l.received != done+back+parked+equal+again {
		return errors.New("the balance does not come out")
	}
	return nil
}
