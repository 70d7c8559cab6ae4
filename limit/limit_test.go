package limit_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/limit"
)

const timeout = 5 * time.Minute

func dial(t *testing.T, url string) *reprise.Client {
	t.Helper()
	client, err := reprise.Dial(t.Context(), url, &reprise.Config{Reconnect: backoff.Fixed(10 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	return client
}

func shared(t *testing.T, client *reprise.Client, cfg limit.Config) *limit.Limit {
	t.Helper()
	l, err := limit.New(client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// work runs a worker until the test ends.
func work(t *testing.T, client *reprise.Client, cfg reprise.WorkerConfig) {
	t.Helper()
	w, err := reprise.NewWorker(client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- w.Run(context.WithoutCancel(t.Context())) }()
	t.Cleanup(func() {
		if err := w.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}

// clean deletes the queues of a test at its end.
func clean(t *testing.T, url string, queues ...string) {
	t.Helper()
	t.Cleanup(func() {
		conn, err := amqp.Dial(url)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		ch, err := conn.Channel()
		if err != nil {
			t.Error(err)
			return
		}
		for _, queue := range queues {
			if _, err := ch.QueueDelete(queue, false, false, false); err != nil {
				t.Error(err)
			}
		}
	})
}

// gauge counts the attempts that run at the same time.
type gauge struct{ now, most atomic.Int32 }

func (g *gauge) Handle(context.Context, *reprise.Delivery) error {
	n := g.now.Add(1)
	for most := g.most.Load(); n > most && !g.most.CompareAndSwap(most, n); most = g.most.Load() {
	}
	defer g.now.Add(-1)
	time.Sleep(2 * time.Millisecond) // other attempts can start
	return nil
}

// Two processes together run at most the permitted number of attempts, and use all permits.
func TestConcurrencyIsShared(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		const most, messages = 3, 400
		queue := testkit.Name(t, "work")
		name := queue
		clean(t, b.URL, queue, queue+".failed", "reprise.limits."+name)
		var running gauge
		var handled [2]atomic.Int32
		var clients []*reprise.Client
		for i := range handled {
			client := dial(t, b.URL)
			clients = append(clients, client)
			work(t, client, reprise.WorkerConfig{
				Queue: queue, Concurrency: 10, Limiter: shared(t, client, limit.Config{Name: name, Concurrency: most}),
				Handler: reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
					handled[i].Add(1)
					return running.Handle(ctx, m)
				}),
			})
		}
		for i := range messages {
			testkit.Eventually(t, timeout, func() error {
				return clients[0].Publish(t.Context(), &reprise.Message{RoutingKey: queue, MessageID: fmt.Sprint(i)})
			})
		}
		testkit.Eventually(t, timeout, func() error {
			if a, b := handled[0].Load(), handled[1].Load(); a+b < messages || a == 0 || b == 0 {
				return fmt.Errorf("handled %d and %d messages", a, b)
			}
			return nil
		})
		if n := running.most.Load(); n != most {
			t.Errorf("at most %d attempts ran at the same time, want %d", n, most)
		}
	})
}

// A process that loses its connection returns its share, and receives it again afterwards.
func TestShareAfterLostConnection(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		name := testkit.Name(t, "limit")
		clean(t, b.URL, "reprise.limits."+name)
		proxy := testkit.NewProxy(t, b.URL)
		cfg := limit.Config{Name: name, Concurrency: 4}
		one, two := shared(t, dial(t, proxy.URL()), cfg), shared(t, dial(t, b.URL), cfg)
		want := func(a, b float64) {
			t.Helper()
			testkit.Eventually(t, timeout, func() error {
				if one.Share() != a || two.Share() != b {
					return fmt.Errorf("got shares %v and %v, want %v and %v", one.Share(), two.Share(), a, b)
				}
				return nil
			})
		}
		want(2, 2)
		proxy.Refuse()
		proxy.Cut()
		want(0, 4)
		proxy.Resume()
		want(2, 2)
		one.Close()
		want(0, 4)
		if err := one.Wait(t.Context()); err != limit.ErrClosed {
			t.Errorf("got %v, want ErrClosed", err)
		}
	})
}

// Four processes with a backlog start the permitted number of attempts in each period, and use the whole limit. The test runs in
// virtual time.
func TestRateIsShared(t *testing.T) {
	for _, processes := range []int{1, 4} {
		t.Run(fmt.Sprint(processes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const rate, messages = 20, 1500
				b, err := broker.New(broker.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer b.Shutdown(context.Background())
				var mu sync.Mutex
				var started []time.Time
				h := reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error {
					mu.Lock()
					defer mu.Unlock()
					started = append(started, time.Now())
					return nil
				})
				began := time.Now()
				for range processes {
					client, err := reprise.Dial(t.Context(), "amqp://guest:guest@broker", &reprise.Config{Dial: b.DialContext})
					if err != nil {
						t.Fatal(err)
					}
					defer client.Close(context.Background())
					l, err := limit.New(client, limit.Config{Name: "calls", Rate: 60 * rate, Per: time.Minute})
					if err != nil {
						t.Fatal(err)
					}
					w, err := reprise.NewWorker(client, reprise.WorkerConfig{Queue: "orders", Handler: h, Limiter: l, Prefetch: 1})
					if err != nil {
						t.Fatal(err)
					}
					go func() { _ = w.Run(t.Context()) }()
					defer l.Close()
					defer w.Shutdown(context.Background())
				}
				client, err := reprise.Dial(t.Context(), "amqp://guest:guest@broker", &reprise.Config{Dial: b.DialContext})
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close(context.Background())
				var batch []*reprise.Message
				for range messages {
					batch = append(batch, &reprise.Message{RoutingKey: "orders"})
				}
				synctest.Wait() // the workers have declared the queue
				if err := client.PublishBatch(t.Context(), batch); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Minute)
				mu.Lock()
				defer mu.Unlock()
				if len(started) != messages {
					t.Fatalf("handled %d messages, want %d", len(started), messages)
				}
				first := 0
				for i, at := range started {
					for at.Sub(started[first]) > 10*time.Second {
						first++
					}
					if n := i - first + 1; n > 10*rate+processes {
						t.Fatalf("%d attempts started within 10 s, want at most %d", n, 10*rate+processes)
					}
				}
				if took, most := started[messages-1].Sub(began), (messages/rate+15)*time.Second; took > most {
					t.Errorf("took %v, want at most %v", took, most)
				}
			})
		})
	}
}

