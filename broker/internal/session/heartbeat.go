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

// startHeartbeats sends a heartbeat every half interval and ends the session when none arrives, nor anything else. While the
// peer does not keep up with reading, it may be what is not read that is missing: then it is a sign of life, too, that the
// peer reads. The function it returns ends that, and waits for the end.
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
			alive := received != seen || s.isHeld() || s.out.full.Load() && sent != read
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
