package presettest

import (
	"fmt"
	"math"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
)

// RabbitMQ 3.10 trusts an x-death header of a publisher and increases its counts. If it cannot increase a count, the
// process of the queue crashes. Regardless of the content of the header, the message must be parked, and later messages
// must be handled.
func TestWorkRetrySurvivesForgedHistory(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for _, queueType := range []string{"classic", "quorum"} {
			t.Run(queueType, func(t *testing.T) { testForgedHistories(t, b, queueType) })
		}
	})
}

func testForgedHistories(t *testing.T, b testkit.Target, queueType string) {
	p := preset.WorkRetry{RetryDelay: 5 * time.Millisecond, QueueType: queueType, Prefix: testkit.Name(t, "pair") + "."}
	entry := func(queue, reason string, count any) any {
		return amqp.Table{"queue": p.Prefix + queue, "reason": reason, "count": count, "exchange": "", "routing-keys": []any{""}, "time": time.Unix(1, 0)}
	}
	forgeries := []any{"text", []any{}, []any{"text"}, []any{amqp.Table{}}, []any{nil}}
	for _, count := range []any{
		int64(-1000), int32(-1000), int64(math.MinInt64), int64(math.MaxInt64), int64(2), int64(0),
		nil, "2", 1.5, true, []byte("2"), time.Unix(5, 0),
	} {
		forgeries = append(forgeries, []any{entry("WorkQueue", "rejected", count)}, []any{entry("RetryQueue", "expired", count)})
	}
	forgeries = append(forgeries,
		[]any{entry("WorkQueue", "rejected", int64(1)), entry("WorkQueue", "rejected", int64(-1000))},
		[]any{entry("WorkQueue", "expired", int64(1)), entry("RetryQueue", "expired", int64(1))},
		[]any{amqp.Table{"queue": p.Prefix + "WorkQueue", "reason": "rejected", "count": int64(1)}},
		[]any{amqp.Table{"queue": int64(1), "reason": true, "count": int64(1), "exchange": nil, "routing-keys": "none", "time": "now"}},
		[]any{amqp.Table{"count": int64(1)}},
	)
	o := newOther(t, b, p.Prefix)
	h := &attempts{}
	startWorker(t, b, p, reprise.WorkerConfig{Handler: h, Policy: reprise.Policy{MaxAttempts: 3}})
	for _, forged := range forgeries {
		before := len(h.all())
		o.publish(p.Prefix+"WorkExchange", "", amqp.Publishing{Body: fmt.Append(nil, forged), Headers: amqp.Table{"x-death": forged}})
		parked := o.get("WorkQueue.failed")
		if err := parked.Ack(false); err != nil {
			t.Fatal(err)
		}
		if n := len(h.all()) - before; n < 1 || n > 3 || string(parked.Body) != fmt.Sprint(forged) {
			t.Errorf("header %v: got parked message %s after %d attempts, want the forged message after 1 to 3", forged, parked.Body, n)
		}
	}
}
