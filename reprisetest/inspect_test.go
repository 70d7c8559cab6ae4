package reprisetest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/reprisetest"
	"github.com/reprisemq/reprise/topology"
)

// full returns a message with all properties.
func full() *reprise.Message {
	return &reprise.Message{
		Exchange: "amq.topic", RoutingKey: "a.b", Body: []byte("body"),
		Headers: map[string]any{
			"CC": []any{"also"}, "own": "kept", "n": int16(7), "at": time.Unix(1_700_000_000, 0),
			"nested": topology.Table{"list": []any{true, nil, float64(1.5), []byte("b")}},
		},
		ContentType: "text/plain", ContentEncoding: "none", CorrelationID: "c", ReplyTo: "r", MessageID: "id", Type: "t", AppID: "app",
		Priority: 3, Timestamp: time.Unix(1_600_000_000, 0), UserID: "guest", Expiration: 48 * time.Hour,
	}
}

// In every queue on the path of a message, Messages returns the message with the content that the handler
// receives.
func TestMessagesReturnsContentOfHandler(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		work := topology.Buckets{}.Topology("orders")
		work.Bindings = []topology.Binding{{Exchange: "amq.topic", Queue: "orders", RoutingKey: "a.#"}}
		b.Declare(t, work)
		b.Publish(t, full())
		// Other tests check that a handler receives the published content.
		look := func(queue string, attempts int) {
			t.Helper()
			for range 2 { // reading does not change the queue
				got := b.Messages(t, queue)
				if len(got) != 1 {
					t.Fatalf("got %d messages in queue %s, want 1", len(got), queue)
				}
				if diff := cmp.Diff(full(), &got[0].Message); diff != "" {
					t.Errorf("queue %s: -want +got:\n%s", queue, diff)
				}
				if got[0].Attempt != attempts || len(got[0].Errors) != attempts || got[0].Queue != "orders" {
					t.Errorf("queue %s: got %d attempts, %d errors, work queue %s, want %d, %d, orders",
						queue, got[0].Attempt, len(got[0].Errors), got[0].Queue, attempts, attempts)
				}
			}
		}
		look("orders", 0)
		w := b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: failing(2), Policy: every(time.Hour, 2)})
		w.Await(t, 1)
		hop, err := topology.Buckets{}.Wait(topology.Delivery{Queue: "orders"}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		look(hop.RoutingKey, 1)
		b.Drain(t)
		look("orders.failed", 2)
		for i, a := range w.Attempts() {
			if diff := cmp.Diff(full(), &a.Delivery.Message); diff != "" {
				t.Errorf("attempt %d: -want +got:\n%s", i+1, diff)
			}
		}
		parked := b.Parked(t, "orders")
		if len(parked) != 1 || !cmp.Equal(parked, b.Messages(t, "orders.failed")) {
			t.Errorf("parked messages: got %d, want the message in orders.failed", len(parked))
		}
		var errs []topology.AttemptError
		for i, a := range w.Attempts() {
			errs = append(errs, topology.AttemptError{Attempt: i + 1, Time: a.Began, Error: errScripted.Error()})
		}
		if diff := cmp.Diff(errs, parked[0].Errors, cmpopts.IgnoreFields(topology.AttemptError{}, "Host")); diff != "" {
			t.Errorf("errors: -want +got:\n%s", diff)
		}
	})
}

func TestMessagesAndDepthOmitUnackedMessages(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		b.Work(t, reprise.WorkerConfig{Queue: "orders", Prefetch: 1, Handler: handler(func(*reprise.Delivery) error {
			time.Sleep(10 * time.Second)
			return nil
		})})
		b.Publish(t, order("1"), order("2"), order("3"))
		var ids []string
		for _, m := range b.Messages(t, "orders") {
			ids = append(ids, m.MessageID)
		}
		if diff := cmp.Diff([]string{"2", "3"}, ids); diff != "" || b.Depth(t, "orders") != 2 {
			t.Errorf("got depth %d, messages %v, want 2 and [2 3]", b.Depth(t, "orders"), ids)
		}
	})
}

