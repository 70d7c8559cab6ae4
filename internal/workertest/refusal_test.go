package workertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
)

// rewriting returns an option for dial that replaces each frame from the broker with the result of rewrite.
func rewriting(rewrite func(frame []byte) []byte) func(*reprise.Config) {
	return func(c *reprise.Config) {
		dial := c.Dial
		c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return relay(conn, rewrite), nil
		}
	}
}

// A refusal may arrive when the destination already counts as proven. Even then, a second publish to the same destination
// does not affect other messages.
func TestLateRefusalDoesNotAffectLaterMessages(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		m := newConfirmGate()
		var slow atomic.Bool
		c := dial(m.intercept, rewriting(func(frame []byte) []byte {
			if slow.Load() && bytes.HasPrefix(frame[7:], channelClose) {
				time.Sleep(1500 * time.Millisecond)
			}
			return frame
		}))
		declareQueues(t, c, 1)
		refused := func() {
			t.Helper()
			if err := c.Publish(t.Context(), &reprise.Message{Exchange: "missing"}); !errors.Is(err, reprise.ErrUnroutable) {
				t.Errorf("publish to a missing exchange: got %v, want ErrUnroutable", err)
			}
		}
		slow.Store(true)
		refused()
		slow.Store(false)
		m.mute("q0") // confirms are in flight
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "q0"}); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Second)
		refused()
		m.release(t)
		all.Wait()
	})
}

// If a destination that confirms late starts to refuse messages, it does not affect other messages.
func TestRefusalOfLateDestinationDoesNotAffectOtherMessages(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		m := newConfirmGate()
		c := dial(m.intercept, rewriting(func(frame []byte) []byte {
			if bytes.HasPrefix(frame[7:], channelClose) {
				time.Sleep(1100 * time.Millisecond) // longer than the timeout of an unproven message
			}
			return frame
		}))
		declareQueues(t, c, 1)
		if err := r.ExchangeDeclare("x", "fanout", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		if err := r.QueueBind("q0", "", "x", false, nil); err != nil {
			t.Fatal(err)
		}
		m.mute("late")
		if err := c.Publish(t.Context(), &reprise.Message{Exchange: "x", RoutingKey: "late"}); !errors.Is(err, reprise.ErrUnconfirmed) {
			t.Fatal(err)
		}
		m.unmute("late")
		if err := r.ExchangeDelete("x", false, false); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			for ctx.Err() == nil {
				_ = c.Publish(ctx, &reprise.Message{Exchange: "x", RoutingKey: "late"})
			}
		})
		for range 100 {
			time.Sleep(time.Second)
			if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "q0"}); err != nil {
				t.Errorf("cannot publish to a healthy queue: %v", err)
			}
		}
		stop()
		all.Wait()
	})
}

// RabbitMQ may refuse one routing key of an exchange that accepts other keys. After the first refusal, messages with
// that key do not affect the confirms of other messages. The embedded broker accepts all keys.
func TestRefusedRoutingKeyDoesNotAffectOtherKeys(t *testing.T) {
	t.Parallel()
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, api string) {
		r := newRaw(t, b.URL)
		c := dial(t, b.URL)
		exchange, queue := testkit.Name(t, "x"), queueFor(t, r, c, nil)
		if err := r.ExchangeDeclare(exchange, "topic", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		r.deleteExchanges(exchange)
		for _, key := range []string{"allowed", "forbidden"} {
			if err := r.QueueBind(queue, key, exchange, false, nil); err != nil {
				t.Fatal(err)
			}
		}
		rabbit := b.IsRabbitMQ
		if rabbit {
			body := fmt.Sprintf(`{"exchange":%q,"write":"^allowed$","read":".*"}`, exchange)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, api+"/api/topic-permissions/%2F/guest", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			request.SetBasicAuth("guest", "guest")
			response, err := testkit.HTTPClient(t).Do(request)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode/100 != 2 {
				t.Fatalf("status of the response: got %s, want 2xx", response.Status)
			}
		}
		publish := func(key string) error {
			return c.Publish(t.Context(), &reprise.Message{Exchange: exchange, RoutingKey: key})
		}
		if err := publish("allowed"); err != nil {
			t.Fatal(err)
		}
		_ = publish("forbidden") // other messages may remain unconfirmed because of this message
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				for range 50 {
					if err := publish("allowed"); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for range 5 {
			err := publish("forbidden")
			if _, refused := errors.AsType[*reprise.RefusedError](err); refused != rabbit {
				t.Errorf("forbidden routing key: got %v, want a RefusedError: %t", err, rabbit)
			}
		}
		all.Wait()
	})
}

