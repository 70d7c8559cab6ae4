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

// stakingMark ends the names of the failed queues of preset.Staking.
const stakingMark = "_failed"

// kindOf is what a queue is for, by what it does with messages and by its name.
func (b *graphBuilder) kindOf(q topology.Queue, works []string) (graph.Kind, string) {
	ttl, waits := millis(q.Args["x-message-ttl"])
	_, back := q.Args["x-dead-letter-exchange"]
	switch {
	case slices.Contains(works, q.Name) || q.Args["x-dead-letter-routing-key"] == topology.FailedQueue(q.Name):
	case b.isFailed(q.Name):
		return graph.Failed, "failed queue"
	case waits && back:
		return graph.Wait, "wait queue, " + graph.Duration(ttl)
	case back && (strings.HasSuffix(q.Name, "_delay") || strings.Contains(q.Name, "wait") || strings.Contains(q.Name, "retry")):
		return graph.Wait, "wait queue"
	}
	return graph.Work, "work queue"
}

// isFailed reports whether a queue is named as failed queues are. Others may be called
// _failed as well: such a one is a failed queue beside its work queue.
func (b *graphBuilder) isFailed(name string) bool {
	work, found := strings.CutSuffix(name, stakingMark)
	return strings.HasSuffix(name, topology.FailedQueue("")) || found && b.names[work]
}

// millis reads a duration in milliseconds from an argument.
func millis(v any) (time.Duration, bool) {
	n, ok := amqpvalue.Integer(v)
	return time.Duration(n) * time.Millisecond, ok
}

// The marks in the names of wait queues: of topology.Buckets, and of topology.Levels
// to a queue and to an exchange. Levels have exchanges of the same names.
var waitMarks = []string{".wait.", ".level.", ".level-"}

// family is the node of a wait queue that Reprise has named, and what tells it from
// the others there; ok if it is one.
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

// waits are wait queues of one work queue: how many, and how long messages are in them,
// if their names say so.
type waits struct {
	n         int
	low, high time.Duration
}

// add adds a queue; its bounds are LOW-HIGH, in milliseconds, if it has any.
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
