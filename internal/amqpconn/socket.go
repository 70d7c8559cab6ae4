package amqpconn

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// socket is the network connection below the client.
//
// It can buffer writes, so that one packet contains several messages. The client writes each message to the socket
// separately. On both sides, these writes cost about as much as all other work for the message.
//
// It records whether a read or a write has failed. If the client closes the connection with an error
// although no read or write has failed, the broker has sent invalid data.
//
// It detects writes that the broker does not read. The client would wait indefinitely, and so would all other writes on
// the connection, including heartbeats.
type socket struct {
	net.Conn
	failed  atomic.Bool
	greeted bool         // whether the socket has read data
	first   atomic.Int32 // the first byte that the socket has read

	mu        sync.Mutex
	buffering bool
	buffered  []byte
	watch     *time.Timer // runs during a write; nil before watchWrites
	timeout   time.Duration
	writing   atomic.Int64 // start of the current write as the time since began; 0 means no watched write
	began     time.Time    // when watchWrites was called
}

// maxBuffered is the maximum number of bytes that the socket buffers, or writes at a time.
const maxBuffered = 64 << 10

// watchWrites makes the socket call stuck if the broker does not read a part of a write (at most maxBuffered bytes)
// within the timeout. If stuck returns more than 0, the socket checks again after that time.
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
	n, err := s.recordError(s.Conn.Read(p))
	if err != nil {
		_ = s.Conn.Close() // the client does not close the socket while a write is blocked
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
	if s.buffering && len(s.buffered)+len(p) <= maxBuffered {
		s.buffered = append(s.buffered, p...)
		return len(p), nil
	}
	if err := s.writeBuffered(); err != nil {
		return 0, err
	}
	return s.write(p)
}

// startBuffering makes the socket buffer writes until flush, or until the buffer is full. The caller must call flush
// before it waits, because the broker cannot answer data that it has not received.
func (s *socket) startBuffering() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buffering = true
}

// flush writes the buffered data of all callers.
func (s *socket) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buffering = false
	if s.writeBuffered() != nil {
		_ = s.Conn.Close() // the client then closes the connection
	}
}

func (s *socket) writeBuffered() error {
	if len(s.buffered) == 0 {
		return nil
	}
	_, err := s.write(s.buffered)
	s.buffered = s.buffered[:0]
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
		part := p[:min(len(p), maxBuffered)]
		n, err := s.recordError(s.Conn.Write(part))
		written, p = written+n, p[n:]
		if err != nil || len(p) == 0 {
			return written, err
		}
	}
}

func (s *socket) recordError(n int, err error) (int, error) {
	if err != nil {
		s.failed.Store(true)
	}
	return n, err
}
