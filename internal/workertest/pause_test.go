package workertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/time/rate"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/breaker"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// consumers returns the number of consumers of a queue.
func (r *raw) consumers(queue string) int {
	r.t.Helper()
	q, err := r.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return q.Consumers
}

func TestPauseForStopsConsuming(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		events := &events{}
		c := dial(t, b.URL, func(c *reprise.Config) { c.Observer = events })
		h := newScript(func(m *reprise.Delivery) error {
			if m.MessageID == "full" && m.Attempt == 1 {
				return reprise.PauseFor(10*time.Second, errors.New("507 queue is full"))
			}
			return nil
		})
		start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy})
		r.publish("", queue, amqp.Publishing{MessageId: "full"})
		c.log.wait(t, "paused", 1)
		testkit.Eventually(t, timeout, func() bool { return r.consumers(queue) == 0 })
		for i := range 3 {
			r.publish("", queue, amqp.Publishing{MessageId: fmt.Sprint("next", i)})
		}
		c.log.wait(t, "consuming", 2)
		h.wait(t, 5)
		if n := len(events.of(reprise.EventResumed)); n != 1 {
			t.Errorf("worker resumed %d times, want 1", n)
		}
		paused, resumed := events.of(reprise.EventPaused)[0], events.of(reprise.EventResumed)
		if paused.Delay <= 0 || paused.Err == nil || paused.Err.Error() != "507 queue is full" || len(resumed) != 1 {
			t.Errorf("events: got paused %+v, resumed %+v; want a pause because of 507 queue is full, and 1 resumption", paused, resumed)
		}
	})
}

// A pause does not affect messages that were fetched and not yet handled. For such messages, it counts neither as an attempt
// nor as a delivery.
func TestPauseDoesNotAffectFetchedMessages(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		clock := newClock()
		var counts []any
		h := newScript(nil)
		h.answer = func(m *reprise.Delivery) error {
			clock.tick()
			if h.count() <= 3 {
				return reprise.PauseFor(time.Hour, errScripted)
			}
			return nil
		}
		c := dial()
		start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h})
		for i := range 10 {
			r.publish("", "work", amqp.Publishing{MessageId: fmt.Sprint(i)})
		}
		time.Sleep(5 * time.Hour)
		seen := h.wait(t, 13)
		for _, m := range seen {
			counts = append(counts, m.Attempt)
		}
		if slices.ContainsFunc(seen, func(m *reprise.Delivery) bool { return m.Attempt > 2 }) {
			t.Errorf("attempts by message: got %v, want at most 2 each", counts)
		}
		if n := c.log.count("paused"); n != 3 {
			t.Errorf("worker paused %d times, want 3", n)
		}
		at := clock.ticks()
		for i := range 3 {
			if gap := at[i+1] - at[i]; gap < time.Hour || gap > time.Hour+time.Minute {
				t.Errorf("start of attempt %d after the attempt that requested one hour: got %s, want 1h to 1h1m", i+2, gap)
			}
		}
	})
}

func TestOpenBreakerStopsConsuming(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		var mu sync.Mutex
		var changes []breaker.State
		b, err := breaker.New(breaker.Config{
			Failures: 3, OpenFor: 10 * time.Minute, Probes: 2,
			OnChange: func(_, to breaker.State) {
				mu.Lock()
				defer mu.Unlock()
				changes = append(changes, to)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		clock := newClock()
		var down atomic.Bool
		down.Store(true)
		h := newScript(func(m *reprise.Delivery) error {
			clock.tick()
			if down.Load() {
				return errScripted
			}
			return nil
		})
		c := dial()
		const messages = 40
		start(t, c, reprise.WorkerConfig{
			Queue: "work", Handler: h, Breaker: b, Concurrency: 1,
			Policy: reprise.Policy{Backoff: backoff.Fixed(24 * time.Hour), MaxAttempts: 3},
		})
		for i := range messages {
			r.publish("", "work", amqp.Publishing{MessageId: fmt.Sprint(i)})
		}
		// Three failures open the circuit breaker. Afterwards it permits one probe every ten minutes.
		time.Sleep(35 * time.Minute)
		if n := h.count(); n != 3+3 {
			t.Errorf("got %d attempts in 35 minutes, want 6", n)
		}
		if n := r.consumers("work"); n != 0 {
			t.Errorf("queue has %d consumers while the breaker is open, want 0", n)
		}
		if n := r.depth("work"); n != messages-6 {
			t.Errorf("depth of the queue while the breaker is open: got %d, want %d", n, messages-6)
		}
		down.Store(false)
		time.Sleep(10 * time.Minute)
		if n := h.count(); n != 6+messages-6 {
			t.Errorf("attempts after the breaker closed: got %d, want %d", n, messages)
		}
		want := []breaker.State{
			breaker.Open, breaker.HalfOpen, breaker.Open, breaker.HalfOpen, breaker.Open, breaker.HalfOpen, breaker.Open, breaker.HalfOpen, breaker.Closed,
		}
		if diff := cmp.Diff(want, changes); diff != "" {
			t.Errorf("changes of the breaker: -want +got:\n%s", diff)
		}
		time.Sleep(25 * time.Hour) // the failed messages are retried
		if n := c.log.count("parked"); n != 0 {
			t.Errorf("%d messages were parked, want 0", n)
		}
		if n := h.count(); n != 6+messages {
			t.Errorf("attempts: got %d, want %d", n, 6+messages)
		}
	})
}

// Each time that a shared breaker permits a probe, its workers send one probe in total.
func TestWorkersShareABreaker(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		b, err := breaker.New(breaker.Config{Failures: 2, OpenFor: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		h := newScript(func(m *reprise.Delivery) error { return errScripted })
		c := dial()
		for _, queue := range []string{"one", "two", "three"} {
			start(t, c, reprise.WorkerConfig{
				Queue: queue, Handler: h, Breaker: b,
				Policy: reprise.Policy{Backoff: backoff.Fixed(24 * time.Hour)},
			})
		}
		r.publish("", "one", amqp.Publishing{})
		r.publish("", "one", amqp.Publishing{})
		h.wait(t, 2)
		for i := range 30 {
			r.publish("", []string{"one", "two", "three"}[i%3], amqp.Publishing{})
		}
		time.Sleep(10*time.Minute + 30*time.Second)
		if n := h.count(); n != 2+10 {
			t.Errorf("got %d attempts in ten minutes, want 12", n)
		}
	})
}

func TestLimiterLimitsRateOfAttempts(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		clock := newClock()
		h := newScript(func(m *reprise.Delivery) error {
			clock.tick()
			return nil
		})
		start(t, dial(), reprise.WorkerConfig{
			Queue: "work", Handler: h, Concurrency: 8,
			Limiter: rate.NewLimiter(rate.Every(time.Minute), 1),
		})
		for range 10 {
			r.publish("", "work", amqp.Publishing{})
		}
		time.Sleep(10 * time.Minute)
		h.wait(t, 10)
		at := clock.ticks()
		for i := 1; i < len(at); i++ {
			if gap := at[i] - at[i-1]; gap < time.Minute-time.Millisecond {
				t.Errorf("interval between attempts %d and %d must be at least one minute: got %s", i, i+1, gap)
			}
		}
	})
}

