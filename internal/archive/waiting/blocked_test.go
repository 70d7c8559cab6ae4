package waiting

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
)

// A message that the work queue itself dead-letters has no expiration, and blocks the delay queue of the staking design. The
// Rescheduler reports the queue, also after the list has removed the retries. After the remedy, the retries return, and the
// report ends.
func TestBlockedDelayQueueIsReported(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		var later atomic.Int64
		w := archivetest.NewWireAt(t, b.URL, func() time.Time { return time.Now().Add(time.Duration(later.Load())) })
		work := testkit.Name(t, "work") + "_staking_queue"
		delay := work + "_delay"
		w.DeleteLater(delay, work+"_failed")
		design := preset.Staking{Queues: []string{work}, RetryDelay: 2 * time.Second}
		var attempts atomic.Int64
		x := newRetryingFrom(w, work, design.Strategy(), func(*reprise.Delivery) error {
			if attempts.Add(1) == 1 {
				return errors.New("not yet")
			}
			return nil
		})
		blocked := func() []BlockedQueue {
			archivetest.Must(t, x.r.findBlocked(t.Context()))
			return x.r.Blocked()
		}
		archivetest.Must(t, w.Raw.PublishWithContext(t.Context(), "common_dlx", work+"_routing_key", true, false, amqp.Publishing{MessageId: "rejected"}))
		archivetest.Must(t, w.Client.Publish(t.Context(), &reprise.Message{RoutingKey: work, MessageID: "retried"}))
		x.list(1)
		testkit.Eventually(t, archivetest.Longest, func() bool { return w.Depth(delay) == 2 })
		if got := blocked(); got != nil {
			t.Errorf("before the retry is overdue: got %v, want no blocked queue", got)
		}
		later.Store(int64(30 * time.Second))
		blocked()
		if b.Version == "3.10" { // a look at the first message would change its position
			if got := blocked(); got != nil {
				t.Errorf("got %v, want no blocked queue", got)
			}
			return
		}
		want := fmt.Sprint([]BlockedQueue{{Queue: work, WaitQueue: delay, FailedQueue: work + "_failed", Messages: 2}})
		if got := blocked(); fmt.Sprint(got) != want {
			t.Fatalf("got %v, want %v", got, want)
		}
		later.Store(int64(10 * time.Minute)) // the list no longer contains the retry
		archivetest.Must(t, w.Archive.ForgetOverdue(t.Context()))
		got := blocked()
		if fmt.Sprint(got) != want {
			t.Fatalf("later: got %v, want %v", got, want)
		}
		if remedy := got[0].Remedy(); !strings.Contains(remedy, "redrive --from "+delay+" --to "+work+"_failed --limit 1") {
			t.Errorf("got remedy %q", remedy)
		}
		_, _, err := replay.Redrive(t.Context(), w.Client, replay.RedriveConfig{From: delay, To: &failed.Target{RoutingKey: work + "_failed"}, Limit: 1})
		archivetest.Must(t, err)
		testkit.Eventually(t, archivetest.Longest, func() bool { return attempts.Load() == 2 && w.Depth(delay) == 0 })
		if got := blocked(); got != nil {
			t.Errorf("after the remedy: got %v, want no blocked queue", got)
		}
		if got := w.Take(work + "_failed"); len(got) != 1 || got[0].MessageId != "rejected" {
			t.Errorf("failed queue: got %v, want the rejected message", got)
		}
	})
}

// A queue in which messages with an expiration wait is not blocked.
func TestWaitingDelayQueueIsNotBlocked(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		var later atomic.Int64
		w := archivetest.NewWireAt(t, b.URL, func() time.Time { return time.Now().Add(time.Duration(later.Load())) })
		work := testkit.Name(t, "work") + "_staking_queue"
		w.DeleteLater(work+"_delay", work+"_failed")
		design := preset.Staking{Queues: []string{work}, RetryDelay: time.Hour}
		x := newRetryingFrom(w, work, design.Strategy(), func(*reprise.Delivery) error { return errors.New("not yet") })
		archivetest.Must(t, w.Client.Publish(t.Context(), &reprise.Message{RoutingKey: work, MessageID: "retried"}))
		x.list(1)
		testkit.Eventually(t, archivetest.Longest, func() bool { return w.Depth(work+"_delay") == 1 })
		later.Store(int64(time.Hour + 30*time.Second)) // the clock of the archive is wrong
		for range 3 {
			archivetest.Must(t, x.r.findBlocked(t.Context()))
		}
		if got := x.r.Blocked(); got != nil {
			t.Errorf("got %v, want no blocked queue", got)
		}
	})
}
