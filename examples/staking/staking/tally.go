package staking

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/reprisemq/reprise"
)

// tally counts the results of messages. It is a reprise.Observer.
type tally struct {
	mu      sync.Mutex
	queues  map[string]*counts
	open    map[string]string // from message IDs to queues, for the messages in flight
	parked  []string          // lines with the reasons
	strange int               // number of processed or parked messages that are duplicates or come from other programs
	changed chan struct{}     // closed and replaced after every change
}

type counts struct{ sent, done, retries, parked int }

func newTally() *tally {
	return &tally{queues: make(map[string]*counts), open: make(map[string]string), changed: make(chan struct{})}
}

func (t *tally) of(queue string) *counts {
	if t.queues[queue] == nil {
		t.queues[queue] = &counts{}
	}
	return t.queues[queue]
}

// sending records a message before it is published, because a worker can process it before Publish returns.
func (t *tally) sending(m *reprise.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of(m.RoutingKey).sent++
	t.open[m.MessageID] = m.RoutingKey
}

// Observe implements reprise.Observer.
func (t *tally) Observe(e reprise.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e.Kind {
	case reprise.EventDone:
		t.ended(e)
		t.of(e.Queue).done++
	case reprise.EventParked:
		t.ended(e)
		t.of(e.Queue).parked++
		reason, _, _ := strings.Cut(e.Err.Error(), "\n")
		t.parked = append(t.parked, fmt.Sprintf("%s, attempt %d: %s", e.Queue, e.Attempt, reason))
	case reprise.EventRetried:
		t.of(e.Queue).retries++
	default:
		return
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

// ended records that a message was processed or parked. The second copy of a message, and a message of another program,
// count as strange.
func (t *tally) ended(e reprise.Event) {
	if _, sent := t.open[e.MessageID]; !sent {
		t.strange++
	}
	delete(t.open, e.MessageID)
}

// rest returns the number of messages in flight, and a channel that is closed when this number may have changed.
func (t *tally) rest() (int, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open), t.changed
}

// print writes the table of counts, the parked messages and the balance. It returns an error if the counts do not
// balance.
func (t *tally) print(out io.Writer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	row := func(name string, c counts) {
		fmt.Fprintf(out, "%-24s %6d %6d %9d %7d\n", name, c.sent, c.done, c.retries, c.parked)
	}
	var sum counts
	fmt.Fprintf(out, "%-24s %6s %6s %9s %7s\n", "queue", "sent", "done", "requeued", "parked")
	for _, queue := range slices.Sorted(maps.Keys(t.queues)) {
		c := *t.queues[queue]
		row(queue, c)
		sum = counts{sum.sent + c.sent, sum.done + c.done, sum.retries + c.retries, sum.parked + c.parked}
	}
	row("all", sum)
	if len(t.parked) > 0 {
		fmt.Fprintf(out, "\nparked:\n")
		for _, line := range slices.Sorted(slices.Values(t.parked)) {
			fmt.Fprintf(out, "  %s\n", line)
		}
	}
	others := ""
	if t.strange > 0 {
		others = fmt.Sprintf(" + %d duplicates, or of other programs", t.strange)
	}
	if n := len(t.open); n > 0 || sum.sent+t.strange != sum.done+sum.parked {
		return fmt.Errorf("staking: %d sent%s, %d done, %d parked, %d without a result (another program may have consumed them)",
			sum.sent, others, sum.done, sum.parked, n)
	}
	fmt.Fprintf(out, "\nbalance: %d sent%s = %d done + %d parked\n", sum.sent, others, sum.done, sum.parked)
	return nil
}
