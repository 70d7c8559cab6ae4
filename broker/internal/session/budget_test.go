package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/broker/internal/alarm"
	"github.com/reprisemq/reprise/broker/internal/budget"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// exceed has the session take too much. It ends though its client does not answer, and gives back what it had.
func (w *waiting) exceed() {
	w.t.Helper()
	w.account.Take(budget.Consumers, 1<<40)
	w.account.Give(budget.Consumers, 1<<40)
	time.Sleep(closeTimeout)
	if !w.over() || w.queue().Unacked != 0 {
		w.t.Errorf("it does not end; %d messages are unacked", w.queue().Unacked)
	}
	if used := w.account.Used(); used != 0 {
		w.t.Errorf("%d bytes are left", used)
	}
}

func TestASessionThatWaitsForTheDiskIsClosed(t *testing.T) {
	eachWait(t, func(t *testing.T, w *waiting) { w.exceed() })
}

func TestASessionThatWaitsForABacklogIsClosed(t *testing.T) {
	withBacklog(t, func(w *waiting, _ *fakeStore, _ *alarm.Alarm) {
		w.exceed()
		w.ended <- nil
	})
}

func TestASessionThatIsBlockedIsClosed(t *testing.T) {
	low := &alarm.Alarm{Resource: alarm.Memory}
	config := testConfig(t, nil)
	config.Alarms = alarm.Set{low}
	synctest.Test(t, func(t *testing.T) {
		w := serve(t, config)
		low.Set(true)
		if _, err := w.client.Write(append(encode(t, &amqpwire.BasicPublish{RoutingKey: "q"}), emptyMessage()...)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if state := w.Info().State; state != "blocked" {
			t.Errorf("it is %s", state)
		}
		w.exceed()
		_ = w.client.Close()
	})
}
