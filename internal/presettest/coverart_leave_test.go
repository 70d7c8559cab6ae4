package presettest

import (
	"context"
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
)

// A worker with the default strategy uses the existing queues of the design. Messages that wait in the old retry queue
// return to the worker, and their later retries use the default strategy.
func TestCoverArtMigratesToBuckets(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		testkit.Alone(t, b, "cover-art-archive")
		ch := emptyCoverArt(t, b)
		t.Cleanup(func() { removeBuckets(t, b) })
		design := preset.CoverArt{RetryDelay: 50 * time.Millisecond}
		indexer := &perlIndexer{t: t, ch: ch, delay: design.RetryDelay}
		indexer.declare()
		// These messages are waiting for a retry by either program.
		for _, left := range []any{"2", int32(2)} {
			err := ch.PublishWithContext(t.Context(), "cover-art-archive.retry", "index", false, false, amqp.Publishing{
				Body: []byte("event"), Headers: amqp.Table{"mb-retries": left, "mb-exceptions": []any{"a", "b"}},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		tried := make(chan int, 10)
		workCoverArt(t, b, reprise.WorkerConfig{
			Queue:    "cover-art-archive.index",
			Topology: design.Topology(), // the existing queues
			Policy:   reprise.Policy{MaxAttempts: 2, Backoff: backoff.Fixed(time.Millisecond)},
			Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
				tried <- m.Attempt
				return errors.New("no")
			}),
		})
		total := map[int]int{}
		for range 4 {
			select {
			case attempt := <-tried:
				total[attempt]++
			case <-time.After(coverArtTimeout):
				t.Fatalf("all attempts must be made in time: got %v", total)
			}
		}
		if total[1] != 2 || total[2] != 2 {
			t.Errorf("attempts: got %v, want 2 first and 2 second attempts", total)
		}
		testkit.Eventually(t, coverArtTimeout, func() bool {
			q, err := ch.QueueDeclarePassive("cover-art-archive.index.failed", true, false, false, false, nil)
			return err == nil && q.Messages == 2
		})
	})
}

func removeBuckets(t *testing.T, b testkit.Target) {
	t.Helper()
	conn, err := amqp.Dial(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for _, queue := range []string{"cover-art-archive.index.failed", "cover-art-archive.index.wait.0-1000"} {
		if _, err := ch.QueueDelete(queue, false, false, false); err != nil {
			t.Error(err)
		}
	}
}
