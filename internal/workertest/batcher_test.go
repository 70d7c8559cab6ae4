package workertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// batches records the bodies of the messages of each batch.
type batches struct {
	mu   sync.Mutex
	seen [][]string
}

func (b *batches) add(batch []*reprise.Delivery) {
	var bodies []string
	for _, m := range batch {
		bodies = append(bodies, string(m.Body))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, bodies)
}

func (b *batches) all() [][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.seen)
}

// Each message of a batch is settled by its own error.
func TestBatchSettlesEachMessage(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		for _, body := range []string{"done", "retry", "park", "later"} { // before the worker, so that one batch has all
			if body == "done" {
				c := dial(t, b.URL)
				if err := c.Declare(t.Context(), topology.Buckets{}.Topology(queue)); err != nil {
					t.Fatal(err)
				}
			}
			r.publish("", queue, amqp.Publishing{MessageId: body, Body: []byte(body)})
		}
		var got batches
		events := &events{}
		c := dial(t, b.URL, func(c *reprise.Config) { c.Observer = events })
		stop := start(t, c, reprise.WorkerConfig{
			Queue: queue, Strategy: strategy, Policy: quick(3),
			Handler: reprise.Batch(4, time.Second, func(_ context.Context, batch []*reprise.Delivery) []error {
				got.add(batch)
				errs := make([]error, len(batch))
				for i, m := range batch {
					switch {
					case m.MessageID == "park":
						errs[i] = reprise.Park(errScripted)
					case m.MessageID == "retry" && m.Attempt == 1:
						errs[i] = errScripted
					case m.MessageID == "later" && m.Attempt == 1:
						errs[i] = reprise.RetryAfter(time.Millisecond, errScripted)
					}
				}
				return errs
			}),
		})
		if d := r.take(topology.FailedQueue(queue)); d.MessageId != "park" {
			t.Errorf("parked message: got %q, want park", d.MessageId)
		}
		testkit.Eventually(t, timeout, func() error {
			if n := len(events.of(reprise.EventDone)); n != 3 {
				return fmt.Errorf("%d messages are processed, want 3", n)
			}
			return nil
		})
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		all := got.all()
		if want := []string{"done", "retry", "park", "later"}; !cmp.Equal(all[0], want) {
			t.Errorf("first batch: got %q, want %q", all[0], want)
		}
		attempts := 0
		for _, batch := range all {
			attempts += len(batch)
		}
		if n := r.depth(queue); n != 0 || attempts != 6 {
			t.Errorf("got %d attempts and %d messages in the queue, want 6 and 0", attempts, n)
		}
	})
}

// A batch starts when it is full, when its first message has waited, or when the worker drains.
func TestBatchStarts(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		var got batches
		clock := newClock()
		stop := start(t, dial(), reprise.WorkerConfig{
			Queue: "work",
			Handler: reprise.Batch(3, 10*time.Second, func(_ context.Context, batch []*reprise.Delivery) []error {
				clock.tick()
				got.add(batch)
				return nil
			}),
		})
		for _, body := range []string{"1", "2", "3", "4"} {
			r.publish("", "work", amqp.Publishing{Body: []byte(body)})
		}
		time.Sleep(time.Minute)
		r.publish("", "work", amqp.Publishing{Body: []byte("5")})
		time.Sleep(5 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if want := [][]string{{"1", "2", "3"}, {"4"}, {"5"}}; !cmp.Equal(got.all(), want) {
			t.Fatalf("got the batches %q, want %q", got.all(), want)
		}
		for i, want := range []time.Duration{0, 10 * time.Second, 65 * time.Second} {
			if at := clock.ticks()[i]; at < want || at > want+time.Second {
				t.Errorf("start of batch %d: got %s, want %s to %s", i+1, at, want, want+time.Second)
			}
		}
		if n := r.depth("work"); n != 0 {
			t.Errorf("queue has %d messages, want 0", n)
		}
	})
}

