package session

import (
	"context"
	"io"
	"sync"
)

// outboxLimit is how many bytes wait for a slow reader before consumers are offered nothing more, and before the peer's
// own frames, each of which may call for a reply, are left unread.
const outboxLimit = 1 << 20

// outboxKeep is the largest buffer that an idle connection keeps for later.
const outboxKeep = 256 << 10

// outbox gathers encoded frames. While one batch is being written the next one grows, so that a busy connection writes
// many frames at a time, and a lone frame goes out at once.
type outbox struct {
	mu      sync.Mutex
	frames  []byte
	spare   []byte // the buffer written last, to be used again
	stalled []func()
	closed  bool

	filled chan struct{} // there is something to write, or the outbox is closed
	taken  chan struct{} // a batch has gone
	done   chan struct{} // closed when nothing is written any more
}

func newOutbox() *outbox {
	return &outbox{filled: make(chan struct{}, 1), taken: make(chan struct{}, 1), done: make(chan struct{})}
}

// write adds what the function appends.
func (o *outbox) write(appendTo func([]byte) []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(appendTo)
}

func (o *outbox) add(appendTo func([]byte) []byte) {
	if !o.closed {
		o.frames = appendTo(o.frames)
		signal(o.filled)
	}
}

// offer is write for deliveries: when the peer does not keep up, it adds nothing and returns false, and resume is called
// once it does.
func (o *outbox) offer(appendTo func([]byte) []byte, resume func()) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.frames) >= outboxLimit {
		o.stalled = append(o.stalled, resume)
		return false
	}
	o.add(appendTo)
	return true
}

// waitForRoom blocks while the peer does not keep up with reading.
func (o *outbox) waitForRoom(ctx context.Context) error {
	for {
		o.mu.Lock()
		full := len(o.frames) >= outboxLimit && !o.closed
		o.mu.Unlock()
		if !full {
			return nil
		}
		select {
		case <-o.taken:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// finish lets run return once everything has been written.
func (o *outbox) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	signal(o.filled)
}

// run writes batch after batch until the outbox is finished or the peer is gone.
func (o *outbox) run(w io.Writer) error {
	defer close(o.done)
	for {
		<-o.filled
		batch, stalled, closed := o.take()
		signal(o.taken)
		if len(batch) > 0 {
			if _, err := w.Write(batch); err != nil {
				o.finish()
				return err
			}
		}
		for _, resume := range stalled {
			resume()
		}
		if closed {
			return nil
		}
	}
}

func (o *outbox) take() (batch []byte, stalled []func(), closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	batch, o.frames = o.frames, o.spare[:0]
	o.spare = batch
	if cap(batch) > outboxKeep {
		o.spare = nil // one burst must not keep its room for ever
	}
	stalled, o.stalled = o.stalled, nil
	return batch, stalled, o.closed
}

// signal wakes whoever waits on a channel with room for one signal.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
