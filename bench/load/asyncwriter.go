package load

import (
	"io"
	"sync"
)

// asyncWriter writes frames, such as acks, in a separate goroutine, on behalf of the goroutine that reads from a link.
// If the reading goroutine wrote the frames itself, it could block on a connection that is full of published messages.
// If the broker then blocked while sending deliveries, both sides would be deadlocked.
type asyncWriter struct {
	mu      sync.Mutex
	changed *sync.Cond
	buf     []byte
	spare   []byte
	writing bool
	ended   bool
}

func newAsyncWriter() *asyncWriter {
	l := &asyncWriter{}
	l.changed = sync.NewCond(&l.mu)
	return l
}

// write appends whole frames to the buffer.
func (l *asyncWriter) write(frames []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, frames...)
	l.changed.Broadcast()
}

// wait waits until run has written the whole buffer, a write fails, or end is called.
func (l *asyncWriter) wait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.ended && (l.writing || len(l.buf) > 0) {
		l.changed.Wait()
	}
}

func (l *asyncWriter) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.changed.Broadcast()
}

// run writes the buffer to w until end is called or a write fails.
func (l *asyncWriter) run(w io.Writer) error {
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
