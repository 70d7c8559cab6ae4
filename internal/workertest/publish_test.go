package workertest

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

func TestPublishArrivesAsWritten(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		c := dial(t, b.URL)
		queue := testkit.Name(t, "q")
		r.deleteQueues(queue)
		if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: queue}}}); err != nil {
			t.Fatal(err)
		}
		m := &reprise.Message{
			RoutingKey: queue, Body: []byte("body"), ContentType: "a", ContentEncoding: "b", CorrelationID: "c", ReplyTo: "d",
			Type: "e", AppID: "f", Priority: 7, Timestamp: time.Unix(1_700_000_000, 0), UserID: mustUser(t, b.URL),
			Expiration: time.Hour + 1, // rounded up
			Headers: map[string]any{
				"int": math.MaxInt32 + 1, "uint": uint(7), "map": map[string]any{"deep": map[string]any{}}, "table": topology.Table{"n": int8(1)},
				"array": []any{map[string]any{"x": 1}}, "empty": map[string]any(nil),
			},
		}
		if err := c.Publish(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if len(m.MessageID) < 20 {
			t.Errorf("message ID must have at least 20 bytes: got %q", m.MessageID)
		}
		want := amqp.Publishing{
			DeliveryMode: amqp.Persistent, Body: []byte("body"), ContentType: "a", ContentEncoding: "b", CorrelationId: "c", ReplyTo: "d",
			Type: "e", AppId: "f", Priority: 7, Timestamp: m.Timestamp, UserId: m.UserID, Expiration: "3600001", MessageId: m.MessageID,
			Headers: amqp.Table{
				"int": int64(math.MaxInt32 + 1), "uint": int64(7), "map": amqp.Table{"deep": amqp.Table{}}, "table": amqp.Table{"n": int8(1)},
				"array": []any{amqp.Table{"x": int64(1)}}, "empty": amqp.Table{},
			},
		}
		if diff := cmp.Diff(want, wire(r.take(queue))); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

func TestPublishReturnsErrors(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		c := dial(t, b.URL)

		t.Run("no queue", func(t *testing.T) {
			err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "no-such-queue"})
			e, ok := errors.AsType[*reprise.UnroutableError](err)
			if !ok || e.Code != 312 || e.RoutingKey != "no-such-queue" || !strings.Contains(err.Error(), `queue "no-such-queue" does not exist`) {
				t.Errorf("got %v, want UnroutableError 312", err)
			}
		})
		t.Run("no exchange", func(t *testing.T) {
			err := c.Publish(t.Context(), &reprise.Message{Exchange: "no-such-exchange"})
			e, ok := errors.AsType[*reprise.UnroutableError](err)
			if !ok || e.Code != 404 || !strings.Contains(err.Error(), `exchange "no-such-exchange" does not exist`) {
				t.Errorf("got %v, want error 404", err)
			}
		})
		t.Run("foreign user id", func(t *testing.T) {
			err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "q", UserID: "somebody-else"})
			e, ok := errors.AsType[*reprise.RefusedError](err)
			if !ok || e.Code != 406 || e.RoutingKey != "q" || !strings.Contains(err.Error(), "user_id property set to 'somebody-else'") {
				t.Errorf("got %v, want RefusedError 406", err)
			}
		})
		t.Run("internal exchange", func(t *testing.T) {
			internal := testkit.Name(t, "internal")
			r.deleteExchanges(internal)
			x := topology.Exchange{Name: internal, Kind: topology.Fanout, Internal: true}
			if err := c.Declare(t.Context(), topology.Topology{Exchanges: []topology.Exchange{x}}); err != nil {
				t.Fatal(err)
			}
			err := c.Publish(t.Context(), &reprise.Message{Exchange: internal})
			if e, ok := errors.AsType[*reprise.RefusedError](err); !ok || e.Code != 403 || e.Exchange != internal || errors.Is(err, reprise.ErrUnconfirmed) {
				t.Errorf("got %v, want RefusedError 403", err)
			}
		})
		for name, m := range map[string]*reprise.Message{
			"nil":                 nil,
			"CC is not a list":    {RoutingKey: "q", Headers: map[string]any{"CC": "another"}},
			"BCC is nil":          {RoutingKey: "q", Headers: map[string]any{"BCC": nil}},
			"long key":            {RoutingKey: strings.Repeat("k", 256)},
			"long message id":     {MessageID: strings.Repeat("k", 256)},
			"long header name":    {Headers: map[string]any{strings.Repeat("k", 256): 1}},
			"unsupported value":   {Headers: map[string]any{"x": struct{}{}}},
			"nested":              {Headers: map[string]any{"x": []any{map[string]any{"y": complex(1, 1)}}}},
			"huge number":         {Headers: map[string]any{"x": uint64(math.MaxUint64)}},
			"more than a frame":   {Headers: map[string]any{"x": strings.Repeat("x", 131072)}},
			"negative expiration": {Expiration: -1},
			"long expiration":     {RoutingKey: "q", Expiration: 10*365*24*time.Hour + 1},
		} {
			t.Run(name, func(t *testing.T) {
				if err := c.Publish(t.Context(), m); !errors.Is(err, reprise.ErrInvalidMessage) {
					t.Errorf("got %v, want ErrInvalidMessage", err)
				}
			})
		}
		t.Run("expiration of ten years", func(t *testing.T) {
			queue := queueFor(t, r, c, nil)
			if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: queue, Expiration: 10 * 365 * 24 * time.Hour}); err != nil {
				t.Error(err)
			}
		})
		t.Run("valid message after errors", func(t *testing.T) {
			queue := testkit.Name(t, "q")
			r.deleteQueues(queue)
			if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: queue}}}); err != nil {
				t.Fatal(err)
			}
			if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: queue}); err != nil {
				t.Error(err)
			}
		})
		t.Run("closed", func(t *testing.T) {
			if err := c.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "q"}); !errors.Is(err, reprise.ErrClosed) {
				t.Errorf("Publish: got %v, want ErrClosed", err)
			}
			if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: "q"}}}); !errors.Is(err, reprise.ErrClosed) {
				t.Errorf("Declare: got %v, want ErrClosed", err)
			}
		})
	})
}

