package session

import (
	"errors"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// silentHalves is how many half intervals a peer may be silent: two intervals, as the specification has it, and a half
// for the last of its heartbeats to arrive.
const silentHalves = 5

var errSilent = errors.New("missed heartbeats from the client")

// startHeartbeats sends a heartbeat every half interval and ends the session when none arrives, nor anything else. The
// function it returns ends that, and waits for the end.
func (s *Session) startHeartbeats() (stop func()) {
	if s.heartbeat == 0 {
		return func() {}
	}
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		half := time.NewTicker(s.heartbeat / 2)
		defer half.Stop()
		var seen uint64
		silent := 0
		for {
			select {
			case <-done:
				return
			case <-half.C:
			}
			s.out.write(amqpwire.AppendHeartbeatFrame)
			received := s.received.Load()
			if received != seen || s.blocked.Load() || s.waiting.Load() {
				seen, silent = received, 0
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