// Parked reads the failed queue that the strategy of the worker specifies.
func TestParkedFollowsStrategy(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		w := b.Work(t, reprise.WorkerConfig{
			Queue: "cover-art-archive.index", Strategy: preset.CoverArt{}.Strategy(),
			Handler: handler(func(*reprise.Delivery) error { return errScripted }),
		})
		b.Publish(t, &reprise.Message{Exchange: "cover-art-archive", RoutingKey: "index", MessageID: "1"})
		b.Drain(t)
		four := 4 * time.Hour
		if diff := cmp.Diff([]time.Duration{four, four, four, four}, w.Attempts().Delays()); diff != "" {
			t.Errorf("delays: -want +got:\n%s", diff)
		}
		got := b.Parked(t, "cover-art-archive.index")
		if len(got) != 1 || got[0].Attempt != 5 || len(got[0].Errors) != 5 || len(got[0].Headers) != 0 {
			t.Errorf("parked messages: got %+v, want one with 5 attempts and errors, without headers", got)
		}
	})
}

// Parked separates the messages of two work queues that share a failed queue, if the marks record the
// work queue.
func TestParkedWithSharedFailedQueue(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		strategy := topology.Strategy{Route: topology.WaitQueue{
			WorkExchange: "amq.direct", WaitExchange: "wait", FailedExchange: "failed", Delay: time.Hour,
			Infrastructure: topology.Topology{
				Exchanges: []topology.Exchange{{Name: "wait", Kind: topology.Fanout}, {Name: "failed", Kind: topology.Fanout}},
				Queues: []topology.Queue{
					{Name: "a"},
					{Name: "b"},
					{Name: "failed"},
					{Name: "wait", Args: topology.Table{"x-message-ttl": int64(3_600_000), "x-dead-letter-exchange": "amq.direct"}},
				},
				Bindings: []topology.Binding{
					{Exchange: "amq.direct", Queue: "a", RoutingKey: "a"},
					{Exchange: "amq.direct", Queue: "b", RoutingKey: "b"},
					{Exchange: "wait", Queue: "wait"},
					{Exchange: "failed", Queue: "failed"},
				},
			},
		}}
		for _, queue := range []string{"a", "b"} {
			b.Work(t, reprise.WorkerConfig{Queue: queue, Handler: failing(9), Policy: every(time.Hour, 2), Strategy: strategy})
			b.Publish(t, &reprise.Message{Exchange: "amq.direct", RoutingKey: queue, MessageID: "of " + queue})
		}
		b.Drain(t)
		for _, queue := range []string{"a", "b"} {
			if got := b.Parked(t, queue); len(got) != 1 || got[0].MessageID != "of "+queue {
				t.Errorf("queue %s: %d messages were parked, want 1", queue, len(got))
			}
		}
	})
}

