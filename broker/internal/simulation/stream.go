package simulation

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// stream is one direction of a connection. It accepts any number of bytes without blocking. If a client blocked while it
// held a lock, other goroutines would wait for the lock and the virtual clock would stop.
type stream struct {
	latency time.Duration
	onCut   func() // called when the byte limit is reached

	mu        sync.Mutex
	changed   sync.Cond
	chunks    []chunk
	finished  bool // the writer has closed the stream
	abandoned bool // the reader has closed the stream
	severed   bool
	swallows  bool
	stalled   time.Time // time before which no bytes arrive
	left      int       // bytes until the cut; negative: no limit
	deadline  time.Time // of the reader
	timer     *time.Timer
	timerAt   time.Time
}

// chunk is a sequence of bytes with the same arrival time.
type chunk struct {
	data []byte
	due  time.Time // arrival time
}

var errCut = errors.New("simulation: connection cut")

func newStream(latency time.Duration) *stream {
	s := &stream{latency: latency, left: -1}
	s.changed.L = &s.mu
	return s
}

func (s *stream) put(p []byte) (int, error) {
	s.mu.Lock()
	reached := false
	switch {
	case s.finished:
		s.mu.Unlock()
		return 0, net.ErrClosed
	case s.severed:
		s.mu.Unlock()
		return 0, errCut
	case s.abandoned:
		s.mu.Unlock()
		return 0, io.ErrClosedPipe
	case s.swallows:
		s.mu.Unlock()
		return len(p), nil
	}
	data := p
	if s.left >= 0 {
		if reached = len(p) >= s.left; reached {
			data = p[:s.left]
		}
		s.left -= len(data)
	}
	if len(data) > 0 {
		s.append(data)
	}
	onCut := s.onCut
	s.mu.Unlock()
	if reached && onCut != nil {
		s.drain()
		onCut()
	}
	return len(p), nil
}

// append adds bytes that arrive after the latency. Bytes with the same arrival time share a chunk.
func (s *stream) append(data []byte) {
	var due time.Time
	if s.latency > 0 {
		due = time.Now().Add(s.latency)
	}
	if n := len(s.chunks); n > 0 && !s.chunks[n-1].due.Before(due) {
		s.chunks[n-1].data = append(s.chunks[n-1].data, data...)
	} else {
		s.chunks = append(s.chunks, chunk{append([]byte(nil), data...), due})
	}
	s.changed.Broadcast()
}

// drain makes the bytes before a cut arrive immediately, because the cut would drop them.
func (s *stream) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latency, s.stalled = 0, time.Time{}
	for i := range s.chunks {
		s.chunks[i].due = time.Time{}
	}
	s.finished = true // the reader receives the bytes and then the end of the stream
	s.changed.Broadcast()
}

func (s *stream) take(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		now := time.Now()
		arrives := s.arrives()
		switch {
		case s.abandoned:
			return 0, net.ErrClosed
		case s.severed && !(s.finished && len(s.chunks) > 0):
			return 0, errCut
		case !s.deadline.IsZero() && !now.Before(s.deadline):
			return 0, os.ErrDeadlineExceeded
		case len(s.chunks) > 0 && !now.Before(arrives):
			first := &s.chunks[0]
			n := copy(p, first.data)
			if first.data = first.data[n:]; len(first.data) == 0 {
				if s.chunks = s.chunks[1:]; len(s.chunks) == 0 {
					s.chunks = nil
				}
			}
			return n, nil
		case len(s.chunks) == 0 && s.finished:
			return 0, io.EOF
		}
		s.wake(arrives)
		s.changed.Wait()
	}
}

// arrives returns the arrival time of the next bytes. It returns the zero time if no bytes are pending or if they are
// already readable.
func (s *stream) arrives() time.Time {
	if len(s.chunks) == 0 {
		return time.Time{}
	}
	if due := s.chunks[0].due; due.After(s.stalled) {
		return due
	}
	return s.stalled
}

// wake sets a timer that wakes the reader at the next arrival or at its deadline. A timer that fires too early costs less
// than a new timer for each frame.
func (s *stream) wake(arrives time.Time) {
	at := s.deadline
	if !arrives.IsZero() && (at.IsZero() || arrives.Before(at)) {
		at = arrives
	}
	if at.IsZero() || s.timer != nil && !at.Before(s.timerAt) {
		return
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timerAt = at
	s.timer = time.AfterFunc(time.Until(at), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.timer = nil
		s.changed.Broadcast()
	})
}

// expect sets the reader's deadline; zero: none.
func (s *stream) expect(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	s.changed.Broadcast()
}

func (s *stream) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = true
	s.changed.Broadcast()
}

func (s *stream) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abandoned, s.chunks = true, nil
	s.stop()
	s.changed.Broadcast()
}

func (s *stream) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.severed = true
	if !s.finished {
		s.chunks = nil
	}
	s.stop()
	s.changed.Broadcast()
}

func (s *stream) stop() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

func (s *stream) swallow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.swallows = true
}

func (s *stream) stall(until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled = until
	s.changed.Broadcast()
}

// cutAfter makes the stream call the function do after n further bytes. A negative n means never.
func (s *stream) cutAfter(n int, do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left, s.onCut = n, do
}
