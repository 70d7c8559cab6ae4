package session

import (
	"errors"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// silentHalves is the number of half heartbeat intervals without data after which the broker closes the connection: two
// intervals, as in the specification, and half an interval for the transit of the last heartbeat.
const silentHalves = 5

var errSilent = errors.New("missed heartbeats from the client")

// startHeartbeats sends a heartbeat every half interval, and cancels the session if no data arrives for silentHalves
// half intervals. If the client reads slowly, the session may stop reading and miss the client's heartbeats. In that
// case, a client that still reads counts as active. The returned function stops the heartbeats and waits until their
// goroutine has returned.
func (s *Session) startHeartbeats() (stop func()) {
	if s.heartbeat == 0 {
		return func() {}
	}
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		half := time.NewTicker(s.heartbeat / 2)
		defer half.Stop()
		var seen, read uint64
		silent := 0
		for {
			select {
			case <-done:
				return
			case <-half.C:
			}
			s.out.write(amqpwire.AppendHeartbeatFrame)
			received, sent := s.received.Load(), s.traffic.bytesOut.Load()
			alive := received != seen || s.readsPaused() || s.out.full.Load() && sent != read
			if seen, read = received, sent; alive {
				silent = 0
				continue
			}
			if silent++; silent >= silentHalves {
				s.cancel(errSilent)
				return
			}
		}
	})
	return func() {
		close(done)
		running.Wait()
	}
}
