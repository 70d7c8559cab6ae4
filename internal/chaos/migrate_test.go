package chaos

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/migrate"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A migration from a classic queue to a quorum queue, which disconnects publishers and a consumer on all nodes of a cluster, loses no
// confirmed message.
func TestMigrationInCluster(t *testing.T) {
	testkit.WithCluster(t, func(t *testing.T, c *testkit.Cluster) {
		const queue, name = "migrated", "migration in a cluster"
		ch := openChannel(t, c.URLs[1]) // the node of the queue
		if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "classic"}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var mu sync.Mutex
		var group sync.WaitGroup
		defer group.Wait()
		confirmed, consumed := map[string]bool{}, map[string]bool{}
		for i, u := range c.URLs {
			group.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					for _, body := range publishSome(ctx, u, queue, fmt.Sprintf("%d-%d", i, n)) {
						mu.Lock()
						confirmed[body] = true
						mu.Unlock()
					}
				}
			})
		}
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(confirmed)
		}
		testkit.Eventually(t, timeout, func() bool { return count() > 1000 })
		group.Go(func() { consumeSome(c.URLs[2], queue, 100, consumed) }) // until it is disconnected

		u, err := url.Parse(c.URLs[0])
		if err != nil {
			t.Fatal(err)
		}
		port, err := strconv.Atoi(u.Port())
		if err != nil {
			t.Fatal(err)
		}
		api := mgmtapi.API{URL: fmt.Sprintf("http://%s:%d", u.Hostname(), port+10000), User: "guest", Password: "guest", Client: &http.Client{}}
		defer api.Client.CloseIdleConnections()
		client, err := reprise.Dial(t.Context(), c.URLs[0], &reprise.Config{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(context.Background())
		result, err := migrate.Run(t.Context(), migrate.Config{
			Client: client, Name: name, API: api, Step: func(text string) { t.Log(text) },
			Change: migrate.Change{Queue: queue, Set: topology.Table{"x-queue-type": "quorum"}, Disconnect: true},
		})
		if err != nil {
			t.Fatal(err)
		}
		before := count()
		testkit.Eventually(t, timeout, func() bool { return count() > before+300 }) // the publishers continue
		stop()
		group.Wait()
		t.Logf("%d confirmed, %d consumed, %+v", len(confirmed), len(consumed), result)
		testkit.Eventually(t, timeout, func() error {
			consumeSome(c.URLs[2], queue, 0, consumed)
			for body := range confirmed {
				if !consumed[body] {
					return fmt.Errorf("message %s of %d is lost", body, len(confirmed))
				}
			}
			return nil
		})
	})
}

// publishSome publishes messages by the name of a queue on a new connection, and returns the bodies of confirmed messages. Like many
// programs, it does not use the flag mandatory.
func publishSome(ctx context.Context, url, queue, prefix string) (confirmed []string) {
	conn, err := amqp.Dial(url)
	if err != nil { // refused
		_ = retry.Sleep(ctx, 50*time.Millisecond)
		return nil
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil || ch.Confirm(false) != nil {
		return nil
	}
	for i := 0; ctx.Err() == nil && i < 500; i++ {
		body := fmt.Sprintf("%s-%d", prefix, i)
		c, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", queue, false, false, amqp.Publishing{Body: []byte(body), DeliveryMode: amqp.Persistent})
		if err != nil {
			return confirmed
		}
		if ok, err := c.WaitContext(ctx); err != nil || !ok {
			return confirmed
		}
		confirmed = append(confirmed, body)
	}
	return confirmed
}

// consumeSome consumes messages until it is disconnected or no more arrive, and leaves the last ones unacked.
func consumeSome(url, queue string, unacked int, consumed map[string]bool) {
	conn, err := amqp.Dial(url)
	if err != nil {
		return
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil || ch.Qos(500, 0, false) != nil {
		return
	}
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return
	}
	var open []amqp.Delivery
	for {
		select {
		case d, ok := <-deliveries:
			if !ok {
				return
			}
			if open = append(open, d); len(open) > unacked {
				if open[0].Ack(false) != nil {
					return
				}
				consumed[string(open[0].Body)] = true
				open = open[1:]
			}
		case <-time.After(time.Second):
			if unacked == 0 {
				return
			}
		}
	}
}
