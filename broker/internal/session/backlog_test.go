package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/broker/internal/alarm"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// withBacklog calls the test while the store has a backlog. The client has started to publish, so the session waits for the
// store.
func withBacklog(t *testing.T, test func(w *waitingSession, disk *fakeStore, low *alarm.Alarm)) {
	t.Helper()
	low := &alarm.Alarm{Resource: alarm.Disk}
	config, disk := testConfig(t, nil), newFakeStore()
	config.Store, config.Alarms = disk, alarm.Set{low}
	synctest.Test(t, func(t *testing.T) {
		w := serve(t, config)
		disk.backlog.Set(true)
		frames, _ := amqpwire.AppendMethodFrame(nil, 1, &amqpwire.BasicAck{DeliveryTag: 1})
		frames, _ = amqpwire.AppendMethodFrame(frames, 1, &amqpwire.BasicPublish{RoutingKey: "q"})
		if _, err := w.client.Write(append(frames, emptyMessage()...)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if q := w.queue(); q.Unacked != 0 || q.Ready != 0 {
			t.Errorf("got %d unacked and %d ready messages, want 0 and 0 before the backlog ends", q.Unacked, q.Ready)
		}
		time.Sleep(time.Hour)
		if w.over() {
			t.Fatal("session treated the client as silent")
		}
		test(w, disk, low)
		w.Abort()
		_ = w.client.Close()
		if !w.over() {
			t.Error("session still runs")
		}
	})
}

func TestPublisherWaitsDuringBacklog(t *testing.T) {
	withBacklog(t, func(w *waitingSession, disk *fakeStore, _ *alarm.Alarm) {
		if w.queue().Ready != 0 {
			t.Error("session published a message during the backlog")
		}
		disk.backlog.Set(false)
		synctest.Wait()
		if n := w.queue().Ready; n != 1 {
			t.Errorf("published messages: got %d, want 1", n)
		}
	})
}

// While the session waits for a disk that does not respond, an alarm still blocks the connection, so that the client is
// notified.
func TestAlarmDuringBacklogBlocksConnection(t *testing.T) {
	withBacklog(t, func(w *waitingSession, _ *fakeStore, low *alarm.Alarm) {
		low.Set(true)
		time.Sleep(alarmInterval)
		synctest.Wait()
		if state := w.Info().State; state != "blocked" {
			t.Errorf("state of the connection: got %s, want blocked", state)
		}
	})
}

func TestShutdownDuringBacklog(t *testing.T) {
	withBacklog(t, func(w *waitingSession, _ *fakeStore, _ *alarm.Alarm) {
		w.Shutdown("test")
		synctest.Wait()
		go w.client.Write([]byte{1, 0, 0, 0, 0, 0, 4, 0, 10, 0, 51, amqpwire.FrameEnd}) // connection.close-ok
		if !w.over() {
			t.Error("session still runs")
		}
		w.ended <- nil
	})
}
