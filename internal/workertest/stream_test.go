package workertest

import (
	"context"
	"errors"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A worker refuses to consume a stream, because it would skip earlier messages. It handles a message that was copied from a
// stream to another queue with its headers.
func TestWorkerRefusesStream(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		c := dial(t, b.URL)
		copied := newScript(func(*reprise.Delivery) error { return nil })
		start(t, c, reprise.WorkerConfig{Queue: queue, Handler: copied, Strategy: strategy})
		r.publish("", queue, amqp.Publishing{Headers: amqp.Table{"x-stream-offset": int64(7)}})
		copied.wait(t, 1)
		if b.Name == "embedded" { // the embedded broker does not have streams
			return
		}

		stream := testkit.Name(t, "stream")
		args := topology.Table{"x-queue-type": "stream", "x-max-length-bytes": int64(1 << 20)}
		if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: stream, Args: args}}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			for _, queue := range []string{stream, topology.FailedQueue(stream)} {
				_, _ = r.QueueDelete(queue, false, false, false)
			}
		})
		handled := newScript(func(*reprise.Delivery) error { return nil })
		w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{
			Queue: stream, Handler: handled,
			Topology: topology.Topology{Queues: []topology.Queue{{Name: stream, IfAbsent: true}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- w.Run(t.Context()) }()
		testkit.Eventually(t, timeout, func() bool { // a message before the subscription is skipped
			r.publish("", stream, amqp.Publishing{})
			select {
			case err = <-ended:
				return true
			default:
				return false
			}
		})
		if _, ok := errors.AsType[*reprise.DeclareError](err); !ok || !strings.Contains(err.Error(), "stream") {
			t.Errorf("Run: got %v, want a *DeclareError", err)
		}
		if n := handled.count(); n != 0 {
			t.Errorf("%d messages of the stream were handled", n)
		}
		keepsRefusing(t, c, r, stream)
	})
}

// keepsRefusing runs a worker with KeepDeclaring on a stream. After the first message, which shows that the queue is a stream,
// the worker must not consume again, and must report the reason.
func keepsRefusing(t *testing.T, c client, r *raw, stream string) {
	t.Helper()
	w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{
		Queue: stream, KeepDeclaring: true, Handler: newScript(func(*reprise.Delivery) error { return nil }),
		Topology: topology.Topology{Queues: []topology.Queue{{Name: stream, IfAbsent: true}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	const interrupted = "consuming interrupted"
	testkit.Eventually(t, timeout, func() bool {
		r.publish("", stream, amqp.Publishing{})
		return c.log.count(interrupted) > 0
	})
	sessions := c.log.count("consuming")
	c.log.wait(t, interrupted, c.log.count(interrupted)+2)
	if n := c.log.count("consuming"); n != sessions {
		t.Errorf("worker consumed the stream another %d times", n-sessions)
	}
	if err := w.Status().Err; err == nil || !strings.Contains(err.Error(), "bind a quorum queue") {
		t.Errorf("Status: got %v, want the reason and the remedy", err)
	}
}
