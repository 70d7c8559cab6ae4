package reprisetest

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipe returns the ends of a connection in memory. Unlike net.Pipe it has an
// unlimited buffer. While a broker blocks publishers it does not read, but a socket
// still takes heartbeats. A client that waited to write one while it holds a lock
// would keep others waiting for that lock, and the clock of the bubble would stand
// still.
func pipe(client, server net.Addr) (atClient, atServer net.Conn) {
	toServer, toClient := newStream(), newStream()
	return &end{read: toClient, write: toServer, local: client, remote: server},
		&end{read: toServer, write: toClient, local: server, remote: client}
}

// end is one of the two ends.
type end struct {
	read, write   *stream
	local, remote net.Addr
}

// Read implements net.Conn.
func (e *end) Read(p []byte) (int, error) { return e.read.take(p) }

// Write implements net.Conn. It does not block.
func (e *end) Write(p []byte) (int, error) { return e.write.put(p) }

// Close implements net.Conn. What was written before can still be read.
func (e *end) Close() error {
	e.read.abandon()
	e.write.finish()
	return nil
}

// LocalAddr implements net.Conn.
func (e *end) LocalAddr() net.Addr { return e.local }

// RemoteAddr implements net.Conn.
func (e *end) RemoteAddr() net.Addr { return e.remote }

// SetDeadline implements net.Conn.
func (e *end) SetDeadline(t time.Time) error { return e.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn.
func (e *end) SetReadDeadline(t time.Time) error {
	e.read.expect(t)
	return nil
}

// SetWriteDeadline implements net.Conn: there is nothing to wait for.
func (e *end) SetWriteDeadline(time.Time) error { return nil }

// stream is one direction.
type stream struct {
	mu        sync.Mutex
	changed   sync.Cond
	data      []byte // written
	used      int    // of data: it has been read
	finished  bool   // nothing more is written
	abandoned bool   // nobody reads any more
	deadline  time.Time
	timer     *time.Timer // nil: it is not running
	timerAt   time.Time
}

func newStream() *stream {
	s := new(stream)
	s.changed.L = &s.mu
	return s
}

func (s *stream) put(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.finished:
		return 0, net.ErrClosed
	case s.abandoned:
		return 0, io.ErrClosedPipe
	}
	s.data = append(s.data, p...)
	s.changed.Broadcast()
	return len(p), nil
}

func (s *stream) take(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.abandoned:
			return 0, net.ErrClosed
		case !s.deadline.IsZero() && !time.Now().Before(s.deadline):
			return 0, os.ErrDeadlineExceeded
		case len(s.data) > s.used:
			n := copy(p, s.data[s.used:])
			if s.used += n; s.used == len(s.data) {
				s.data, s.used = s.data[:0], 0
			}
			return n, nil
		case s.finished:
			return 0, io.EOF
		}
		s.wake()
		s.changed.Wait()
	}
}

// wake has the reader woken at its deadline. A timer that runs too early costs
// less than one that is set for each frame.
func (s *stream) wake() {
	if s.deadline.IsZero() || s.timer != nil && !s.deadline.Before(s.timerAt) {
		return
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timerAt = s.deadline
	s.timer = time.AfterFunc(time.Until(s.deadline), func() {
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
	s.abandoned, s.data = true, nil
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	s.changed.Broadcast()
}
