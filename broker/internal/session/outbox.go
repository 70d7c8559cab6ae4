package session

import (
	"context"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/reprisemq/reprise/broker/internal/budget"
)

const (
	// outboxLimit is how many bytes wait for a slow reader before consumers are offered nothing more, and before the peer's
	// own frames, each of which may call for a reply, are left unread. It goes on at half of that. While memory for
	// connections is scarce, the limit is outboxBatch. The message that exceeds the limit comes on top: no more than one, since
	// what is being written counts.
	outboxLimit = 1 << 20
	// outboxStep is in what steps they are counted: most connections have less, and need not be counted at all.
	outboxStep = 64 << 10
	// outboxBatch is about how much is written at a time: more would be no faster.
	outboxBatch = 64 << 10
)

// spares are batches that have been written, to be used again by whichever connection is the next to have something to
// write: an idle one holds none. (A sync.Pool does not do: what one processor puts there another hardly gets.)
var spares = make(chan []byte, 32)

func spare() []byte {
	select {
	case b := <-spares:
		return b
	default:
		return nil
	}
}

// keepSpare takes a batch back, unless it has grown far beyond what most need.
func keepSpare(b []byte) {
	if cap(b) > 4*outboxBatch {
		return
	}
	select {
	case spares <- b[:0]:
	default:
	}
}

// outbox gathers encoded frames. While one batch is being written the next ones grow, so that a busy connection writes
// many frames at a time, and a lone frame goes out at once.
type outbox struct {
	mu      sync.Mutex
	batches [][]byte // in order; the last one grows
	size    int      // of all of them
	writing int      // the size of the batch that is being written
	stalled []stalled
	share   budget.Share
	closed  bool
	full    atomic.Bool // the peer does not keep up; to be looked at without the lock

	filled chan struct{} // there is something to write, or the outbox is closed
	taken  chan struct{} // there is room again
	done   chan struct{} // closed when nothing is written any more
}

// stalled is whoever was refused, and wants to know when there is room again.
type stalled interface{ resume() }

func newOutbox(a *budget.Account) *outbox {
	return &outbox{
		share:  a.Share(budget.Unread),
		filled: make(chan struct{}, 1), taken: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// limit is how large the outbox may be.
func (o *outbox) limit() int {
	if o.share.Scarce() {
		return outboxBatch
	}
	return outboxLimit
}

// held is how many bytes the peer has not read.
func (o *outbox) held() int { return o.size + o.writing }

func (o *outbox) count() { o.share.Set(int64(o.held() / outboxStep * outboxStep)) }

// write adds what the function appends.
func (o *outbox) write(appendTo func([]byte) []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(appendTo)
}

func (o *outbox) add(appendTo func([]byte) []byte) {
	if o.closed {
		return
	}
	if n := len(o.batches); n == 0 || len(o.batches[n-1]) >= outboxBatch {
		o.batches = append(o.batches, spare())
		if n == 0 { // else the writer comes to it by itself
			signal(o.filled)
		}
	}
	last := &o.batches[len(o.batches)-1]
	before := len(*last)
	*last = appendTo(*last)
	o.size += len(*last) - before
	o.measure()
	o.count()
}

// measure finds whether the outbox is full by now. One that was not may be, since memory has become scarce.
func (o *outbox) measure() {
	if held := o.held(); held >= outboxBatch && held >= o.limit() {
		o.full.Store(true)
	}
}

// offer is write for deliveries: when the peer does not keep up, it adds nothing and returns false, and whoever offered is
// told to resume once it does.
func (o *outbox) offer(appendTo func([]byte) []byte, by stalled) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.measure(); o.full.Load() {
		o.stalled = append(o.stalled, by)
		return false
	}
	o.add(appendTo)
	return true
}

// waitForRoom blocks while the peer does not keep up with reading.
func (o *outbox) waitForRoom(ctx context.Context) error {
	for o.full.Load() {
		select {
		case <-o.taken:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// finish lets run return once everything has been written.
func (o *outbox) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.full.Store(false)
	signal(o.filled)
}

// drop forgets what is not being written yet. Batches end where frames do, so that others may follow.
func (o *outbox) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.batches, o.size, o.stalled = nil, 0, nil
	if o.full.Swap(false) {
		signal(o.taken)
	}
	o.count()
}

// run writes batch after batch until the outbox is finished or the peer is gone.
func (o *outbox) run(w io.Writer) error {
	defer close(o.done)
	defer o.written()
	for {
		batch, refused, closed := o.take()
		switch {
		case batch != nil:
			if _, err := w.Write(batch); err != nil {
				o.finish()
				return err
			}
			keepSpare(batch)
		case closed:
			return nil
		case len(refused) == 0:
			<-o.filled
		}
		for _, r := range refused {
			r.resume()
		}
	}
}

// written tells that nothing is being written any more.
func (o *outbox) written() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing = 0
	o.count()
}

// take returns what is to be written next, or nil, and whoever may have more.
func (o *outbox) take() (next []byte, refused []stalled, closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing = 0 // it has been written
	if len(o.batches) > 0 {
		next = o.batches[0]
		o.batches = slices.Delete(o.batches, 0, 1)
		o.writing = len(next)
		o.size -= len(next)
	}
	o.count()
	if o.full.Load() && o.held() <= o.limit()/2 {
		o.full.Store(false)
		signal(o.taken)
		refused, o.stalled = o.stalled, nil
	}
	return next, refused, next == nil && o.closed
}

// signal wakes whoever waits on a channel with room for one signal.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
