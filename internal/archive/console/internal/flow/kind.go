package flow

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/graph"
	"github.com/reprisemq/reprise/topology"
)

// stakingMark is the suffix of the names of failed queues in preset.Staking.
const stakingMark = "_failed"

// kindOf derives the kind of a queue, and a note about the queue, from its arguments and its name.
func (b *graphBuilder) kindOf(q topology.Queue, works []string) (graph.Kind, string) {
	ttl, waits := millis(q.Args["x-message-ttl"])
	_, back := q.Args["x-dead-letter-exchange"]
	switch {
	case slices.Contains(works, q.Name) || q.Args["x-dead-letter-routing-key"] == topology.FailedQueue(q.Name):
	case b.isFailed(q.Name) || b.parked[q.Name] && !back:
		return graph.Failed, "failed queue"
	case waits && back:
		return graph.Wait, "wait queue, " + graph.Duration(ttl)
	case back && (strings.HasSuffix(q.Name, "_delay") || strings.Contains(q.Name, "wait") || strings.Contains(q.Name, "retry")):
		return graph.Wait, "wait queue"
	}
	return graph.Work, "work queue"
}

// isFailed reports whether a queue has the name of a failed queue. Other systems also use the suffix _failed, so the
// suffix counts only if the corresponding work queue exists.
func (b *graphBuilder) isFailed(name string) bool {
	work, found := strings.CutSuffix(name, stakingMark)
	return strings.HasSuffix(name, topology.FailedQueue("")) || found && b.names[work]
}

// millis converts v, a number of milliseconds, to a duration.
func millis(v any) (time.Duration, bool) {
	n, ok := amqpvalue.Integer(v)
	return time.Duration(n) * time.Millisecond, ok
}

// waitMarks are the markers in the names of wait queues: the marker of topology.Buckets, and the two markers of
// topology.Levels, for retries to a queue and to an exchange. An exchange of topology.Levels has the same name as its
// queue.
var waitMarks = []string{".wait.", ".level.", ".level-"}

// family splits the name of a wait queue of Reprise, or of its exchange, into the ID of the node that combines the wait
// queues and the suffix that identifies the queue.
func family(name string) (id, rest string, ok bool) {
	if !amqpvalue.IsWaitQueue(name) {
		return "", "", false
	}
	for _, mark := range waitMarks {
		if i := strings.LastIndex(name, mark); i > 0 {
			return queueID(name[:i+len(mark)] + "*"), name[i+len(mark):], true
		}
	}
	return "", "", false
}

// waits summarizes the wait queues of a work queue: their number and, if specified in their names, the range of their
// delays.
type waits struct {
	n         int
	low, high time.Duration
}

// add adds a wait queue. If bounds has the form LOW-HIGH, it specifies the range of the delay in milliseconds.
func (w *waits) add(bounds string) {
	w.n++
	from, to, ok := strings.Cut(bounds, "-")
	low, err := strconv.ParseInt(from, 10, 64)
	high, err2 := strconv.ParseInt(to, 10, 64)
	if !ok || err != nil || err2 != nil {
		return
	}
	l, h := time.Duration(low)*time.Millisecond, time.Duration(high)*time.Millisecond
	if w.n == 1 {
		w.low = l
	}
	w.low, w.high = min(w.low, l), max(w.high, h)
}
