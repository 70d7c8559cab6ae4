package workertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

func TestDrainCompletesHandlersAndRequeuesOtherDeliveries(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		c := dial(t, b.URL)
		running, finish := make(chan string, 10), make(chan struct{})
		stop := start(t, c, reprise.WorkerConfig{
			Queue: queue, Strategy: strategy, Concurrency: 2, Prefetch: 6,
			Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
				running <- m.MessageID
				<-finish
				if m.MessageID == "1" {
					return errScripted // the worker must still publish the copy
				}
				return nil
			}),
		})
		for i := range 10 {
			r.publish("", queue, amqp.Publishing{MessageId: fmt.Sprint(i)})
		}
		<-running
		<-running
		stopped := make(chan error)
		go func() { stopped <- stop() }()
		c.log.wait(t, "consuming stopped", 1)
		if !strings.Contains(c.log.String(), " running=2 requeued=") {
			t.Errorf("log must contain the number of running handlers, 2: got %s", c.log)
		}
		close(finish)
		if err := <-stopped; err != nil {
			t.Errorf("Run: %v", err)
		}
		if len(running) != 0 {
			t.Errorf("handlers started after the stop: got %d, want 0", len(running))
		}
		if n := c.log.count("retry"); n != 1 {
			t.Errorf("got %d retries, want 1", n)
		}
		// Messages without an attempt are unchanged. Their order may change, because RabbitMQ 3.10 requeues messages at the
		// end of the queue.
		left := map[string]bool{}
		for range 8 {
			d := r.take(queue)
			if left[d.MessageId] = true; d.Headers["x-reprise-attempts"] != nil {
				t.Errorf("message %q must not have a count of attempts: got headers %v", d.MessageId, d.Headers)
			}
		}
		if len(left) != 8 || left["0"] || left["1"] {
			t.Errorf("requeued messages: got %v, want 2 to 9", left)
		}
	})
}

func TestShutdown(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		c := dial(t, b.URL)
		w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{
			Queue: queue, Strategy: strategy, Handler: newScript(func(*reprise.Delivery) error { return nil }),
		})
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error)
		go func() { ran <- w.Run(t.Context()) }()
		c.log.wait(t, "consuming", 1)
		if err := w.Run(t.Context()); err == nil {
			t.Error("second Run succeeded")
		}
		for range 3 { // repeated calls have no effect
			if err := w.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := <-ran; err != nil {
			t.Error(err)
		}

		t.Run("before Run", func(t *testing.T) {
			w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{
				Queue: queue, Strategy: strategy, Handler: newScript(func(*reprise.Delivery) error { return nil }),
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			if err := w.Run(t.Context()); err != nil {
				t.Error(err)
			}
		})
		t.Run("closed client", func(t *testing.T) {
			if err := c.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{
				Queue: queue, Strategy: strategy, Handler: newScript(func(*reprise.Delivery) error { return nil }),
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Run(t.Context()); !errors.Is(err, reprise.ErrClosed) {
				t.Errorf("Run: got %v, want ErrClosed", err)
			}
		})
	})
}

// bubble runs a test against an embedded broker in virtual time.
func bubble(t *testing.T, test func(t *testing.T, dial func(options ...func(*reprise.Config)) client, r *raw)) {
	t.Helper()
	bubbleWith(t, broker.Config{}, test)
}

// bubbleWith is like bubble, but configures the broker.
func bubbleWith(t *testing.T, cfg broker.Config, test func(t *testing.T, dial func(options ...func(*reprise.Config)) client, r *raw)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, err := broker.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := b.Shutdown(context.Background()); err != nil {
				t.Errorf("cannot stop the broker: %v", err)
			}
		}()
		connect := func() *amqp.Connection {
			conn, err := amqp.DialConfig("amqp://guest:guest@broker/", amqp.Config{Heartbeat: 24 * time.Hour, Dial: func(network, addr string) (net.Conn, error) {
				return b.DialContext(context.Background(), network, addr)
			}})
			if err != nil {
				t.Fatal(err)
			}
			return conn
		}
		r := &raw{t: t, conn: connect(), another: connect}
		defer r.conn.Close()
		r.reopen()
		var clients []client
		defer func() {
			for _, c := range clients {
				if err := c.Close(context.Background()); err != nil {
					t.Errorf("cannot close the client: %v", err)
				}
			}
		}()
		test(t, func(options ...func(*reprise.Config)) client {
			memory := func(c *reprise.Config) { c.Dial = b.DialContext }
			c := dial(t, "amqp://guest:guest@broker/", append([]func(*reprise.Config){memory}, options...)...)
			clients = append(clients, c)
			return c
		}, r)
	})
}

func TestDrainTimeoutCancelsHandlers(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		c := dial()
		began := make(chan struct{}, 1)
		w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{
			Queue: "work", DrainTimeout: time.Minute,
			Handler: reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
				began <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		go func() { ran <- w.Run(context.Background()) }()
		c.log.wait(t, "consuming", 1)
		r.publish("", "work", amqp.Publishing{MessageId: "id"})
		<-began
		stopping := time.Now()
		if err := w.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-ran; err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(stopping); took != time.Minute {
			t.Errorf("drain took %s, want 1m", took)
		}
		d := r.take("work")
		if len(d.Headers) != 0 && d.Headers["x-reprise-attempts"] != nil || d.MessageId != "id" {
			t.Errorf("requeued message: got ID %q, headers %v; want id without attempts", d.MessageId, d.Headers)
		}
	})
}