func TestMissingQueueFailsTest(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]func(f *fake, b *reprisetest.Broker){
		`reprisetest: queue "oders" not found (existing queues: orders, orders.failed)`: func(f *fake, b *reprisetest.Broker) {
			b.Depth(f, "oders")
		},
		`reprisetest: publish: queue "oders" not found (declare it with Work or Declare; existing queues: orders, orders.failed)`: func(f *fake, b *reprisetest.Broker) {
			b.Publish(f, &reprise.Message{RoutingKey: "oders"})
		},
		`reprisetest: publish: reprise: unroutable: exchange "shop" does not exist (404 NOT_FOUND - no exchange 'shop' in vhost '/')`: func(f *fake, b *reprisetest.Broker) {
			b.Publish(f, &reprise.Message{Exchange: "shop"})
		},
		`reprisetest: failed queue of "oders" not found: exchange "" does not route key "oders.failed" to a queue (a worker declares it; existing queues: orders, orders.failed)`: func(f *fake, b *reprisetest.Broker) {
			b.Parked(f, "oders")
		},
		`reprisetest: topology: queue must have a name`: func(f *fake, b *reprisetest.Broker) {
			b.Declare(f, queues(topology.Queue{}))
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			got := try(t, func(t *fake) {
				b := reprisetest.New(t)
				b.Declare(t, topology.Buckets{}.Topology("orders"))
				f(t, b)
			})
			if got.String() != want {
				t.Errorf("got failure\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestInvalidConfigFailsTest(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]reprisetest.Config{
		"reprisetest: Config.Timeout must not be negative: got -1s (0 means 720h0m0s, or 30s in real time)": {Timeout: -time.Second},
		"reprisetest: Config.Limit must not be negative: got -1s (0 means 2400h0m0s)":                       {Limit: -time.Second},
		"reprisetest: broker: Config.FrameMax must be between 8192 and 16777216 bytes: got 1":               {Broker: broker.Config{FrameMax: 1}},
	} {
		if got := try(t, func(f *fake) { c.New(f) }); got.String() != want {
			t.Errorf("got failure\n%s\nwant\n%s", got, want)
		}
	}
}

// The configuration determines users and virtual hosts.
func TestUsersAndVirtualHosts(t *testing.T) {
	t.Parallel()
	users := reprisetest.Config{Broker: broker.Config{Users: map[string]string{"alice": "se/cret", "bob": ""}}}
	users.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		b.Declare(t, queues(topology.Queue{Name: "orders"}))
		b.Publish(t, &reprise.Message{RoutingKey: "orders", UserID: "alice"})
		if want := "amqp://alice:se%2Fcret@memory"; b.URL() != want {
			t.Errorf("URL: got %s, want %s", b.URL(), want)
		}
		// The UserID is the user that first published the message, although another user published the copies.
		other, err := reprise.Dial(t.Context(), "amqp://bob:@memory", &reprise.Config{Dial: b.DialContext})
		if err != nil {
			t.Fatal(err)
		}
		w := b.Work(t, reprise.WorkerConfig{Queue: "work", Handler: failing(1), Policy: every(time.Hour, 1)})
		err = other.Publish(t.Context(), &reprise.Message{RoutingKey: "work", UserID: "bob"})
		if err := errors.Join(err, other.Close(context.Background())); err != nil {
			t.Fatal(err)
		}
		w.Await(t, 1)
		if got := b.Parked(t, "work"); len(got) != 1 || got[0].UserID != "bob" {
			t.Errorf("parked messages: got %+v, want one of user bob", got)
		}
	})
	definitions := reprisetest.Config{Broker: broker.Config{Definitions: []byte(`{
		"vhosts": [{"name": "/"}, {"name": "other"}],
		"users": [{"name": "carol", "password": "secret", "tags": ""}],
		"permissions": [{"user": "carol", "vhost": "other", "configure": ".*", "write": ".*", "read": ".*"}],
		"queues": [
			{"name": "orders", "vhost": "/", "durable": true, "auto_delete": false, "arguments": {}},
			{"name": "wait", "vhost": "other", "durable": true, "auto_delete": false,
			 "arguments": {"x-message-ttl": 3600000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "end"}},
			{"name": "end", "vhost": "other", "durable": true, "auto_delete": false, "arguments": {}}
		]
	}`)}}
	definitions.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		b.Publish(t, order("1"))
		if n := b.Depth(t, "orders"); n != 1 {
			t.Errorf("queue has %d messages, want 1", n)
		}
		client, err := reprise.Dial(t.Context(), "amqp://carol:secret@memory/other", &reprise.Config{Dial: b.DialContext})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(client.Publish(t.Context(), &reprise.Message{RoutingKey: "wait"}), client.Close(context.Background())); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		b.Drain(t)
		if took := time.Since(began); took != time.Hour {
			t.Errorf("Drain took %s, want 1h because of a message in another virtual host", took)
		}
	})
}
