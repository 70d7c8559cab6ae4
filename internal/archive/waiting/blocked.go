package waiting

import (
	"context"
	"fmt"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/background"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/topology"
)

// BlockedQueue is a wait queue whose first message never expires, because the work queue itself dead-lettered the message
// without an expiration. RabbitMQ expires messages only at the head, so all messages behind it stay in the queue.
type BlockedQueue struct {
	Queue       string // work queue
	WaitQueue   string
	FailedQueue string
	Messages    int // in the wait queue, with the first message
}

// Cause describes the reason.
func (b BlockedQueue) Cause() string {
	return fmt.Sprintf("the first message of %s has no expiration: a program rejected it, or it expired in %s", b.WaitQueue, b.Queue)
}

// Remedy returns a command that moves the first message to the failed queue of the work queue.
func (b BlockedQueue) Remedy() string {
	return fmt.Sprintf("reprise redrive --from %s --to %s --limit 1", b.WaitQueue, b.FailedQueue)
}

// Intervals of the search for blocked queues.
const (
	blockedOverdue = 10 * time.Second // from the time at which a message is due until its wait queue is examined
	blockedPeek    = 10 * time.Minute // minimum between two looks at the first message, which count as deliveries before 4.3
)

// watched is a wait queue with overdue messages.
type watched struct {
	messages    int
	peeked      time.Time
	blocked     bool
	failedQueue string // if blocked
}

// Blocked returns the wait queues that were blocked when Run last examined the queues with overdue messages. Before RabbitMQ
// 4.0, it returns none, because a look at a message changes its position.
func (r *Rescheduler) Blocked() (all []BlockedQueue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, w := range r.watched {
		if w.blocked {
			all = append(all, w.at(p))
		}
	}
	return all
}

func (w watched) at(p store.WaitingPlace) BlockedQueue {
	return BlockedQueue{Queue: p.Queue, WaitQueue: p.Wait, FailedQueue: w.failedQueue, Messages: w.messages}
}

// findBlocked examines the wait queues with overdue messages, and the queues that were blocked. Two calls without a message
// leaving the queue, and a look at the first message, prove that a queue is blocked.
func (r *Rescheduler) findBlocked(ctx context.Context) error {
	places, err := r.archive.OverduePlaces(ctx, blockedOverdue)
	if err != nil {
		return err
	}
	r.mu.Lock()
	for p, w := range r.watched {
		if w.blocked {
			places[p] = true
		}
	}
	r.mu.Unlock()
	found := map[store.WaitingPlace]watched{}
	for p := range places {
		if w, ok := r.examine(ctx, p); ok {
			found[p] = w
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watched = found
	return nil
}

// examine returns the state of a wait queue. It reports false if the queue is empty or its design has no such messages.
func (r *Rescheduler) examine(ctx context.Context, p store.WaitingPlace) (watched, bool) {
	r.mu.Lock()
	before, known := r.watched[p]
	r.mu.Unlock()
	depth, err := r.client.Depth(ctx, p.Wait)
	if err != nil || depth == 0 {
		return watched{}, false
	}
	now := before
	now.messages, now.blocked = depth, before.blocked && depth >= before.messages
	if now.blocked || !known || depth < before.messages || r.archive.Now().Sub(before.peeked) < blockedPeek {
		return now, true
	}
	// Before 4.0, a quorum queue without a delivery limit requeues the first message to its tail.
	if r.client.Declare(ctx, topology.Topology{Needs: "4.0.0"}) != nil {
		return watched{}, false
	}
	design, err := proven(ctx, r.client, designsOf(p))
	if err != nil || design.wait.Args["x-message-ttl"] != nil {
		return watched{}, false
	}
	now.peeked = r.archive.Now()
	_ = r.client.Peek(ctx, p.Wait, 1, func(m *reprise.Delivery) { now.blocked = !design.waits(m) }) // after an error, the state is unknown
	background.AwaitRequeued(ctx, r.client, p.Wait, depth)
	if now.blocked {
		now.failedQueue = design.strategy.Route.Failed(topology.Delivery{Queue: p.Queue}).RoutingKey
		b := now.at(p)
		r.cfg.Logger.Warn("wait queue blocked", "queue", p.Queue, "wait_queue", p.Wait, "messages", depth, "cause", b.Cause(), "remedy", b.Remedy())
	}
	return now, true
}
