package staking

import (
	"errors"
	"fmt"
	"strings"
	"sync"
)

// Errors of Delete, Requeue and Park for an invalid receipt. The operation then has no effect on any message. Use
// errors.Is to test for these errors.
var (
	// ErrStale is returned if the connection or the channel that received the message has been closed. If the message
	// was not settled before, the broker redelivers it, with another receipt. After the consumer timeout (30 min by
	// default), RabbitMQ 4.3 requeues a single message without closing the channel. The client cannot detect this case,
	// so the Queue accepts the old receipt, but the operation has no effect.
	ErrStale = errors.New("connection of the receipt is closed (the broker redelivers the message if it was not settled)")

	// ErrSettled is returned if the message has already been deleted, requeued or parked.
	ErrSettled = errors.New("receipt was used before (the message was deleted, requeued or parked)")

	// ErrForeign is returned if this Queue did not issue the receipt.
	ErrForeign = errors.New("receipt is not from this Queue")

	// ErrStopped is returned after Stop. The broker redelivers the messages that were not settled.
	ErrStopped = errors.New("staking: queue is stopped")
)

// receipts tracks the messages that wait for a result. A receipt contains the ID of the Queue, the generation of the
// channel, and a number. Receipts are never reused, so an outdated receipt cannot identify another message. A delivery
// tag could, because delivery tags start at 1 on each channel.
type receipts struct {
	queue string

	mu         sync.Mutex
	generation int
	last       int
	held       map[string]chan error // delivers the result; closed if the channel of the message is closed
	stopped    bool
}

func newReceipts(queue string) *receipts {
	return &receipts{queue: queue, generation: 1, held: make(map[string]chan error)}
}

// issue returns a new receipt, and a channel that delivers the result for this receipt. If the AMQP channel of the
// message is closed first, held is closed.
func (r *receipts) issue() (receipt string, held <-chan error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	receipt = fmt.Sprintf("%s-%d-%d", r.queue, r.generation, r.last)
	verdict := make(chan error, 1)
	r.held[receipt] = verdict
	return receipt, verdict
}

// settle passes the result, verdict, to the handler that waits for the receipt.
func (r *receipts) settle(receipt string, verdict error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if held, found := r.held[receipt]; found {
		delete(r.held, receipt)
		held <- verdict
		return nil
	}
	var generation, n int
	_, err := fmt.Sscanf(strings.TrimPrefix(receipt, r.queue), "-%d-%d", &generation, &n)
	switch {
	case err != nil || receipt != fmt.Sprintf("%s-%d-%d", r.queue, generation, n) || generation > r.generation || n < 1 || n > r.last:
		return ErrForeign
	case r.stopped:
		return ErrStopped
	case generation != r.generation:
		return ErrStale
	}
	return ErrSettled
}

// withdraw invalidates a receipt. It returns false if the receipt has already been used or invalidated.
func (r *receipts) withdraw(receipt string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, found := r.held[receipt]
	delete(r.held, receipt)
	return found
}

// lose invalidates all receipts, because the AMQP channel has been closed.
func (r *receipts) lose() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation++
	for _, held := range r.held {
		close(held)
	}
	clear(r.held)
}

// stop records that the Queue is stopped. Later calls to settle return ErrStopped for each issued receipt that is no
// longer in held.
func (r *receipts) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
}