func TestPublishToFullQueueReturnsErrNacked(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		c := dial(t, b.URL)
		queue := testkit.Name(t, "full")
		r.deleteQueues(queue)
		full := topology.Queue{Name: queue, Args: topology.Table{"x-max-length": 1, "x-overflow": "reject-publish"}}
		if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{full}}); err != nil {
			t.Fatal(err)
		}
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: queue}); err != nil {
			t.Errorf("first message: %v", err)
		}
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: queue}); !errors.Is(err, reprise.ErrNacked) {
			t.Errorf("second message: got %v, want ErrNacked", err)
		}
	})
}

// If a header frame has the maximum size that Publish permits, the delivered header, to which the broker adds headers, still
// fits into a frame.
func TestPublishMessageOfMaximumFrameSize(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		c := dial(t, b.URL)
		queue := testkit.Name(t, "q")
		r.deleteQueues(queue)
		if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: queue, Args: topology.Table{"x-queue-type": "quorum"}}}}); err != nil {
			t.Fatal(err)
		}
		m := &reprise.Message{
			RoutingKey: queue, MessageID: "id", ContentType: "a", ContentEncoding: "b", CorrelationID: "c", ReplyTo: "d", Type: "e",
			AppID: "f", Priority: 1, Timestamp: time.Unix(1, 0), Expiration: time.Hour, UserID: mustUser(t, b.URL), Body: []byte("b"),
		}
		most := 0
		for low, high := 0, 131072; low <= high; {
			n := (low + high) / 2
			m.Headers = map[string]any{"x": strings.Repeat("x", n)}
			switch err := c.Publish(t.Context(), m); {
			case err == nil:
				most, low = n, n+1
			case errors.Is(err, reprise.ErrInvalidMessage):
				high = n - 1
			default:
				t.Fatalf("message of %d bytes: %v", n, err)
			}
		}
		if most < 126000 {
			t.Errorf("largest published message must have at least 126000 bytes: got %d", most)
		}
		for range 3 {
			d, ok, err := r.Get(queue, false)
			if err != nil || !ok {
				t.Fatal(err)
			}
			if err := d.Reject(true); err != nil {
				t.Fatal(err)
			}
		}
		if n := c.log.count("connection lost"); n != 0 {
			t.Errorf("connection was lost %d times, want 0", n)
		}
	})
}

func TestPublishWaitsForConnection(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue := testkit.Name(t, "q")
		r.deleteQueues(queue)
		proxy := testkit.NewProxy(t, b.URL)
		c := dial(t, proxy.URL())
		if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: queue}}}); err != nil {
			t.Fatal(err)
		}
		proxy.Refuse()
		proxy.Cut()
		c.log.wait(t, "connection lost", 2)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Publish(ctx, &reprise.Message{RoutingKey: queue}); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled context: got %v, want context.Canceled", err)
		}
		published := make(chan error, 1)
		go func() { published <- c.Publish(t.Context(), &reprise.Message{RoutingKey: queue}) }()
		c.log.wait(t, "connect failed", 2)
		proxy.Resume()
		if err := <-published; err != nil {
			t.Error(err)
		}
		r.take(queue)
	})
}

func TestPublishReportsLostConfirm(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue := testkit.Name(t, "q")
		r.deleteQueues(queue)
		proxy := testkit.NewProxy(t, b.URL)
		c := dial(t, proxy.URL())
		if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: queue}}}); err != nil {
			t.Fatal(err)
		}
		m := &reprise.Message{RoutingKey: queue}
		if err := c.Publish(t.Context(), m); err != nil { // opens the channel
			t.Fatal(err)
		}
		// The next frame must be the confirm. The earlier frames are the handshakes of two connections (3 each), the
		// opening of two publishing channels (2 each), the declaration (3) and the first confirm.
		testkit.Eventually(t, timeout, func() bool { return proxy.Frames(testkit.ToClient) == 2*3+2*2+3+1 })
		lost := proxy.CutBeforeFrame(testkit.ToClient, 1)
		if err := c.Publish(t.Context(), m); !errors.Is(err, reprise.ErrUnconfirmed) {
			t.Errorf("got %v, want ErrUnconfirmed", err)
		}
		<-lost
		if err := c.Publish(t.Context(), m); err != nil {
			t.Error(err)
		}
		for range 3 {
			if d := r.take(queue); d.MessageId != m.MessageID {
				t.Errorf("message ID: got %q, want %q", d.MessageId, m.MessageID)
			}
		}
	})
}
