package config

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/time/rate"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/idempotent"
	"github.com/reprisemq/reprise/limit"
	"github.com/reprisemq/reprise/topology"
)

// worker parses a worker with a queue, a handler and additional keys.
func worker(t *testing.T, keys string) Worker {
	t.Helper()
	return mustParse(t, "workers: [{queue: a, exec: [x], "+keys+"}]").Workers[0]
}

func TestSharedLimit(t *testing.T) {
	for text, want := range map[string]limit.Config{
		"{rate: 600/m}":                 {Name: "a", Rate: 10},
		"{concurrency: 3}":              {Name: "a", Concurrency: 3},
		"{name: payments, rate: 0.5/s}": {Name: "payments", Rate: 0.5},
	} {
		if got := worker(t, "shared_limit: "+text).Shared; got == nil || *got != want {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
	}
}

func TestRoutes(t *testing.T) {
	const minute = time.Minute
	for text, want := range map[string]struct {
		route   topology.Route
		backoff backoff.Backoff // backoff of the policy
	}{
		"buckets":                               {topology.Buckets{}, nil},
		"{buckets: {}}":                         {topology.Buckets{}, nil},
		"{buckets: {base: 1m}}":                 {topology.Buckets{Base: minute}, nil},
		"{buckets: {base: 100ms, growth: 1.1}}": {topology.Buckets{Base: 100 * time.Millisecond, Growth: 1.1}, nil},
		"levels":                                {topology.Levels{}, nil},
		"message-ttl":                           {topology.MessageTTL{}, nil},
		"requeue":                               {topology.Requeuing{}, backoff.Fixed(0)},
		"dead-letter":                           {topology.DeadLettering{Delay: minute}, backoff.Fixed(minute)},
		"{dead-letter: {delay: 1d}}":            {topology.DeadLettering{Delay: 24 * time.Hour}, backoff.Fixed(24 * time.Hour)},
		"delayed-retry":                         {topology.DelayedRetry{Min: 10 * time.Second, Max: time.Hour}, backoff.Linear{Initial: 10 * time.Second, Step: 10 * time.Second, Max: time.Hour}},
		"{delayed-retry: {min: 1m, max: 5m}}":   {topology.DelayedRetry{Min: minute, Max: 5 * minute}, backoff.Linear{Initial: minute, Step: minute, Max: 5 * minute}},
		"{delayed-retry: {min: 2h}}":            {topology.DelayedRetry{Min: 2 * time.Hour, Max: 2 * time.Hour}, backoff.Linear{Initial: 2 * time.Hour, Step: 2 * time.Hour, Max: 2 * time.Hour}},
	} {
		w := worker(t, "route: "+text)
		if diff := cmp.Diff(want.route, w.Strategy.Route); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", text, diff)
		}
		if diff := cmp.Diff(want.backoff, w.Policy.Backoff); diff != "" {
			t.Errorf("%s: backoff (-want +got)\n%s", text, diff)
		}
	}
}

// The policy contains the actual delays of a route that ignores the backoff.
func TestDelaysMatchRoutes(t *testing.T) {
	for _, text := range []string{"requeue", "{dead-letter: {delay: 5m}}", "{delayed-retry: {min: 20s, max: 1m}}"} {
		w := worker(t, "route: "+text)
		for attempt := 1; attempt < 6; attempt++ {
			d := topology.Delivery{Queue: "a", Redelivered: attempt > 1, Headers: topology.Table{"x-delivery-count": int64(attempt - 1)}}
			hop, err := w.Strategy.Route.Wait(d, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if got := w.Policy.Backoff.Delay(attempt); got != hop.Delay {
				t.Errorf("%s: got delay %s after attempt %d, want %s", text, got, attempt, hop.Delay)
			}
		}
	}
}

func TestRates(t *testing.T) {
	for text, want := range map[string]struct {
		limit rate.Limit
		burst int
	}{
		"10/s":                      {10, 1},
		"0.5/s":                     {0.5, 1},
		"30 / m":                    {0.5, 1},
		"3600/h":                    {1, 1},
		"86400/d":                   {1, 1},
		"{limit: 90/m}":             {1.5, 1},
		"{limit: 10/s, burst: 20}":  {10, 20},
		"{burst: 3, limit: '10/s'}": {10, 3},
	} {
		l, ok := worker(t, "rate: "+text).Limiter.(*rate.Limiter)
		if !ok || l.Limit() != want.limit || l.Burst() != want.burst {
			t.Errorf("%s: got %v per second, want %v, burst %d, want %d", text, l.Limit(), want.limit, l.Burst(), want.burst)
		}
	}
}

func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := worker(t, "breaker: {failures: 2, open_for: 1m, probes: 2}").Breaker
		attempt := func(err error) time.Duration {
			record, wait := b.Allow()
			if wait == 0 {
				record(err)
			}
			return wait
		}
		down := errors.New("down")
		attempt(down)
		attempt(fmt.Errorf("wrapped: %w", reprise.Park(down))) // the destination responded
		attempt(down)
		attempt(reprise.RetryAfter(time.Second, fmt.Errorf("%w: elsewhere", idempotent.ErrBusy))) // does not count for the breaker
		if wait := attempt(down); wait != 0 {
			t.Fatalf("breaker is open after one consecutive failure, for %s, want 0", wait)
		}
		if wait := attempt(nil); wait != time.Minute {
			t.Fatalf("after two consecutive failures: got wait %s, want %s", wait, time.Minute)
		}
		time.Sleep(time.Minute + time.Millisecond)
		attempt(nil)
		if !b.Probing() {
			t.Error("breaker is closed after one successful probe")
		}
		attempt(nil)
		if b.Probing() {
			t.Error("breaker is not closed after two successful probes")
		}
	})
	if worker(t, "breaker: {}").Breaker == nil {
		t.Error("{} did not create a breaker")
	}
}

