package workertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A Mux passes each message to the handler of its route, also after a retry, and parks a message without a route.
func TestMuxPassesMessagesToTheirRoutes(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		for name, tc := range map[string]struct {
			by   func(*reprise.Delivery) string
			with func(key string) amqp.Publishing
		}{
			"type":        {nil, func(key string) amqp.Publishing { return amqp.Publishing{Type: key} }},
			"header":      {reprise.Header("event"), func(key string) amqp.Publishing { return amqp.Publishing{Headers: amqp.Table{"event": key}} }},
			"routing key": {reprise.RoutingKey, func(string) amqp.Publishing { return amqp.Publishing{} }},
		} {
			t.Run(name, func(t *testing.T) {
				queue, strategy := r.names(topology.Buckets{})
				exchange := testkit.Name(t, "events")
				r.deleteExchanges(exchange)
				results := make(chan string, 100)
				route := func(name string) reprise.Handler {
					return reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
						if m.Attempt == 1 {
							return errScripted
						}
						results <- string(m.Body) + " in " + name
						return nil
					})
				}
				c := dial(t, b.URL)
				start(t, c, reprise.WorkerConfig{
					Queue: queue, Strategy: strategy, Policy: quick(5),
					Topology: topology.Topology{
						Exchanges: []topology.Exchange{{Name: exchange, Kind: topology.Topic}},
						Bindings:  []topology.Binding{{Exchange: exchange, Queue: queue, RoutingKey: "#"}},
					},
					Handler: &reprise.Mux{By: tc.by, Routes: []reprise.Route{
						{Pattern: "order.*", Handler: route("order.*")},
						{Pattern: "order.placed", Handler: route("order.placed")},
						{Pattern: "report.#", Handler: route("report.#")},
					}},
				})
				for _, key := range []string{"order.placed", "order.paid", "report.day.1", "unknown"} {
					m := tc.with(key)
					m.Body = []byte(key)
					r.publish(exchange, key, m)
				}
				got := map[string]bool{}
				for range 3 {
					got[<-results] = true
				}
				for _, want := range []string{"order.placed in order.placed", "order.paid in order.*", "report.day.1 in report.#"} {
					if !got[want] {
						t.Errorf("got %v, want %q", got, want)
					}
				}
				parked := r.take(topology.FailedQueue(queue))
				history := fmt.Sprint(parked.Headers["x-reprise-errors"])
				if want := `no route matches the key "unknown" (the Mux has the patterns ["order.*" "order.placed" "report.#"])`; !strings.Contains(history, want) {
					t.Errorf("parked message: got errors %s, want %s", history, want)
				}
			})
		}
	})
}

// The Policy of a route applies to all failures of its handler.
func TestRoutePolicyReplacesPolicyOfWorker(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		h := newScript(func(m *reprise.Delivery) error {
			switch string(m.Body) {
			case "panic":
				panic("at the disco")
			case "exit":
				runtime.Goexit()
			}
			return errScripted
		})
		events := &events{}
		c := dial(func(c *reprise.Config) { c.Observer = events })
		route := func(pattern string, p reprise.Policy) reprise.Route {
			return reprise.Route{Pattern: pattern, Handler: h, Policy: p}
		}
		logged := func(next reprise.Handler) reprise.Handler {
			return reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
				return fmt.Errorf("wrapped: %w", next.Handle(ctx, m))
			})
		}
		start(t, c, reprise.WorkerConfig{
			Queue: "work", Policy: reprise.Policy{MaxAttempts: 4, Backoff: backoff.Fixed(time.Minute)}, Middleware: []reprise.Middleware{logged},
			Handler: &reprise.Mux{Routes: []reprise.Route{
				route("default", reprise.Policy{}),
				route("twice", reprise.Policy{MaxAttempts: 2}),
				route("slow", reprise.Policy{Backoff: backoff.Fixed(time.Hour)}),
				route("rules", reprise.Policy{Rules: []reprise.Rule{{Match: reprise.MatchIs(errScripted), Park: true}}}),
			}},
		})
		attempts := map[string]int{"default": 4, "twice": 2, "slow": 4, "rules": 1, "twice panic": 2, "twice exit": 2}
		for id := range attempts {
			name, body, _ := strings.Cut(id, " ")
			r.publish("", "work", amqp.Publishing{MessageId: id, Type: name, Body: []byte(body)})
		}
		time.Sleep(time.Hour)
		if n := r.depth("work.failed"); n != len(attempts)-1 {
			t.Errorf("parked messages after an hour: got %d, want %d", n, len(attempts)-1)
		}
		time.Sleep(3 * time.Hour)
		got := map[string]int{}
		for _, e := range events.of(reprise.EventHandled) {
			got[e.MessageID]++
		}
		for id, want := range attempts {
			if got[id] != want {
				t.Errorf("attempts of message %q: got %d, want %d", id, got[id], want)
			}
		}
		if n := r.depth("work.failed"); n != len(attempts) {
			t.Errorf("parked messages: got %d, want %d", n, len(attempts))
		}
	})
}

