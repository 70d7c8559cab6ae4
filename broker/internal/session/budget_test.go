package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/broker/internal/alarm"
	"github.com/reprisemq/reprise/broker/internal/budget"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// exceed makes the session exceed its memory limit. The session must requeue its messages, release its memory and return,
// although its client does not respond.
func (w *waitingSession) exceed() {
	w.t.Helper()
	w.account.Take(budget.Consumers, 1<<40)
	w.account.Give(budget.Consumers, 1<<40)
	time.Sleep(closeTimeout)
	if !w.over() || w.queue().Unacked != 0 {
		w.t.Errorf("session still runs or has unacked messages: got %d, want 0", w.queue().Unacked)
	}
	if used := w.account.Used(); used != 0 {
		w.t.Errorf("account of the ended session: got %d bytes, want 0", used)
	}
}

func TestMemoryLimitClosesSessionThatWaitsForDisk(t *testing.T) {
	eachWait(t, func(t *testing.T, w *waitingSession) { w.exceed() })
}

func TestMemoryLimitClosesSessionDuringBacklog(t *testing.T) {
	withBacklog(t, func(w *waitingSession, _ *fakeStore, _ *alarm.Alarm) {
		w.exceed()
		w.ended <- nil
	})
}

func TestMemoryLimitClosesBlockedSession(t *testing.T) {
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
			t.Errorf("state of the connection: got %s, want blocked", state)
		}
		w.exceed()
		_ = w.client.Close()
	})
}

// A channel keeps unused capacity for unacked deliveries, except while memory is scarce.
func TestUnackedReleasesCapacityWhileMemoryIsScarce(t *testing.T) {
	all := budget.NewConnections(1<<20, 1<<20)
	account := all.Open(func(budget.Excess) { t.Error("memory limit exceeded") })
	u := unackedDeliveries{share: account.Share(budget.Unacked)}
	fill := func() {
		for tag := range uint64(500) {
			u.add(delivery{tag: tag + 1, item: new(queue.Item)})
		}
		if account.Used() < 500*deliverySize {
			t.Errorf("account of 500 deliveries: got %d bytes, want at least %d", account.Used(), 500*deliverySize)
		}
		u.takeAll(nil)
	}
	fill()
	if account.Used() == 0 {
		t.Error("channel released its capacity although memory is available")
	}
	other := all.Open(func(budget.Excess) { t.Error("memory limit exceeded") })
	other.Take(budget.Channels, 600<<10)
	fill()
	if account.Used() != 0 {
		t.Errorf("account while memory is scarce: got %d bytes, want 0", account.Used())
	}
}