func TestImmediateRetries(t *testing.T) {
	for text, want := range map[string]struct {
		runs int
		took time.Duration
	}{
		"1":                       {2, 100 * time.Millisecond},
		"{times: 3}":              {4, 300 * time.Millisecond},
		"{times: 3, pause: 0s}":   {4, 0},
		"{times: 2, pause: 10ms}": {3, 20 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			runs, began := 0, time.Now()
			h := reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error {
				runs++
				return errors.New("failed")
			})
			err := reprise.Chain(h, worker(t, "immediate: "+text).Middleware...).Handle(t.Context(), &reprise.Delivery{})
			if err == nil || runs != want.runs || time.Since(began) != want.took {
				t.Errorf("%s: got %d runs in %s, want %d in %s; error %v", text, runs, time.Since(began), want.runs, want.took, err)
			}
		})
	}
}

func TestDebounceKeys(t *testing.T) {
	m := func(body, routingKey string, customer any) *reprise.Delivery {
		return &reprise.Delivery{Message: reprise.Message{Body: []byte(body), RoutingKey: routingKey, Headers: map[string]any{"customer": customer}}}
	}
	for text, tt := range map[string]struct{ same, other, none *reprise.Delivery }{
		"body":               {m("a", "y", 2), m("b", "x", 1), m("", "x", 1)},
		"routing-key":        {m("b", "x", 2), m("a", "y", 1), m("a", "", 1)},
		"{header: customer}": {m("b", "y", "1"), m("a", "x", 2), m("a", "x", nil)},
	} {
		first := m("a", "x", int64(1))
		for _, key := range []func(*reprise.Delivery) string{
			worker(t, "debounce: {window: 10s, key: "+text+"}").Debounce.Key,
			worker(t, "duplicates: {store: memory, key: "+text+"}").Duplicates.Key,
		} {
			if key(first) != key(tt.same) || key(first) == key(tt.other) || key(tt.none) != "" {
				t.Errorf("%s: got keys %q, want %q, %q, %q, %q", text, key(first), key(tt.same), key(tt.same), key(tt.other), key(tt.none))
			}
		}
	}
	d := worker(t, "debounce: 10s").Debounce
	say := func(id, body string) string {
		return d.Key(&reprise.Delivery{Message: reprise.Message{MessageID: id, Body: []byte(body)}})
	}
	if d.Window != 10*time.Second || say("1", "same") != say("2", "same") || say("1", "same") == say("1", "other") {
		t.Errorf("got %+v, want a window of 10s and the body as the key", d)
	}
}

func TestDuplicates(t *testing.T) {
	for text, want := range map[string]Duplicates{
		"memory":              {Memory: true},
		"sqlite:done.db":      {SQLite: "dir/done.db"},
		"sqlite:/var/done.db": {SQLite: "/var/done.db"},
		`"postgres://u:${RABBITMQ_PASSWORD}@h/d?sslmode=disable"`: {Postgres: "postgres://u:secret@h/d?sslmode=disable"},
		"'postgresql:///d?host=/run/postgresql'":                  {Postgres: "postgresql:///d?host=/run/postgresql"},
		"{store: memory, keep: 1d, lease: 5m, keyless: park}":     {Memory: true, Config: idempotent.Config{Retention: 24 * time.Hour, Lease: 5 * time.Minute}},
		"{store: memory, keyless: handle}":                        {Memory: true, Config: idempotent.Config{Keyless: idempotent.HandleKeyless}},
	} {
		got := *worker(t, "duplicates: "+text).Duplicates
		got.At = Position{}
		if diff := cmp.Diff(want, got, noFuncs); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", text, diff)
		}
		if err := got.Config.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestNoneDisablesLimits(t *testing.T) {
	w := worker(t, "crash_limit: none, consumer_timeout: none")
	if w.CrashLimit != -1 || w.ConsumerTimeout != -1 {
		t.Errorf("got crash limit %d, want -1, consumer timeout %s, want -1", w.CrashLimit, w.ConsumerTimeout)
	}
	w = worker(t, "crash_limit: 3, consumer_timeout: 1h, settle: ack-then-publish")
	if w.CrashLimit != 3 || w.ConsumerTimeout != time.Hour || w.Order != reprise.AckThenPublish {
		t.Errorf("got crash limit %d, want 3, consumer timeout %s, want %s, order %d, want %d", w.CrashLimit, w.ConsumerTimeout, time.Hour, w.Order, reprise.AckThenPublish)
	}
}
