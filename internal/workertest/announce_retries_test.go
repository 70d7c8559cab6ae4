package workertest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/protocol"
)

// An announced worker reports retries with a delay of at least protocol.MinReportedRetry. A report can contain several
// retries. The worker sends reports even if no client subscribes. If the exchange is deleted, the worker declares it again.
func TestAnnouncedWorkerReportsRetries(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		h := reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			delay := time.Hour
			if m.MessageID == "soon" {
				delay = protocol.MinReportedRetry - time.Millisecond
			}
			return reprise.RetryAfter(delay, errors.New("it fails"))
		})
		start(t, dial(announced), reprise.WorkerConfig{Queue: "work", Handler: h, Policy: reprise.Policy{MaxAttempts: 2}})
		time.Sleep(time.Second)
		r.publish("", "work", amqp.Publishing{MessageId: "no listener"})
		time.Sleep(time.Second)
		listen := func() {
			t.Helper()
			if _, err := r.QueueDeclare("reports", true, false, false, false, nil); err != nil {
				t.Fatal(err)
			}
			if err := r.QueueBind("reports", "work", protocol.RetriesExchange, false, nil); err != nil {
				t.Fatalf("exchange does not exist: %v", err)
			}
		}
		report := func(ids ...string) {
			t.Helper()
			begun := time.Now()
			for _, id := range ids {
				r.publish("", "work", amqp.Publishing{MessageId: id})
			}
			time.Sleep(time.Second)
			d, ok, err := r.Get("reports", true)
			if err != nil || !ok {
				t.Fatalf("cannot get report: %v", err)
			}
			got, ok := protocol.ReadRetryReport(d.Body)
			if !ok || got.Queue != "work" || got.Host == "" || got.Missing != 0 || len(got.Retries) != len(ids) {
				t.Fatalf("report: got %s, want all %d retries of queue work", d.Body, len(ids))
			}
			for i, x := range got.Retries {
				if !slices.Contains(ids, x.MessageID) || x.Attempt != 1 || x.Error != "it fails" || x.Wait != "work.wait.3078660-3848325" ||
					x.Failed.Before(begun.Truncate(time.Second)) || x.Due.Sub(begun) < time.Hour || x.Due.Sub(begun) > time.Hour+time.Second {
					t.Errorf("retry %d: got %+v, want attempt 1, error it fails, and a delay of one hour", i, x)
				}
			}
			if n := r.depth("reports"); n != 0 {
				t.Errorf("got %d further reports, want 0", n)
			}
		}
		listen()
		report("1", "2", "3")
		r.publish("", "work", amqp.Publishing{MessageId: "soon"})
		report("4")
		if err := r.ExchangeDelete(protocol.RetriesExchange, false, false); err != nil {
			t.Fatal(err)
		}
		r.publish("", "work", amqp.Publishing{MessageId: "its report finds no exchange"})
		time.Sleep(10 * time.Second)
		listen()
		report("5")
	})
}

// A worker with OrderBy does not report retries, because an archive cannot act on the copies in held queues. Its status has the keys.
func TestAnnouncedWorkerReportsBlockedKeysOnly(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		if _, err := r.QueueDeclare("reports", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		h := newScript(func(*reprise.Delivery) error { return reprise.RetryAfter(time.Hour, errors.New("it fails")) })
		c := dial(announced)
		stop := start(t, c, reprise.WorkerConfig{Queue: "work", OrderBy: &reprise.Keyed{Partitions: 1}, Handler: h})
		time.Sleep(time.Second)
		if err := r.QueueBind("reports", "work", protocol.RetriesExchange, false, nil); err != nil {
			t.Fatal(err)
		}
		if err := c.PublishKeyed(t.Context(), "work", 1, "a", &reprise.Message{}); err != nil {
			t.Fatal(err)
		}
		h.wait(t, 1)
		time.Sleep(time.Minute)
		if n := r.depth("reports"); n != 0 {
			t.Errorf("got %d reports, want none", n)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