// Messages of a route above its Concurrency wait without a slot, so that they do not block other routes.
func TestFullRouteDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		var slow, fast atomic.Int32
		start(t, dial(), reprise.WorkerConfig{
			Queue: "work", Concurrency: 2, Prefetch: 20,
			Handler: &reprise.Mux{Routes: []reprise.Route{
				{Pattern: "slow", Concurrency: 1, Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error {
					time.Sleep(time.Minute)
					slow.Add(1)
					return nil
				})},
				{Pattern: "fast", Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error {
					time.Sleep(time.Millisecond)
					fast.Add(1)
					return nil
				})},
			}},
		})
		for range 5 {
			r.publish("", "work", amqp.Publishing{Type: "slow"})
		}
		for range 100 {
			r.publish("", "work", amqp.Publishing{Type: "fast"})
		}
		time.Sleep(30 * time.Second)
		if s, f := slow.Load(), fast.Load(); s != 0 || f != 100 {
			t.Errorf("after 30 s: got %d slow and %d fast messages, want 0 and 100", s, f)
		}
		time.Sleep(5 * time.Minute)
		if n := slow.Load(); n != 5 {
			t.Errorf("slow messages: got %d, want 5", n)
		}
	})
}

// A Mux that the worker does not see cannot have a Policy or a Concurrency. The messages are retried, so that none is lost.
func TestWrappedMuxFails(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		h := newScript(func(*reprise.Delivery) error { return nil })
		mux := &reprise.Mux{Routes: []reprise.Route{
			{Pattern: "plain", Handler: h},
			{Pattern: "limited", Handler: h, Policy: reprise.Policy{MaxAttempts: 3}},
		}}
		events := &events{}
		c := dial(func(c *reprise.Config) { c.Observer = events })
		start(t, c, reprise.WorkerConfig{Queue: "work", Handler: reprise.Chain(mux, reprise.Timeout(time.Minute))})
		r.publish("", "work", amqp.Publishing{Type: "plain"})
		r.publish("", "work", amqp.Publishing{Type: "limited"})
		time.Sleep(time.Second)
		retried := events.of(reprise.EventRetried)
		if h.count() != 1 || len(retried) != 1 || !strings.Contains(retried[0].Err.Error(), "must be WorkerConfig.Handler itself") {
			t.Errorf("got %d handled messages and the retries %v, want 1 of each", h.count(), retried)
		}
	})
}

func TestMuxValidation(t *testing.T) {
	t.Parallel()
	h := reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return nil })
	batch := reprise.Batch(5, time.Second, func(context.Context, []*reprise.Delivery) []error { return nil })
	mux := func(routes ...reprise.Route) *reprise.Mux { // a Mux in a Mux
		return &reprise.Mux{Routes: []reprise.Route{{Pattern: "b", Handler: &reprise.Mux{Routes: routes}}}}
	}
	for want, mux := range map[string]*reprise.Mux{
		"":                               {Routes: []reprise.Route{{Pattern: "a", Handler: h}, {Pattern: "", Handler: h}}},
		"Mux.Routes must not be empty":   {},
		"Mux.Routes must not be empty ":  nil,
		`"a": Pattern must be unique`:    {Routes: []reprise.Route{{Pattern: "a", Handler: h}, {Pattern: "a", Handler: h}}},
		`"a": Handler must not be nil`:   {Routes: []reprise.Route{{Pattern: "a", Handler: reprise.HandlerFunc(nil)}}},
		"must not be negative: got -1 ":  {Routes: []reprise.Route{{Pattern: "a", Handler: h, Concurrency: -1}}},
		"Policy.MaxAttempts must be":     {Routes: []reprise.Route{{Pattern: "a", Handler: h, Policy: reprise.Policy{MaxAttempts: -1}}}},
		" ":                              {Routes: []reprise.Route{{Pattern: "#", Handler: h}, {Pattern: "a", Handler: h}}},
		`"a.*": Pattern must be before`:  {Routes: []reprise.Route{{Pattern: "#", Handler: h}, {Pattern: "a.*", Handler: h}}},
		`"b": Route "a": Handler must n`: mux(reprise.Route{Pattern: "a"}),
		`"b": Mux.Routes must not be em`: mux(),
		`"b": Handler must not be a Mux`: mux(reprise.Route{Pattern: "a", Handler: h, Policy: reprise.Policy{MaxAttempts: 3}}),
		"at least 5, the size of the B":  {Routes: []reprise.Route{{Pattern: "b", Concurrency: 4, Handler: mux(reprise.Route{Pattern: "a", Handler: batch})}}},
	} {
		err := reprise.WorkerConfig{Queue: "q", Handler: mux}.Validate()
		if (err == nil) != (strings.TrimSpace(want) == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	limited := &reprise.Mux{Routes: []reprise.Route{{Pattern: "a", Handler: h, Policy: reprise.Policy{GiveUpAfter: time.Hour}}}}
	cfg := reprise.WorkerConfig{Queue: "q", Handler: limited, Strategy: topology.Strategy{Route: topology.Requeuing{}}}
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "GiveUpAfter must be 0") {
		t.Errorf("got %v, want an error about GiveUpAfter", err)
	}
}

