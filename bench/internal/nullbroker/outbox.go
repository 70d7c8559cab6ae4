package nullbroker

import (
	"io"
	"sync"
)

// outboxLimit is the number of buffered bytes above which writers to a client block.
const outboxLimit = 4 << 20

// outbox buffers frames while earlier frames are being written.
type outbox struct {
	mu      sync.Mutex
	changed *sync.Cond
	frames  []byte
	spare   []byte
	ended   bool
}

func newOutbox() *outbox {
	o := &outbox{}
	o.changed = sync.NewCond(&o.mu)
	return o
}

// write adds whole frames. It adds nothing to a finished outbox.
func (o *outbox) write(frames []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.ended && len(o.frames) > outboxLimit {
		o.changed.Wait()
	}
	if o.ended {
		return
	}
	o.frames = append(o.frames, frames...)
	o.changed.Broadcast()
}

// finish makes run return after it has written all frames.
func (o *outbox) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.changed.Broadcast()
}

// run writes the frames to w until the outbox is finished or a write fails.
func (o *outbox) run(w io.Writer) error {
	for {
		o.mu.Lock()
		for !o.ended && len(o.frames) == 0 {
			o.changed.Wait()
		}
		batch := o.frames
		o.frames, o.spare = o.spare[:0], batch
		o.changed.Broadcast()
		o.mu.Unlock()
		if len(batch) == 0 {
			return nil
		}
		if _, err := w.Write(batch); err != nil {
			o.finish()
			return err
		}
	}
}