func TestRunReturnsWhileHandlersIgnoreCancellation(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		c := dial()
		began, finish := make(chan struct{}, 1), make(chan struct{})
		w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{
			Queue: "work", DrainTimeout: time.Minute,
			Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error {
				began <- struct{}{}
				<-finish
				return nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		ctx, cancel := context.WithCancel(context.Background())
		go func() { ran <- w.Run(ctx) }()
		c.log.wait(t, "consuming", 1)
		r.publish("", "work", amqp.Publishing{})
		<-began
		cancel()
		if err := <-ran; !errors.Is(err, reprise.ErrDrainTimeout) {
			t.Errorf("Run: got %v, want ErrDrainTimeout", err)
		}
		r.take("work") // the message is redelivered while its handler still runs
		close(finish)
	})
}

// As with http.Server, handlers may finish until the context of Shutdown is canceled.
func TestShutdownContextCancelsHandlers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ignores bool          // the handler continues for 4 s after its context is canceled
		drain   time.Duration // DrainTimeout
		ctx     time.Duration // timeout of the context that Shutdown receives
		cut     time.Duration // time until the handler's context is canceled
	}{
		"before the DrainTimeout":                  {drain: time.Hour, ctx: time.Second, cut: time.Second},
		"after the DrainTimeout":                   {drain: time.Second, ctx: time.Hour, cut: time.Second},
		"immediately":                              {drain: time.Hour, ctx: 0, cut: 0},
		"handler continues":                        {drain: time.Hour, ctx: time.Second, cut: time.Second, ignores: true},
		"handler continues after the DrainTimeout": {drain: time.Second, ctx: 3 * time.Second, cut: time.Second, ignores: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
				c := dial()
				began, cut := make(chan struct{}, 1), make(chan time.Time, 1)
				w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{
					Queue: "work", DrainTimeout: tc.drain,
					Handler: reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
						began <- struct{}{}
						<-ctx.Done()
						cut <- time.Now()
						if tc.ignores {
							time.Sleep(4 * time.Second)
						}
						return ctx.Err()
					}),
				})
				if err != nil {
					t.Fatal(err)
				}
				ran := make(chan error, 1)
				go func() { ran <- w.Run(context.Background()) }()
				c.log.wait(t, "consuming", 1)
				r.publish("", "work", amqp.Publishing{MessageId: "id"})
				<-began
				stopping := time.Now()
				ctx, cancel := context.WithTimeout(context.Background(), tc.ctx)
				defer cancel()
				err = w.Shutdown(ctx)
				if took := time.Since(stopping); took > tc.ctx || tc.ctx <= tc.cut && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Shutdown returned after %s: %v", took, err)
				}
				if err := <-ran; err != nil {
					t.Errorf("Run: %v", err)
				}
				if took := (<-cut).Sub(stopping); took != tc.cut {
					t.Errorf("cancellation of the handler's context: got %s after the stop, want %s", took, tc.cut)
				}
				d := r.take("work")
				if d.Headers["x-reprise-attempts"] != nil || d.MessageId != "id" {
					t.Errorf("requeued message: got ID %q, headers %v; want id without attempts", d.MessageId, d.Headers)
				}
			})
		})
	}
}

// If a handler succeeds after the worker has stopped writing acks, the broker redelivers the message, and the worker does
// not report the message as processed.
func TestUnackedMessageIsNotReportedAsProcessed(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		var undelayed atomic.Bool
		defer undelayed.Store(true)
		events := &events{}
		c := dial(delayReads(&undelayed), func(c *reprise.Config) { c.Observer = events })
		stop := start(t, c, reprise.WorkerConfig{
			Queue: "work", DrainTimeout: time.Second,
			Handler: reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
				<-ctx.Done()
				time.Sleep(5*time.Second + time.Millisecond) // the channel is closing at this time
				return nil
			}),
		})
		r.publish("", "work", amqp.Publishing{MessageId: "late"})
		testkit.Eventually(t, timeout, func() bool { return len(events.of(reprise.EventStarted)) == 1 })
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := r.depth("work"); n != 1 {
			t.Fatalf("queue has %d messages, want 1", n)
		}
		if done, dropped := events.of(reprise.EventDone), events.of(reprise.EventDropped); len(done) != 0 || len(dropped) != 1 {
			t.Errorf("events: got done %v, dropped %v; want none done and 1 dropped", done, dropped)
		}
	})
}

// slowToConsume delays the broker's response to basic.consume by ten seconds.
func slowToConsume(c *reprise.Config) {
	memory := c.Dial
	c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := memory(ctx, network, addr)
		return relay(conn, func(frame []byte) []byte {
			if bytes.HasPrefix(frame[7:], consumeOK) {
				time.Sleep(10 * time.Second)
			}
			return frame
		}), err
	}
}

// If a worker is stopped before the broker has confirmed the subscription, it requeues all deliveries that arrive later.
// Otherwise no other worker would receive these messages while handlers of the stopped worker run.
func TestDrainRequeuesDeliveriesOfPendingSubscription(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		c := dial(slowToConsume)
		stop := start(t, c, reprise.WorkerConfig{
			Queue: "work", Concurrency: 2,
			Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
				if m.MessageID == "slow" {
					time.Sleep(time.Minute)
					return nil
				}
				return reprise.PauseFor(10*time.Second, errScripted)
			}),
			DrainTimeout: time.Hour,
		})
		r.publish("", "work", amqp.Publishing{MessageId: "slow"})
		r.publish("", "work", amqp.Publishing{MessageId: "pause"})
		time.Sleep(5 * time.Second)
		for range 3 {
			r.publish("", "work", amqp.Publishing{})
		}
		time.Sleep(10 * time.Second)
		stopped := make(chan error)
		go func() { stopped <- stop() }()
		time.Sleep(20 * time.Second)
		if n := r.depth("work"); n != 4 {
			t.Errorf("depth of the queue: got %d, want 4", n)
		}
		if err := <-stopped; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}
