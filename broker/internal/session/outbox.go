package session

import (
	"context"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/reprisemq/reprise/broker/internal/budget"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

const (
	// outboxLimit is the number of unwritten bytes at which the session stops deliveries to its consumers. It also stops
	// reading from the client, because each frame may require a reply. Deliveries and reads resume at half of the limit.
	// While memory for connections is scarce, the limit is outboxBatch. A single message may exceed the limit, but the
	// next message then waits, because the batch that is being written also counts.
	outboxLimit = 1 << 20
	// outboxStep is the granularity of memory accounting. Most connections have fewer unwritten bytes and therefore
	// avoid the cost of accounting.
	outboxStep = 64 << 10
	// outboxBatch is the approximate size of a write. Larger writes are not faster.
	outboxBatch = 64 << 10
)

// spares holds the buffers of written batches. Any connection may reuse them, so idle connections need no buffers. A
// sync.Pool is not suitable, because a processor rarely gets a batch that another processor returned to the pool.
var spares = make(chan []byte, 32)

func spare() []byte {
	select {
	case b := <-spares:
		return b
	default:
		return nil
	}
}

// keepSpare stores a batch for reuse, unless its capacity is much larger than outboxBatch.
func keepSpare(b []byte) {
	if cap(b) > 4*outboxBatch {
		return
	}
	select {
	case spares <- b[:0]:
	default:
	}
}

// outbox collects encoded frames. While the writer writes a batch, the next batches grow. The writer therefore sends many
// frames at a time on a busy connection, and a single frame immediately on an idle connection.
type outbox struct {
	mu      sync.Mutex
	batches [][]byte // in order; the last one grows
	size    int      // size of all batches
	writing int      // size of the batch that is being written
	stalled []stalledSender
	share   budget.Share
	closed  bool
	full    atomic.Bool // the peer reads too slowly; readable without the lock

	dataAdded  chan struct{} // signals new data, or that the outbox is closed
	spaceFreed chan struct{} // signals free space
	done       chan struct{} // closed after the last write
}

// stalledSender is a sender whose data the outbox refused. The outbox resumes it when space is available.
type stalledSender interface{ resume() }

func newOutbox(a *budget.Account) *outbox {
	return &outbox{
		share:     a.Share(budget.Unread),
		dataAdded: make(chan struct{}, 1), spaceFreed: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// limit returns the maximum size of the outbox.
func (o *outbox) limit() int {
	if o.share.Scarce() {
		return outboxBatch
	}
	return outboxLimit
}

// held returns the number of bytes whose write is not complete.
func (o *outbox) held() int { return o.size + o.writing }

func (o *outbox) count() { o.share.Set(int64(o.held() / outboxStep * outboxStep)) }

// body is the body of a message that follows other frames.
type body struct {
	bytes    []byte
	channel  uint16
	frameMax uint32
}

// write adds the bytes that appendTo appends.
func (o *outbox) write(appendTo func([]byte) []byte) { o.writeContent(appendTo, body{}) }

// writeContent adds the bytes that appendTo appends, and the frames of a body.
func (o *outbox) writeContent(appendTo func([]byte) []byte, content body) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.addContent(appendTo, content)
}

// addContent adds the frames of a large body one by one, so that its batches have the usual size and are reused.
func (o *outbox) addContent(appendTo func([]byte) []byte, content body) {
	o.add(appendTo)
	if len(content.bytes) == 0 {
		return
	}
	for part := range slices.Chunk(content.bytes, int(content.frameMax)-amqpwire.FrameOverhead) {
		o.add(func(b []byte) []byte { return amqpwire.AppendBodyFrames(b, content.channel, part, content.frameMax) })
	}
}

func (o *outbox) add(appendTo func([]byte) []byte) {
	if o.closed {
		return
	}
	if n := len(o.batches); n == 0 || len(o.batches[n-1]) >= outboxBatch {
		o.batches = append(o.batches, spare())
		if n == 0 { // otherwise the writer takes the batch without a signal
			signal(o.dataAdded)
		}
	}
	last := &o.batches[len(o.batches)-1]
	before := len(*last)
	*last = appendTo(*last)
	o.size += len(*last) - before
	o.updateFull()
	o.count()
}

// updateFull updates full. An outbox may become full without new data, because the limit is lower while memory is scarce.
func (o *outbox) updateFull() {
	if held := o.held(); held >= outboxBatch && held >= o.limit() {
		o.full.Store(true)
	}
}

// offer is like write, for deliveries. If the peer reads too slowly, offer adds no data and returns false, and the
// outbox resumes the sender when space is available.
func (o *outbox) offer(appendTo func([]byte) []byte, content body, by stalledSender) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.updateFull(); o.full.Load() {
		o.stalled = append(o.stalled, by)
		return false
	}
	o.addContent(appendTo, content)
	return true
}

// waitForRoom blocks while the peer reads too slowly. If ctx is done first, it returns the cause of ctx.
func (o *outbox) waitForRoom(ctx context.Context) error {
	for o.full.Load() {
		select {
		case <-o.spaceFreed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// finish makes run write the remaining data and return.
func (o *outbox) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.full.Store(false)
	signal(o.dataAdded)
}

// drop discards all data that is not being written. Batches contain complete frames, so other frames may follow.
func (o *outbox) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.batches, o.size, o.stalled = nil, 0, nil
	if o.full.Swap(false) {
		signal(o.spaceFreed)
	}
	o.count()
}

// run writes batches until the outbox is finished or a write fails.
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
			<-o.dataAdded
		}
		for _, r := range refused {
			r.resume()
		}
	}
}

// written records that the writer has stopped.
func (o *outbox) written() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing = 0
	o.count()
}

// take returns the next batch, or nil, and the stalled senders to be resumed.
func (o *outbox) take() (next []byte, refused []stalledSender, closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing = 0 // the previous batch was written
	if len(o.batches) > 0 {
		next = o.batches[0]
		o.batches = slices.Delete(o.batches, 0, 1)
		o.writing = len(next)
		o.size -= len(next)
	}
	o.count()
	if o.full.Load() && o.held() <= o.limit()/2 {
		o.full.Store(false)
		signal(o.spaceFreed)
		refused, o.stalled = o.stalled, nil
	}
	return next, refused, next == nil && o.closed
}

// signal wakes the receiver of a channel with capacity 1. It does not block.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
