package load

import (
	"io"
	"sync"
)

// later writes what the reading side of a link has to say, in a goroutine of its
// own: a reader that waited for its socket to take acks, on a connection that is
// full of what is being published, would wait for a broker that waits for it.
type later struct {
	mu      sync.Mutex
	changed *sync.Cond
	buf     []byte
	spare   []byte
	writing bool
	ended   bool
}

func newLater() *later {
	l := &later{}
	l.changed = sync.NewCond(&l.mu)
	return l
}

// write adds whole frames.
func (l *later) write(frames []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, frames...)
	l.changed.Broadcast()
}

// wait returns when all has been written, or nothing more will be.
func (l *later) wait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.ended && (l.writing || len(l.buf) > 0) {
		l.changed.Wait()
	}
}

func (l *later) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.changed.Broadcast()
}

// run writes to w until the end is called.
func (l *later) run(w io.Writer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for !l.ended && len(l.buf) == 0 {
			l.changed.Wait()
		}
		if l.ended {
			return nil
		}
		batch := l.buf
		l.buf, l.spare, l.writing = l.spare[:0], batch, true
		l.mu.Unlock()
		_, err := w.Write(batch)
		l.mu.Lock()
		l.writing = false
		if err != nil {
			l.ended = true
		}
		l.changed.Broadcast()
		if err != nil {
			return err
		}
	}
}