// If the result of a batch cannot be assigned to its messages, all of them fail.
func TestFailedBatchFailsAllMessages(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		f    func() []error
		text string
	}{
		"too few":  {func() []error { return []error{} }, "got 0 errors for 3 messages"},
		"too many": {func() []error { return make([]error, 4) }, "got 4 errors for 3 messages"},
		"panic":    {func() []error { panic("at the disco") }, "panic: at the disco"},
		"exit":     {func() []error { runtime.Goexit(); return nil }, "runtime.Goexit"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
				events := &events{}
				calls := 0
				start(t, dial(func(c *reprise.Config) { c.Observer = events }), reprise.WorkerConfig{
					Queue: "work", Policy: reprise.Policy{Backoff: backoff.Fixed(time.Minute)},
					Handler: reprise.Batch(3, time.Second, func(context.Context, []*reprise.Delivery) []error {
						if calls++; calls == 1 {
							return tc.f()
						}
						return nil
					}),
				})
				for range 3 {
					r.publish("", "work", amqp.Publishing{})
				}
				time.Sleep(time.Hour)
				retried := events.of(reprise.EventRetried)
				if done := len(events.of(reprise.EventDone)); len(retried) != 3 || done != 3 || calls != 2 {
					t.Fatalf("got %d retries and %d processed messages with %d calls, want 3, 3 and 2", len(retried), done, calls)
				}
				for _, e := range retried {
					if !strings.Contains(e.Err.Error(), tc.text) {
						t.Errorf("got %v, want %q", e.Err, tc.text)
					}
				}
			})
		})
	}
}

// A route of a Mux can collect batches.
func TestBatchInMux(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		var got batches
		single := newScript(func(*reprise.Delivery) error { return nil })
		start(t, dial(), reprise.WorkerConfig{
			Queue: "work", Concurrency: 6,
			Handler: &reprise.Mux{Routes: []reprise.Route{
				{Pattern: "many", Concurrency: 5, Handler: reprise.Batch(5, time.Minute, func(_ context.Context, batch []*reprise.Delivery) []error {
					got.add(batch)
					return nil
				})},
				{Pattern: "one", Handler: single},
			}},
		})
		for range 10 {
			r.publish("", "work", amqp.Publishing{Type: "many", Body: []byte("x")})
			r.publish("", "work", amqp.Publishing{Type: "one"})
		}
		time.Sleep(time.Second)
		if want := [][]string{{"x", "x", "x", "x", "x"}, {"x", "x", "x", "x", "x"}}; !cmp.Equal(got.all(), want) || single.count() != 10 {
			t.Errorf("got the batches %q and %d single messages, want %q and 10", got.all(), single.count(), want)
		}
	})
}

func TestBatchValidation(t *testing.T) {
	t.Parallel()
	f := func(context.Context, []*reprise.Delivery) []error { return nil }
	mux := func(h reprise.Handler, concurrency int) reprise.Handler {
		return &reprise.Mux{Routes: []reprise.Route{{Pattern: "a", Handler: h, Concurrency: concurrency}}}
	}
	for want, cfg := range map[string]reprise.WorkerConfig{
		"": {Handler: mux(reprise.Batch(100, time.Second, f), 100)},
		"Concurrency must be at least 10, the size of the Batch: got 9 (": {Handler: mux(reprise.Batch(10, time.Second, f), 9)},
		"Concurrency must be at least 10, the size of the Batch: got 9":   {Handler: mux(reprise.Batch(10, time.Second, f), 0), Concurrency: 9},
		"Concurrency must be at least 10, the size of the Batch: got 1":   {Handler: reprise.Batch(10, time.Second, f), Concurrency: 1},
		"size of a Batch must be positive: got 0":                         {Handler: reprise.Batch(0, time.Second, f)},
		"must be positive and at most 12m0s":                              {Handler: reprise.Batch(10, time.Hour, f)},
		"time of a Batch must be positive":                                {Handler: mux(reprise.Batch(10, 0, f), 0)},
		"Handler must not be nil":                                         {Handler: reprise.Batch(10, time.Second, nil)},
		"reprise: the size of a Batch must be at most 65535: got 65536":   {Handler: reprise.Batch(65536, time.Second, f)},
		"must be at most 32 with AckThenPublish":                          {Handler: reprise.Batch(33, time.Second, f), Order: reprise.AckThenPublish},
	} {
		cfg.Queue = "q"
		err := cfg.Validate()
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// Without a worker, Batch collects the messages of concurrent calls.
func TestBatchWithoutWorker(t *testing.T) {
	t.Parallel()
	h := reprise.Batch(3, time.Hour, func(_ context.Context, batch []*reprise.Delivery) []error {
		errs := make([]error, len(batch))
		for i, m := range batch {
			if m.MessageID == "bad" {
				errs[i] = errScripted
			}
		}
		return errs
	})
	var calls sync.WaitGroup
	for _, id := range []string{"good", "bad", "better"} {
		calls.Go(func() {
			err := h.Handle(t.Context(), &reprise.Delivery{Message: reprise.Message{MessageID: id}})
			if (err != nil) != (id == "bad") || err != nil && !errors.Is(err, errScripted) {
				t.Errorf("message %q: got %v", id, err)
			}
		})
	}
	calls.Wait()
}

// In random lives of workers with random sizes, results and drains, each message is settled by its own
// result. It is processed or parked exactly once, because no acknowledgement is lost.
func TestBatchesInRandomLives(t *testing.T) {
	t.Parallel()
	lives := uint64(16)
	if testing.Short() {
		lives = 10
	}
	for seed := range lives {
		bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
			life := &batchLife{rng: rand.New(rand.NewPCG(seed, 1)), done: map[string]int{}}
			c := dial()
			cfg := life.config(t)
			stop := start(t, c, cfg)
			const messages = 80
			for i := range messages {
				r.publish("", "work", amqp.Publishing{MessageId: fmt.Sprint(i), Body: fmt.Append(nil, i)})
				time.Sleep(time.Duration(life.n(300)) * time.Millisecond)
				if life.n(25) == 0 {
					if err := stop(); err != nil {
						t.Fatal(err)
					}
					if life.n(2) == 0 {
						c = dial()
					}
					stop = start(t, c, cfg)
				}
			}
			time.Sleep(2 * time.Hour)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			life.mu.Lock()
			defer life.mu.Unlock()
			for range r.depth("work.failed") {
				life.done[r.take("work.failed").MessageId]++
			}
			for i := range messages {
				if n := life.done[fmt.Sprint(i)]; n != 1 {
					t.Errorf("life %d: message %d was processed or parked %d times, want once", seed, i, n)
				}
			}
			if n := r.depth("work"); n != 0 {
				t.Errorf("life %d: queue has %d messages, want 0", seed, n)
			}
		})
	}
}

