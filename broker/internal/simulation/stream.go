package simulation

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// stream is one direction of a connection. It takes any number of bytes without blocking: a client that waited while it holds
// a lock would keep others waiting for that lock, and the clock of the bubble would stand still.
type stream struct {
	latency time.Duration
	onCut   func() // called when a limit of bytes is reached

	mu        sync.Mutex
	changed   sync.Cond
	chunks    []chunk
	finished  bool // nothing more is written
	abandoned bool // nobody reads any more
	severed   bool
	swallows  bool
	stalled   time.Time // nothing arrives before
	left      int       // bytes until it is cut; negative: no limit
	deadline  time.Time // of the reader
	timer     *time.Timer
	timerAt   time.Time
}

// chunk is what was written at once.
type chunk struct {
	data []byte
	due  time.Time // when it arrives
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

// append adds bytes that arrive after the latency. Those that arrive at the same time share a chunk.
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

// drain lets the bytes before a cut arrive at once: the cut would drop them.
func (s *stream) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latency, s.stalled = 0, time.Time{}
	for i := range s.chunks {
		s.chunks[i].due = time.Time{}
	}
	s.finished = true // the reader sees the bytes and then the end
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

// arrives returns when the next bytes can be read; zero: there are none, or they can be read now.
func (s *stream) arrives() time.Time {
	if len(s.chunks) == 0 {
		return time.Time{}
	}
	if due := s.chunks[0].due; due.After(s.stalled) {
		return due
	}
	return s.stalled
}

// wake has the reader woken when something arrives, or at its deadline. A timer that runs too early costs less than one that
// is set for each frame.
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

// cutAfter sets the number of bytes after which do is called; negative: it is not.
func (s *stream) cutAfter(n int, do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left, s.onCut = n, do
}
