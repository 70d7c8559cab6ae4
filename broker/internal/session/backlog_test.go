package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/broker/internal/alarm"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// withBacklog calls the test while the store has a backlog, and a client that has started to publish waits for it.
func withBacklog(t *testing.T, test func(w *waiting, disk *fakeStore, low *alarm.Alarm)) {
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
			t.Errorf("%d messages are unacked, %d ready: the connection has been read to here", q.Unacked, q.Ready)
		}
		time.Sleep(time.Hour)
		if w.over() {
			t.Fatal("the client was taken to be silent")
		}
		test(w, disk, low)
		w.Abort()
		_ = w.client.Close()
		if !w.over() {
			t.Error("it does not end")
		}
	})
}

func TestPublishersWaitWhileTheStoreHasABacklog(t *testing.T) {
	withBacklog(t, func(w *waiting, disk *fakeStore, _ *alarm.Alarm) {
		if w.queue().Ready != 0 {
			t.Error("a message was published")
		}
		disk.backlog.Set(false)
		synctest.Wait()
		if n := w.queue().Ready; n != 1 {
			t.Errorf("%d messages were published", n)
		}
	})
}

// While the session waits for a disk that does not respond, an alarm still blocks the connection, so that the client is
// notified.
func TestAnAlarmDuringABacklogIsToldOf(t *testing.T) {
	withBacklog(t, func(w *waiting, _ *fakeStore, low *alarm.Alarm) {
		low.Set(true)
		time.Sleep(alarmInterval)
		synctest.Wait()
		if state := w.Info().State; state != "blocked" {
			t.Errorf("the connection is %s", state)
		}
	})
}

func TestShutdownOfAPublisherThatWaitsForABacklog(t *testing.T) {
	withBacklog(t, func(w *waiting, _ *fakeStore, _ *alarm.Alarm) {
		w.Shutdown("test")
		synctest.Wait()
		go w.client.Write([]byte{1, 0, 0, 0, 0, 0, 4, 0, 10, 0, 51, amqpwire.FrameEnd}) // connection.close-ok
		if !w.over() {
			t.Error("it does not end")
		}
		w.ended <- nil
	})
}