// Without a worker, a Mux is an ordinary Handler.
func TestMuxWithoutWorker(t *testing.T) {
	t.Parallel()
	mux := &reprise.Mux{Routes: []reprise.Route{{Pattern: "a", Concurrency: 1, Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return errScripted })}}}
	if err := mux.Handle(t.Context(), &reprise.Delivery{Message: reprise.Message{Type: "a"}}); err != errScripted {
		t.Errorf("got %v, want the error of the handler", err)
	}
	err := mux.Handle(t.Context(), &reprise.Delivery{})
	if e, ok := errors.AsType[*reprise.NoRouteError](err); !ok || e.Key != "" || len(e.Patterns) != 1 {
		t.Errorf("got %v, want a NoRouteError", err)
	}
}

// With random routes, durations, results and lost connections, no route exceeds its Concurrency or its attempts, and each message
// is processed or parked.
func TestRoutesStayWithinTheirLimits(t *testing.T) {
	t.Parallel()
	lives := uint64(60)
	if testing.Short() {
		lives = 15
	}
	for seed := range lives {
		bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
			var mu sync.Mutex
			rng := rand.New(rand.NewPCG(seed, 0))
			n := func(sides int) int {
				mu.Lock()
				defer mu.Unlock()
				return rng.IntN(sides)
			}
			cfg := reprise.WorkerConfig{
				Queue: "work", Concurrency: 1 + n(6), Policy: reprise.Policy{MaxAttempts: 3, Backoff: backoff.Fixed(time.Second)}, CrashLimit: -1,
			}
			cfg.Prefetch = cfg.Concurrency + n(30)
			if n(3) == 0 {
				cfg.Limiter = slowLimiter(time.Duration(n(500)) * time.Millisecond)
			}
			if n(3) == 0 {
				cfg.Debounce = &reprise.Debounce{Window: time.Second, Key: func(m *reprise.Delivery) string { return m.MessageID }}
			}
			mux := &reprise.Mux{}
			routes := 1 + n(4)
			running := make([]atomic.Int32, routes)
			var done sync.Map
			for i := range routes {
				route := reprise.Route{Pattern: fmt.Sprint(i), Concurrency: n(4), Policy: reprise.Policy{MaxAttempts: n(4)}}
				route.Handler = reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
					defer running[i].Add(-1)
					if now := int(running[i].Add(1)); now > cfg.Concurrency || route.Concurrency > 0 && now > route.Concurrency {
						t.Errorf("life %d: %d handlers of route %+v run", seed, now, route)
					}
					if most := max(route.Policy.MaxAttempts, 1); m.Attempt > most && route.Policy.MaxAttempts > 0 {
						t.Errorf("life %d: attempt %d of route %+v", seed, m.Attempt, route)
					}
					time.Sleep(time.Duration(n(5000)) * time.Millisecond)
					switch n(6) {
					case 0:
						return errScripted
					case 1:
						return reprise.PauseFor(time.Duration(n(5))*time.Second, nil)
					case 2:
						panic("at the disco")
					}
					done.Store(m.MessageID, true)
					return nil
				})
				mux.Routes = append(mux.Routes, route)
			}
			cfg.Handler = mux
			stop := start(t, dial(), cfg)
			const messages = 60
			for i := range messages {
				r.publish("", "work", amqp.Publishing{MessageId: fmt.Sprint(i), Type: fmt.Sprint(n(routes))})
				time.Sleep(time.Duration(n(300)) * time.Millisecond)
			}
			time.Sleep(time.Hour)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			parked := r.depth("work.failed")
			for range parked {
				done.Store(r.take("work.failed").MessageId, true)
			}
			finished := 0
			done.Range(func(any, any) bool { finished++; return true })
			if left := r.depth("work"); finished != messages || left != 0 {
				t.Errorf("life %d: %d messages were processed or parked, and %d are left, want %d and 0", seed, finished, left, messages)
			}
		})
	}
}

// slowLimiter permits an attempt after a delay.
type slowLimiter time.Duration

func (l slowLimiter) Wait(ctx context.Context) error {
	select {
	case <-time.After(time.Duration(l)):
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
