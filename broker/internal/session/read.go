package session

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// maxFramesPerLock limits the number of frames that the reader handles before it releases the lock.
const maxFramesPerLock = 64

// read handles frames from the client until the connection is closed.
func (s *Session) read() error {
	if err := s.handshake(); err != nil {
		return err
	}
	s.mu.Lock()
	s.opened = true
	s.mu.Unlock()
	s.log.Info("connection opened", "user", s.user)
	defer s.startHeartbeats()()

	for {
		f, err := s.in.ReadFrame()
		if err != nil {
			return s.handleReadError(err)
		}
		if f.Type != amqpwire.FrameHeartbeat { // a heartbeat does not require a reply
			if err := s.out.waitForRoom(s.ctx); err != nil {
				return err
			}
		}
		done, err := s.handle(f)
		if err != nil {
			return s.handleReadError(err)
		}
		if done {
			return nil
		}
		if err := s.block(); err != nil {
			return err
		}
	}
}

// handle processes a frame, and further frames that are already buffered. Locking for each frame would cost more than
// processing most frames. handle reports whether the closing handshake of the connection is complete.
func (s *Session) handle(f amqpwire.Frame) (done bool, err error) {
	s.lock()
	defer s.unlock()
	for n := 1; ; n++ {
		s.received.Add(1)
		if !isAck(f) {
			s.processAcks()
		}
		done = s.frame(f)
		if done || n == maxFramesPerLock || !s.in.Ready() || s.out.full.Load() || s.mayBlock() {
			break
		}
		if f, err = s.in.ReadFrame(); err != nil {
			break
		}
	}
	s.processAcks()
	s.last.trimRouteCache()
	s.resumeSaturated()
	if !s.in.Ready() {
		s.confirms.flush() // the next frame may arrive much later
	}
	return done, err
}

// readsPaused reports whether the broker has stopped reading from the client. If so, a lack of data does not mean that the
// client is silent.
func (s *Session) readsPaused() bool { return s.blocked.Load() || s.waiting.Load() }

// handleReadError handles a failed read. It reports a malformed frame to the client.
func (s *Session) handleReadError(err error) error {
	malformed, ok := errors.AsType[*amqpwire.FrameError](err)
	switch {
	case s.closing.Load():
		return nil // connection.close-ok will not arrive
	case !ok:
		return s.lost(err)
	}
	s.lock()
	s.fail(frameError(malformed), 0)
	s.unlock()
	s.discard()
	return nil
}

// lost returns the error for a connection that was closed without connection.close.
func (s *Session) lost(err error) error {
	if cause := context.Cause(s.ctx); cause != nil {
		return cause
	}
	if errors.Is(err, io.EOF) {
		return errors.New("the client closed the connection without connection.close")
	}
	return fmt.Errorf("read: %w", err)
}