// lingering is a connection that the broker keeps after the client has closed it, such as the connection of a node that has failed.
type lingering struct {
	net.Conn
	closed chan struct{}
	once   sync.Once
}

func (c *lingering) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	select {
	case <-c.closed:
		return 0, io.EOF
	default:
		return n, err
	}
}

func (c *lingering) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.SetReadDeadline(time.Now())
}

// A process that reconnects receives a share, although the broker has not noticed the end of its former connection. The test runs in
// virtual time.
func TestShareWhileFormerConnectionLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := broker.New(broker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Shutdown(context.Background())
		var mu sync.Mutex
		var all []*lingering
		connect := func(cfg *reprise.Config) *limit.Limit {
			client, err := reprise.Dial(t.Context(), "amqp://guest:guest@broker", cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close(context.Background()) })
			l, err := limit.New(client, limit.Config{Name: "calls", Concurrency: 4})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(l.Close)
			time.Sleep(time.Minute)
			return l
		}
		connect(&reprise.Config{Dial: b.DialContext}) // divides the limit
		two := connect(&reprise.Config{Heartbeat: time.Minute, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := b.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, &lingering{Conn: conn, closed: make(chan struct{})})
			return all[len(all)-1], nil
		}})
		mu.Lock()
		former := slices.Clone(all)
		mu.Unlock()
		for _, c := range former {
			_ = c.Close()
		}
		time.Sleep(10 * time.Second)
		if share := two.Share(); share != 2 {
			t.Errorf("got a share of %v, want 2", share)
		}
		for _, c := range former {
			_ = c.Conn.Close()
		}
	})
}

func TestInvalidLimits(t *testing.T) {
	client := dial(t, testkit.Embedded(t).URL)
	for want, cfg := range map[string]limit.Config{
		"Name":             {Rate: 1},
		"Rate or":          {Name: "a"},
		"and not both":     {Name: "a", Rate: 1, Concurrency: 1},
		"Rate must":        {Name: "a", Rate: -1},
		"Concurrency must": {Name: "a", Concurrency: -1},
		"Per must":         {Name: "a", Rate: 1, Per: -1},
		"and 200 bytes":    {Name: strings.Repeat("a", 201), Rate: 1},
	} {
		if _, err := limit.New(client, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want an error with %q", cfg, err, want)
		}
	}
	if _, err := limit.New(nil, limit.Config{Name: "a", Rate: 1}); err == nil {
		t.Error("got no error for a nil client")
	}
}
