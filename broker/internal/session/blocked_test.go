package session

import (
	"testing"
	"testing/synctest"

	"github.com/reprisemq/reprise/broker/internal/alarm"
)

// An alarm may last for hours. The session must therefore send the outstanding confirms when it blocks the client.
func TestAlarmSendsOutstandingConfirms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openConfirming(t, nil, 1)
		low := alarm.Alarm{Resource: alarm.Memory}
		low.Set(true)
		s.config.Alarms = alarm.Set{&low}
		s.published(1, true, 0)
		s.contentBegun = true // start of the next message
		done := make(chan error)
		go func() { done <- s.block() }()
		synctest.Wait()
		s.wantSent("ack 1", "while publishing is blocked")
		low.Set(false)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