type brokenLimiter struct{ calls atomic.Int32 }

func (l *brokenLimiter) Wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	switch l.calls.Add(1) {
	case 1:
		return errors.New("burst is 0")
	case 2:
		panic("limiter")
	}
	return nil
}

type brokenBreaker struct{ calls, asked int }

func (b *brokenBreaker) Allow() (func(error), time.Duration) {
	if b.calls++; b.calls == 1 {
		panic("breaker")
	}
	return func(error) { panic("record") }, 0
}

func (b *brokenBreaker) Probing() bool {
	if b.asked++; b.asked == 1 {
		panic("probing")
	}
	return false
}

// A defective Limiter or Breaker causes delays but does not lose messages.
func TestWorkerLosesNoMessageWithBrokenLimiter(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		h := newScript(func(m *reprise.Delivery) error { return nil })
		c := dial()
		start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h, Limiter: &brokenLimiter{}, Breaker: &brokenBreaker{}})
		r.publish("", "work", amqp.Publishing{MessageId: "a"})
		r.publish("", "work", amqp.Publishing{MessageId: "b"})
		h.wait(t, 2)
		if n := c.log.count("paused"); n != 4 {
			t.Errorf("worker paused %d times, want 4", n)
		}
		c.log.wait(t, "breaker failed", 1) // and once more, within the minute in which it is not logged again
	})
}

// A panicking Observer loses events but does not affect messages.
func TestWorkerSurvivesPanickingObserver(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		h := newScript(func(m *reprise.Delivery) error {
			if m.Attempt == 1 {
				return errScripted
			}
			return nil
		})
		c := dial(t, b.URL, func(c *reprise.Config) {
			c.Observer = reprise.ObserverFunc(func(e reprise.Event) { panic(e.Kind) })
		})
		stop := start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy, Policy: quick(3)})
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: queue}); err != nil {
			t.Fatal(err)
		}
		h.wait(t, 2)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := r.depth(queue); n != 0 {
			t.Errorf("queue has %d messages, want 0", n)
		}
		c.log.wait(t, "observer failed", 1)
	})
}

// If a burst arrives while the worker is paused, the worker handles the burst once, after the pause. This also applies if
// requeueing would count as a delivery.
func TestBurstWaitsDuringPause(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		h := newScript(func(m *reprise.Delivery) error {
			if m.MessageID == "pause" && m.Attempt == 1 {
				return reprise.PauseFor(5*time.Second, errScripted)
			}
			return nil
		})
		c := dial(t, b.URL)
		start(t, c, reprise.WorkerConfig{
			Queue: queue, Handler: h, Strategy: strategy,
			Debounce: &reprise.Debounce{Window: 300 * time.Millisecond, Key: func(m *reprise.Delivery) string { return m.Type }},
		})
		for i := range 3 { // without delays between the messages, so that they form one burst
			r.publishLoosely(queue, amqp.Publishing{MessageId: fmt.Sprint("burst", i), Type: "burst"})
		}
		r.publish("", queue, amqp.Publishing{MessageId: "pause"}) // not debounced
		c.log.wait(t, "resumed", 1)
		ids := map[string]int{}
		for _, m := range h.wait(t, 3) {
			ids[m.MessageID]++
		}
		if diff := cmp.Diff(map[string]int{"pause": 2, "burst2": 1}, ids); diff != "" {
			t.Errorf("handled messages: -want +got:\n%s", diff)
		}
	})
}

// A shutdown during a pause stops the worker.
func TestPausedWorkerShutsDown(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		h := newScript(func(m *reprise.Delivery) error { return reprise.PauseFor(time.Hour, nil) })
		c := dial()
		stop := start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h})
		r.publish("", "work", amqp.Publishing{})
		c.log.wait(t, "paused", 1)
		began := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("shutdown during a pause of one hour: got %s, want at most 1s", took)
		}
	})
}