// Only the consumer of the replies can use direct reply-to, so Publish rejects the message without contacting the broker.
func TestPublishRejectsDirectReplyTo(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, _ *raw) {
		c := dial()
		declareQueues(t, c, 1)
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "q0", ReplyTo: "amq.rabbitmq.reply-to"}); !errors.Is(err, reprise.ErrInvalidMessage) {
			t.Errorf("got %v, want ErrInvalidMessage", err)
		}
		if n := c.log.count("channel closed"); n > 0 {
			t.Errorf("channel was closed %d times, want 0", n)
		}
	})
}

// A queue that does not confirm and gets occasional messages uses one channel.
func TestStuckQueueUsesOneChannel(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		m := newConfirmGate()
		c := dial(m.intercept)
		h := newScript(func(*reprise.Delivery) error { return reprise.Park(errScripted) })
		start(t, c, reprise.WorkerConfig{Queue: "w", Handler: h, Prefetch: 200})
		m.mute("w.failed")
		synctest.Wait() // the channel for copies may still be opening
		before := m.channels()
		for range 60 {
			if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "w"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10500 * time.Millisecond)
		}
		if n := m.channels(); n > before+2 { // one for the queue, and the channel on which the first confirm was late
			t.Errorf("open channels: got %d, want at most %d", n, before+2)
		}
		m.release(t)
	})
}

// If the broker does not close a channel for an hour but still responds, the client keeps the connection.
func TestUnclosedChannelDoesNotCostConnection(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		m := newConfirmGate()
		var drop atomic.Bool
		c := dial(m.intercept, rewriting(func(frame []byte) []byte {
			if bytes.HasPrefix(frame[7:], channelCloseOK) && drop.CompareAndSwap(true, false) {
				return nil
			}
			return frame
		}))
		declareQueues(t, c, 2)
		m.mute("q0")
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "q0"}); !errors.Is(err, reprise.ErrUnconfirmed) {
			t.Error(err)
		}
		drop.Store(true)
		for range 60 * 60 {
			time.Sleep(time.Second)
			if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "q1"}); err != nil {
				t.Error(err)
			}
		}
		if drop.Load() || c.log.count("connection lost") > 0 {
			t.Errorf("every channel was closed, or the connection was lost")
		}
	})
}

// A batch for a queue that confirms late arrives in order when the queue confirms again.
func TestBatchArrivesInOrderAfterRecovery(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		m := newConfirmGate()
		c := dial(m.intercept)
		declareQueues(t, c, 1)
		for range 10 {
			m.mute("q0")
			_ = c.Publish(t.Context(), &reprise.Message{RoutingKey: "q0", MessageID: "-1"})
			m.unmute("q0")
			if err := c.PublishBatch(t.Context(), numbered(1000, func(int) (string, string) { return "", "q0" })); err != nil {
				t.Fatal(err)
			}
			inOrder := slices.IsSortedFunc(r.drained("q0"), func(a, b string) int {
				i, _ := strconv.Atoi(a)
				j, _ := strconv.Atoi(b)
				return i - j
			})
			if !inOrder {
				t.Error("batch arrived out of order")
			}
			m.release(t)
		}
	})
}

// slowLog is a log handler that blocks for some time when the client logs the first late confirm.
type slowLog struct{ *recorder }

func (s slowLog) WithAttrs(a []slog.Attr) slog.Handler {
	return slowLog{s.recorder.WithAttrs(a).(*recorder)}
}

func (s slowLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "confirms do not come" {
		time.Sleep(5 * time.Minute)
	}
	return s.recorder.Handle(ctx, r)
}

func TestStuckLoggerDoesNotBlockConfirms(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		m := newConfirmGate()
		c := dial(m.intercept, func(c *reprise.Config) { c.Logger = slog.New(slowLog{newRecorder()}) })
		declareQueues(t, c, 2)
		m.mute("q0")
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "q0"}); !errors.Is(err, reprise.ErrUnconfirmed) {
			t.Error(err)
		}
		for range 3 {
			if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "q1"}); err != nil {
				t.Errorf("cannot publish to a healthy queue: %v", err)
			}
		}
		m.release(t)
	})
}
