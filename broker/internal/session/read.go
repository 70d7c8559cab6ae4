package session

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// framesAtATime bounds for how long the session is locked.
const framesAtATime = 64

// read handles what the client sends, until one of the two has had enough.
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
			return s.unread(err)
		}
		if f.Type != amqpwire.FrameHeartbeat { // which is a sign of life, and calls for nothing
			if err := s.out.waitForRoom(s.ctx); err != nil {
				return err
			}
		}
		done, err := s.handle(f)
		if err != nil {
			return s.unread(err)
		}
		if done {
			return nil
		}
		if err := s.block(); err != nil {
			return err
		}
	}
}

// handle does what a frame asks for, and those that have been read with it: to lock for each of them would cost more than
// most of them do. Done says that the connection has been closed in order.
func (s *Session) handle(f amqpwire.Frame) (done bool, err error) {
	s.lock()
	defer s.unlock()
	for n := 1; ; n++ {
		s.received.Add(1)
		if !isAck(f) {
			s.heedAcks()
		}
		done = s.frame(f)
		if done || n == framesAtATime || !s.in.Ready() || s.out.full.Load() || s.mayBlock() {
			break
		}
		if f, err = s.in.ReadFrame(); err != nil {
			break
		}
	}
	s.heedAcks()
	s.last.forgetWay()
	s.relieve()
	if !s.in.Ready() {
		s.confirms.flush() // there may be nothing more for a while
	}
	return done, err
}

// isHeld reports whether the client is not read for a reason of the broker's own, so that its silence says nothing.
func (s *Session) isHeld() bool { return s.blocked.Load() || s.waiting.Load() }

// unread deals with what came in place of a frame.
func (s *Session) unread(err error) error {
	malformed, ok := errors.AsType[*amqpwire.FrameError](err)
	switch {
	case s.closing.Load():
		return nil // the answer to connection.close will not come
	case !ok:
		return s.lost(err)
	}
	s.lock()
	s.fail(frameError(malformed), 0)
	s.unlock()
	s.discard()
	return nil
}

// lost tells a connection that was cut from one that ended in order.
func (s *Session) lost(err error) error {
	if cause := context.Cause(s.ctx); cause != nil {
		return cause
	}
	if errors.Is(err, io.EOF) {
		return errors.New("the client closed the connection without connection.close")
	}
	return fmt.Errorf("read: %w", err)
}
