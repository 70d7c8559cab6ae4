package amqpclient

import (
	"io"
	"sync"
)

// maxBuffered is the number of bytes after which the writer writes without a flush, and after which it makes callers wait
// until the socket has accepted data.
const maxBuffered = 64 << 10

// writer collects frames, and writes those of all callers together.
type writer struct {
	dst io.Writer

	mu      sync.Mutex
	room    sync.Cond // signaled after each write
	pending []byte
	spare   []byte // buffer of the previous write
	writing bool   // a goroutine is in dst.Write
	wrote   bool   // since the last call of idle
	err     error
}

func newWriter(dst io.Writer) *writer {
	w := &writer{dst: dst}
	w.room.L = &w.mu
	return w
}

// append calls add, which appends frames to a buffer, and writes the buffer if flush is set or the buffer is large. If
// another goroutine is writing, that goroutine also writes these frames. An error of add leaves the buffer unchanged. After
// ErrClosed, nothing was added.
func (w *writer) append(flush bool, add func(buf []byte) ([]byte, error)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.writing && len(w.pending) >= maxBuffered && w.err == nil {
		w.room.Wait()
	}
	if w.err != nil {
		return w.err
	}
	buf, err := add(w.pending)
	if err != nil {
		return err
	}
	w.pending = buf
	if !flush && len(buf) < maxBuffered {
		return nil
	}
	if err = w.write(); err == ErrClosed {
		return errInterrupted
	}
	return err
}

// flush writes the buffer.
func (w *writer) flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.write()
}

// write writes until the buffer is empty, unless another goroutine does. The caller holds mu.
func (w *writer) write() error {
	if w.writing {
		return w.err
	}
	w.writing = true
	for len(w.pending) > 0 && w.err == nil {
		out := w.pending
		w.pending, w.wrote = w.spare[:0], true
		w.mu.Unlock()
		_, err := w.dst.Write(out)
		w.mu.Lock()
		if w.err == nil {
			w.err = err
		}
		if w.spare = out; cap(out) > 2*maxBuffered {
			w.spare = nil // of a large message
		}
		w.room.Broadcast()
	}
	w.writing = false
	w.room.Broadcast()
	return w.err
}

// idle reports whether nothing was written since the last call.
func (w *writer) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	idle := !w.wrote && !w.writing
	w.wrote = false
	return idle
}

// failed reports whether the socket has failed or the writer is closed.
func (w *writer) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err != nil
}

// close makes all later writes fail.
func (w *writer) close(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.room.Broadcast()
}