type batchLife struct {
	mu      sync.Mutex
	rng     *rand.Rand
	done    map[string]int // number of times that each message was processed or parked
	running int
}

func (l *batchLife) n(sides int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rng.IntN(sides)
}

func (l *batchLife) config(t *testing.T) reprise.WorkerConfig {
	size := 1 + l.n(12)
	cfg := reprise.WorkerConfig{
		Queue: "work", Concurrency: size * (1 + l.n(2)), Policy: reprise.Policy{MaxAttempts: 1 + l.n(4), Backoff: backoff.Fixed(time.Second)},
		Order: reprise.Order(l.n(2)), CrashLimit: -1,
	}
	if l.n(3) == 0 {
		cfg.Middleware = []reprise.Middleware{reprise.Timeout(time.Minute)}
	}
	wait := time.Duration(1+l.n(2000)) * time.Millisecond
	cfg.Handler = reprise.Batch(size, wait, func(_ context.Context, batch []*reprise.Delivery) []error {
		l.mu.Lock()
		if l.running++; l.running > cfg.Concurrency/size {
			t.Errorf("%d batches run, want at most %d", l.running, cfg.Concurrency/size)
		}
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			l.running--
			l.mu.Unlock()
		}()
		if len(batch) == 0 || len(batch) > size {
			t.Errorf("batch has %d messages, want 1 to %d", len(batch), size)
		}
		time.Sleep(time.Duration(l.n(3000)) * time.Millisecond)
		return l.results(t, cfg.Policy.MaxAttempts, batch)
	})
	return cfg
}

// results returns random errors, and records the messages without an error.
func (l *batchLife) results(t *testing.T, most int, batch []*reprise.Delivery) []error {
	switch l.n(20) {
	case 0:
		panic("at the disco")
	case 1:
		return make([]error, len(batch)+1)
	}
	errs := make([]error, len(batch))
	for i, m := range batch {
		if string(m.Body) != m.MessageID || m.Attempt > most {
			t.Errorf("message %s has the body %q and the attempt %d of %d", m.MessageID, m.Body, m.Attempt, most)
		}
		switch l.n(5) {
		case 0:
			errs[i] = errScripted
		case 1:
			errs[i] = reprise.RetryAfter(time.Duration(l.n(5000))*time.Millisecond, nil)
		case 2:
			errs[i] = reprise.Park(errScripted)
		default:
			l.mu.Lock()
			l.done[m.MessageID]++
			l.mu.Unlock()
		}
	}
	return errs
}
