package session

import (
	"errors"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// silentHalves is the number of half intervals without data after which the session ends: two intervals, as in the
// specification, and one half interval for the transit of the last heartbeat.
const silentHalves = 5

var errSilent = errors.New("missed heartbeats from the client")

// startHeartbeats sends a heartbeat every half interval, and ends the session if no data arrives. If the client reads
// slowly, the session may not have read the heartbeats of the client, so progress of the client's reads also counts as a
// sign of life. The returned function stops the heartbeats and waits for their goroutine.
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
