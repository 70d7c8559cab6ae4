package prommetrics_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/prommetrics"
	"github.com/reprisemq/reprise/topology"
)

// link connects to a broker in memory, and can cut the connections.
type link struct {
	broker *broker.Broker
	mu     sync.Mutex
	conns  []net.Conn
}

func newLink(t *testing.T, config broker.Config) *link {
	t.Helper()
	b, err := broker.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return &link{broker: b}
}

func (l *link) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := l.broker.DialContext(ctx, network, addr)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns = append(l.conns, conn)
	}
	return conn, err
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.conns {
		_ = conn.Close() // the connection may already be closed
	}
	l.conns = nil
}

// client returns a client that m observes. It reconnects a second after it has lost its connection.
func (l *link) client(t *testing.T, m *prommetrics.Metrics) *reprise.Client {
	t.Helper()
	client, err := reprise.Dial(t.Context(), "amqp://guest:guest@memory", &reprise.Config{
		Dial: l.dial, Observer: m, Reconnect: backoff.Fixed(time.Second),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return client
}

// expect waits until no event is pending, and compares samples with their expected values.
func expect(t *testing.T, m *prommetrics.Metrics, want map[string]float64) {
	t.Helper()
	synctest.Wait()
	all := samples(t, m)
	got := map[string]float64{}
	for name := range want {
		if value, found := all[name]; found {
			got[name] = value
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestMetricsCountWorkerEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const q = `{queue="orders"}`
		m := newMetrics(t, prommetrics.Config{})
		link := newLink(t, broker.Config{})
		client := link.client(t, m)
		if err := client.Declare(t.Context(), topology.Buckets{}.Topology("orders")); err != nil {
			t.Fatal(err)
		}
		worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
			Queue:  "orders",
			Policy: reprise.Policy{MaxAttempts: 4, Backoff: backoff.Fixed(10 * time.Second)},
			Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
				time.Sleep(2 * time.Second)
				switch {
				case m.MessageID == "done at once", m.MessageID == "done at the third attempt" && m.Attempt == 3:
					return nil
				case m.MessageID == "parked at once":
					return reprise.Park(errTest)
				case m.MessageID == "pause" && m.Attempt == 1:
					return reprise.PauseFor(time.Hour, errTest)
				case m.MessageID == "cut off" && !m.Redelivered:
					link.cut()
					return errTest
				case m.MessageID == "cut off", m.MessageID == "pause":
					return nil
				}
				return errTest
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		go func() { ran <- worker.Run(context.WithoutCancel(t.Context())) }()
		publish := func(id string) {
			t.Helper()
			if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: "orders", MessageID: id, Timestamp: time.Now().Add(-time.Minute)}); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(want map[string]float64) {
			t.Helper()
			expect(t, m, want)
		}

		for _, id := range []string{"done at once", "done at the third attempt", "never done", "parked at once"} {
			publish(id)
			time.Sleep(time.Minute)
		}
		expect(map[string]float64{
			`attempts_total{outcome="done",queue="orders"}`:       2,
			`attempts_total{outcome="retried",queue="orders"}`:    2 + 3,
			`attempts_total{outcome="parked",queue="orders"}`:     2,
			`attempts_total{outcome="dropped",queue="orders"}`:    0,
			`attempts_total{outcome="given_back",queue="orders"}`: 0,
			`attempts_running` + q:                                0,

			`message_attempts_count{outcome="done",queue="orders"}`:         2,
			`message_attempts_sum{outcome="done",queue="orders"}`:           1 + 3,
			`message_attempts_count{outcome="parked",queue="orders"}`:       2,
			`message_attempts_sum{outcome="parked",queue="orders"}`:         4 + 1,
			`handler_duration_seconds_count{queue="orders",result="ok"}`:    2,
			`handler_duration_seconds_sum{queue="orders",result="ok"}`:      2 * 2,
			`handler_duration_seconds_count{queue="orders",result="error"}`: 2 + 4 + 1,
			`handler_duration_seconds_sum{queue="orders",result="error"}`:   (2 + 4 + 1) * 2,
			`message_age_seconds_count` + q:                                 4,
			`message_age_seconds_sum` + q:                                   4 * 60,
			`retry_delay_seconds_count` + q:                                 5,

			`consuming` + q: 1, `paused` + q: 0, `pauses_total` + q: 0, `interruptions_total` + q: 0, `copies_failed_total` + q: 0, `copies_refused_total` + q: 0,
		})

		publish("cut off")
		time.Sleep(time.Second)
		expect(map[string]float64{`attempts_running` + q: 1})
		time.Sleep(time.Minute)
		expect(map[string]float64{
			`attempts_total{outcome="dropped",queue="orders"}`: 1,
			`attempts_total{outcome="done",queue="orders"}`:    3,
			`attempts_running` + q:                             0,
			`consuming` + q:                                    1,
			`interruptions_total` + q:                          1,
		})

		publish("pause")
		time.Sleep(time.Minute)
		expect(map[string]float64{`consuming` + q: 0, `paused` + q: 1, `pauses_total` + q: 1, `interruptions_total` + q: 1})
		time.Sleep(time.Hour)
		expect(map[string]float64{`consuming` + q: 1, `paused` + q: 0})

		if err := worker.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-ran; err != nil {
			t.Error(err)
		}
		expect(map[string]float64{`consuming` + q: 0, `paused` + q: 0, `interruptions_total` + q: 1})
	})
}

// Two workers on the same queue and client count as two workers.
func TestMetricsCountWorkersOfSameQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetrics(t, prommetrics.Config{})
		client := newLink(t, broker.Config{}).client(t, m)
		var stops []func()
		for range 2 {
			worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
				Queue: "orders", Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return nil }),
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
			ran := make(chan error, 1)
			go func() { ran <- worker.Run(ctx) }()
			stops = append(stops, func() {
				cancel()
				if err := <-ran; err != nil {
					t.Error(err)
				}
			})
		}
		for _, want := range []float64{2, 1, 0} {
			time.Sleep(time.Second)
			expect(t, m, map[string]float64{`consuming{queue="orders"}`: want})
			if len(stops) > 0 {
				stops[0]()
				stops = stops[1:]
			}
		}
	})
}
