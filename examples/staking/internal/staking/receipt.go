package staking

import (
	"errors"
	"fmt"
	"strings"
	"sync"
)

// Why a receipt is not taken. Nothing has happened to any message then. Test for
// them with errors.Is.
var (
	// ErrStale: the connection that the message was received on is gone. If it
	// was not settled before, the broker delivers it again, with another receipt.
	// Where the broker takes back a single message that was kept for too long, as
	// RabbitMQ 4.3 does after its consumer timeout of 30 min, nobody can tell: the
	// receipt is taken then, and does nothing.
	ErrStale = errors.New("the connection is gone that it was received on: unless it was settled before, the message is delivered again")

	// ErrSettled: the message was deleted, put back or parked before.
	ErrSettled = errors.New("it has been used: the message was deleted, put back or parked")

	// ErrForeign: it is not one of this Queue's.
	ErrForeign = errors.New("it is no receipt of this Queue")

	// ErrStopped: the Queue was stopped, and what was not settled is delivered
	// again.
	ErrStopped = errors.New("staking: the Queue was stopped")
)

// receipts knows who waits for a verdict. A receipt is the Queue's id, the
// generation of its channel, and a number: none is ever given twice, so that one
// that is too old cannot mean another message. (A delivery tag, which other
// clients use, begins at 1 again with each channel.)
type receipts struct {
	queue string

	mu         sync.Mutex
	generation int
	last       int
	held       map[string]chan error // where the verdict goes; closed where there will be none
	stopped    bool
}

func newReceipts(queue string) *receipts {
	return &receipts{queue: queue, generation: 1, held: make(map[string]chan error)}
}

// issue makes a receipt. The verdict on it comes through held, which is closed
// instead when the channel is gone that the message came on.
func (r *receipts) issue() (receipt string, held <-chan error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	receipt = fmt.Sprintf("%s-%d-%d", r.queue, r.generation, r.last)
	verdict := make(chan error, 1)
	r.held[receipt] = verdict
	return receipt, verdict
}

// settle passes a verdict on to who waits for it.
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

// withdraw takes a receipt back, unless a verdict has been given, or never will be.
func (r *receipts) withdraw(receipt string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, found := r.held[receipt]
	delete(r.held, receipt)
	return found
}

// lose takes all receipts back: their channel is gone.
func (r *receipts) lose() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation++
	for _, held := range r.held {
		close(held)
	}
	clear(r.held)
}

// stop notes that there are no verdicts any more.
func (r *receipts) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
}
