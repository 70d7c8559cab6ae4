package workertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/breaker"
	"github.com/reprisemq/reprise/limit"
	"github.com/reprisemq/reprise/topology"
)

// laneAttempts records the attempts of a worker with lanes.
type laneAttempts struct {
	mu      sync.Mutex
	began   []time.Time
	running int
	most    int // maximum number of attempts that ran at the same time
}

func (a *laneAttempts) run(takes time.Duration) {
	a.mu.Lock()
	a.began = append(a.began, time.Now())
	a.running++
	a.most = max(a.most, a.running)
	a.mu.Unlock()
	time.Sleep(takes)
	a.mu.Lock()
	a.running--
	a.mu.Unlock()
}

// What limits the attempts of a worker limits all its lanes together. No message is lost, and each retry returns to its lane.
func TestLanesShareLimits(t *testing.T) {
	t.Parallel()
	const queue, lanes, perLane, takes = "work", 4, 10, time.Second
	failed := errors.New("it fails")
	for name, tc := range map[string]struct {
		change func(t *testing.T, c client, w *reprise.WorkerConfig, a *laneAttempts)
		check  func(t *testing.T, a *laneAttempts)
	}{
		"a route": {
			func(_ *testing.T, _ client, w *reprise.WorkerConfig, a *laneAttempts) {
				w.Handler = &reprise.Mux{Routes: []reprise.Route{{Pattern: "order", Handler: w.Handler, Concurrency: 2}}}
			},
			func(t *testing.T, a *laneAttempts) {
				if a.most != 2 {
					t.Errorf("%d attempts ran at the same time, want 2", a.most)
				}
			},
		},
		"a batch": {
			func(_ *testing.T, _ client, w *reprise.WorkerConfig, a *laneAttempts) {
				w.Handler = reprise.Batch(5, time.Second, func(_ context.Context, batch []*reprise.Delivery) []error {
					a.run(takes)
					if len(batch) > 5 {
						t.Errorf("batch of %d messages, want at most 5", len(batch))
					}
					errs := make([]error, len(batch))
					for i := range errs {
						errs[i] = failed
					}
					return errs
				})
			},
			func(t *testing.T, a *laneAttempts) {
				if n := 2 * lanes * perLane; len(a.began) > n/2 {
					t.Errorf("%d attempts in %d batches, want batches of several lanes", n, len(a.began))
				}
			},
		},
		"a shared rate": {
			func(t *testing.T, c client, w *reprise.WorkerConfig, _ *laneAttempts) {
				l, err := limit.New(c.Client, limit.Config{Name: "payments", Rate: 1})
				if err != nil {
					t.Fatal(err)
				}
				w.Limiter = l
			},
			func(t *testing.T, a *laneAttempts) {
				for i := 2; i < len(a.began); i++ { // a burst of one is permitted
					if gap := a.began[i].Sub(a.began[i-2]); gap < time.Second {
						t.Errorf("three attempts within %s, want at most 1 per second", gap)
					}
				}
			},
		},
		"a pause": {
			func(_ *testing.T, _ client, w *reprise.WorkerConfig, a *laneAttempts) {
				w.Concurrency = 1
				w.Handler = reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
					a.run(takes)
					return reprise.PauseFor(time.Minute, failed)
				})
			},
			func(t *testing.T, a *laneAttempts) {
				for i := 1; i < len(a.began); i++ {
					if gap := a.began[i].Sub(a.began[i-1]); gap < time.Minute {
						t.Errorf("attempt after %s, want a pause of one minute in all lanes", gap)
					}
				}
			},
		},
		"a circuit breaker": {
			func(t *testing.T, _ client, w *reprise.WorkerConfig, _ *laneAttempts) {
				b, err := breaker.New(breaker.Config{Failures: 3, OpenFor: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				w.Breaker = b
			},
			func(t *testing.T, a *laneAttempts) {
				opened := 0
				for i := 1; i < len(a.began); i++ {
					switch gap := a.began[i].Sub(a.began[i-1]); {
					case gap >= time.Minute:
						opened++
					case opened > 0:
						t.Errorf("attempt %d began %s after another probe, want one probe per minute", i, gap)
					}
				}
				if opened == 0 {
					t.Error("the breaker did not open")
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
				c, a := dial(), &laneAttempts{}
				w := reprise.WorkerConfig{
					Queue: queue, Lanes: lanes, Concurrency: 8, Policy: reprise.Policy{MaxAttempts: 2, Backoff: backoff.Fixed(10 * time.Second)},
					Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
						a.run(takes)
						return failed
					}),
				}
				tc.change(t, c, &w, a)
				all := topology.Lanes{Count: lanes}.Queues(queue)
				if err := c.Declare(t.Context(), topology.Lanes{Count: lanes}.Topology(queue)); err != nil {
					t.Fatal(err)
				}
				for n := range lanes * perLane {
					r.publish("", all[n%lanes], amqp.Publishing{MessageId: fmt.Sprint(n), Type: "order"})
				}
				stop := start(t, c, w)
				for range 2 * lanes * perLane { // the breaker permits a probe each minute
					if r.depth(queue+".failed") == lanes*perLane {
						break
					}
					time.Sleep(2 * time.Minute)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				got := map[string]int{}
				for {
					d, found, err := r.Get(queue+".failed", true)
					if err != nil {
						t.Fatal(err)
					}
					if !found {
						break
					}
					var n int
					_, _ = fmt.Sscan(d.MessageId, &n)
					history := topology.Trail{}.Read(topology.Delivery{Queue: queue, Headers: topology.Table(d.Headers)})
					if lane := d.Headers[topology.HeaderQueue]; lane != all[n%lanes] || history.Attempts != 2 {
						t.Errorf("message %d failed last in %v after %d attempts, want %s and 2", n, lane, history.Attempts, all[n%lanes])
					}
					got[d.MessageId]++
				}
				if len(got) != lanes*perLane {
					t.Errorf("%d messages parked, want %d", len(got), lanes*perLane)
				}
				tc.check(t, a)
			})
		})
	}
}
