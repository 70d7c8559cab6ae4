package amqpconn

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// socket is the network connection below the client.
//
// It can hold writes until more data fills the same packet. The client writes each message to the socket separately,
// and the separate writes cost both sides about as much as all other work for the message.
//
// It records whether a read or a write has failed. Otherwise the connection ended because of its content.
//
// It watches writes. The client waits indefinitely until the broker has read a write, and every other write of the
// connection waits behind it, including heartbeats.
type socket struct {
	net.Conn
	failed  atomic.Bool
	greeted bool         // the socket has read data
	first   atomic.Int32 // the first byte that it has read

	mu      sync.Mutex
	holding bool
	held    []byte
	watch   *time.Timer // runs during a write; nil before watchWrites
	timeout time.Duration
	writing atomic.Int64 // start of the current write, if watched; 0 means none
	began   time.Time    // the time of watchWrites
}

// maxHeld is the maximum number of bytes that the socket holds, or writes at a time.
const maxHeld = 64 << 10

// watchWrites calls stuck if the broker has not read maxHeld bytes within the timeout. If stuck returns more than 0,
// watchWrites checks again after that time.
func (s *socket) watchWrites(timeout time.Duration, stuck func() time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timeout, s.began = timeout, time.Now()
	s.watch = time.AfterFunc(timeout, func() {
		since := s.writing.Load()
		if since == 0 {
			return
		}
		again := timeout - (time.Since(s.began) - time.Duration(since)) // for a write that began after the timer was set
		if again <= 0 {
			again = stuck()
		}
		if again > 0 {
			s.watch.Reset(again)
		}
	})
	s.watch.Stop()
}

// Read implements net.Conn.
func (s *socket) Read(p []byte) (int, error) {
	n, err := s.noted(s.Conn.Read(p))
	if err != nil {
		_ = s.Conn.Close() // the client closes the socket only when no write is stuck
	}
	if n > 0 && !s.greeted {
		s.greeted = true
		s.first.Store(int32(p[0]))
	}
	return n, err
}

// Write implements net.Conn.
func (s *socket) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holding && len(s.held)+len(p) <= maxHeld {
		s.held = append(s.held, p...)
		return len(p), nil
	}
	if err := s.release(); err != nil {
		return 0, err
	}
	return s.write(p)
}

// hold holds all writes until flush. The caller must call flush before it waits, because the broker cannot answer data
// that it has not received.
func (s *socket) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holding = true
}

// flush writes the held data of all callers.
func (s *socket) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holding = false
	if s.release() != nil {
		_ = s.Conn.Close() // the client then closes the connection
	}
}

func (s *socket) release() error {
	if len(s.held) == 0 {
		return nil
	}
	_, err := s.write(s.held)
	s.held = s.held[:0]
	return err
}

func (s *socket) write(p []byte) (written int, err error) {
	if s.watch != nil {
		defer s.writing.Store(0)
		defer s.watch.Stop()
	}
	for {
		if s.watch != nil {
			s.writing.Store(int64(time.Since(s.began)) | 1)
			s.watch.Reset(s.timeout)
		}
		part := p[:min(len(p), maxHeld)]
		n, err := s.noted(s.Conn.Write(part))
		written, p = written+n, p[n:]
		if err != nil || len(p) == 0 {
			return written, err
		}
	}
}

func (s *socket) noted(n int, err error) (int, error) {
	if err != nil {
		s.failed.Store(true)
	}
	return n, err
}
