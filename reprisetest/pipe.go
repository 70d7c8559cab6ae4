package reprisetest

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipe returns the two ends of a connection in memory. Unlike net.Pipe, the connection has an
// unlimited buffer. A broker that blocks publishers does not read, but a socket would still accept
// heartbeats. If a client had to wait for such a write while it holds a lock, other goroutines would
// wait for that lock, and the clock of the bubble would not advance.
func pipe(client, server net.Addr) (atClient, atServer net.Conn) {
	toServer, toClient := newStream(), newStream()
	return &end{read: toClient, write: toServer, local: client, remote: server},
		&end{read: toServer, write: toClient, local: server, remote: client}
}

type end struct {
	read, write   *stream
	local, remote net.Addr
}

// Read implements net.Conn.
func (e *end) Read(p []byte) (int, error) { return e.read.take(p) }

// Write implements net.Conn. It does not block.
func (e *end) Write(p []byte) (int, error) { return e.write.put(p) }

// Close implements net.Conn. The other end can still read earlier data.
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
	e.read.setDeadline(t)
	return nil
}

// SetWriteDeadline implements net.Conn. It has no effect, because writes do not block.
func (e *end) SetWriteDeadline(time.Time) error { return nil }

// stream is one direction of a connection.
type stream struct {
	mu        sync.Mutex
	changed   sync.Cond
	data      []byte // written data
	used      int    // number of bytes of data that were read
	finished  bool   // the writer has closed the stream
	abandoned bool   // the reader has closed the stream
	deadline  time.Time
	timer     *time.Timer // nil if no timer is running
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

// wake ensures that the reader wakes up at its deadline. A timer that fires too early costs less than
// a timer for each frame.
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

// setDeadline sets the reader's deadline; zero means no deadline.
func (s *stream) setDeadline(t time.Time) {
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
