package serve

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
)

// log prints the result of each delivery, and counts the messages. It implements reprise.Observer.
type log struct {
	out   io.Writer
	width int // length of the longest queue name

	mu       sync.Mutex
	received int
	kinds    map[reprise.EventKind]int
}

func newLog(out io.Writer, workers []reprise.WorkerConfig) *log {
	l := &log{out: out, kinds: make(map[reprise.EventKind]int)}
	for _, w := range workers {
		l.width = max(l.width, len(w.Queue))
	}
	return l
}

// Observe implements reprise.Observer.
func (l *log) Observe(e reprise.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e.Kind {
	case reprise.EventDone:
		l.line(e, "done")
	case reprise.EventRetried:
		l.line(e, "failed, retry in "+e.Delay.String())
	case reprise.EventParked:
		l.line(e, "parked: "+text(e.Err))
	case reprise.EventDebounced:
		l.line(e, "equal to another one, which was handled for it")
	case reprise.EventRequeued, reprise.EventDropped:
		l.line(e, "not settled, is delivered again")
	case reprise.EventHandled:
		l.received++
		return
	default:
		return
	}
	l.kinds[e.Kind]++
}

// line prints the result of a message and the message ID. If the message arrived without an ID, but a handler has received it, line
// prints the body instead. The caller holds l.mu.
func (l *log) line(e reprise.Event, what string) {
	name := e.MessageID
	switch {
	case e.Delivery == nil:
		l.received++ // the worker parked the message without an attempt
		if name == "" {
			name = "no id"
		}
	case name == "" || e.Delivery.MessageIDAssigned:
		name = fmt.Sprintf("%.40q", e.Delivery.Body)
	}
	fmt.Fprintf(l.out, "%s  %-*s  %s  attempt %d: %s\n", time.Now().Format(time.TimeOnly), l.width, e.Queue, name, e.Attempt, what)
}

func text(err error) string {
	if err == nil {
		return "no reason given"
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}

// balance prints the number of received messages and the number of messages with each outcome. It returns an error if a
// message has no outcome.
func (l *log) balance() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var (
		done, back, parked = l.kinds[reprise.EventDone], l.kinds[reprise.EventRetried], l.kinds[reprise.EventParked]
		equal              = l.kinds[reprise.EventDebounced]
		again              = l.kinds[reprise.EventRequeued] + l.kinds[reprise.EventDropped]
	)
	fmt.Fprintf(l.out, "\nbalance: %d received = %d done + %d to retry + %d parked", l.received, done, back, parked)
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
		return errors.New("number of received messages differs from the number of outcomes")
	}
	return nil
}
