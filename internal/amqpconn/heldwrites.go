package amqpconn

import (
	"net"
	"sync"
	"sync/atomic"
)

// socket is the network connection below the client.
//
// It can hold writes until more follows in the same packet. The client writes each message
// to the socket by itself, which costs both sides about as much as everything else about
// the message.
//
// It records whether reading or writing has failed. If neither has, the connection ended
// because of its content.
type socket struct {
	net.Conn
	failed  atomic.Bool
	greeted bool         // something was read
	first   atomic.Int32 // the first byte that was read

	mu      sync.Mutex
	holding bool
	held    []byte
}

// maxHeld is the maximum number of bytes that are held.
const maxHeld = 64 << 10

// Read implements net.Conn.
func (s *socket) Read(p []byte) (int, error) {
	n, err := s.noted(s.Conn.Read(p))
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
	return s.noted(s.Conn.Write(p))
}

// hold holds all writes until flush. The caller must call flush before it waits for
// anything: the broker cannot answer what it has not received.
func (s *socket) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holding = true
}

// flush writes what is held, by whomever it was written.
func (s *socket) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holding = false
	if s.release() != nil {
		_ = s.Conn.Close() // the client then ends the connection
	}
}

func (s *socket) release() error {
	if len(s.held) == 0 {
		return nil
	}
	_, err := s.noted(s.Conn.Write(s.held))
	s.held = s.held[:0]
	return err
}

func (s *socket) noted(n int, err error) (int, error) {
	if err != nil {
		s.failed.Store(true)
	}
	return n, err
}
