package reprisetest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/breaker"
	"github.com/reprisemq/reprise/reprisetest"
	"github.com/reprisemq/reprise/topology"
)

// With random settings, handler results and faults, each worker makes progress, and each message is finally
// processed or parked. (Debounce and AckThenPublish permit exceptions.)
func TestWorkersProcessAllMessagesDespiteFaults(t *testing.T) {
	t.Parallel()
	seeds := uint64(40)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
				playAtRandom(t, b, &dice{rng: rand.New(rand.NewPCG(seed, 0))})
			})
		})
	}
}

func playAtRandom(t *testing.T, b *reprisetest.Broker, d *dice) {
	const messages = 60
	done := &ids{seen: map[string]bool{}}
	cfg := d.config(t, done)
	before43 := d.once(2)
	work := func() *reprisetest.Worker {
		return b.WorkWith(t, b.Client(t, &reprise.Config{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := b.DialContext(ctx, network, addr)
			if err == nil && before43 {
				c = olderConn{c}
			}
			return c, err
		}}), cfg)
	}
	workers := []*reprisetest.Worker{work()}
	if d.once(2) {
		workers = append(workers, work())
	}
	for i := range messages {
		b.Publish(t, &reprise.Message{RoutingKey: cfg.Queue, MessageID: fmt.Sprint(i), Body: []byte{byte(d.n(5))}})
		if d.once(3) {
			b.Advance(d.upTo(4 * time.Second))
		}
		switch d.n(25) {
		case 0:
			b.Cut()
		case 1:
			b.LoseAcks(1)
		case 2:
			b.LoseConfirms(1)
		case 3:
			b.LosePublishes(1)
		case 4:
			b.Nack(1)
		case 5:
			b.Refuse(5 * time.Second)
			b.Cut()
		case 6:
			i := d.n(len(workers))
			if err := workers[i].Stop(); err != nil {
				t.Errorf("Stop: %v", err)
			}
			workers[i] = work()
		}
	}
	b.Heal()
	b.Drain(t)
	for _, m := range b.Messages(t, topology.FailedQueue(cfg.Queue)) {
		done.add(m.MessageID)
	}
	// With Debounce, the worker processes only one message of a burst. AckThenPublish may lose messages.
	if n := done.count(); n != messages && cfg.Debounce == nil && cfg.Order == reprise.PublishThenAck {
		t.Errorf("processed or parked messages: got %d, want %d", n, messages)
	}
}

// dice is a random source that is safe for concurrent use.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (d *dice) n(sides int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(sides)
}

func (d *dice) once(in int) bool { return d.n(in) == 0 }
func (d *dice) upTo(t time.Duration) time.Duration {
	return time.Duration(d.n(int(t/time.Millisecond))) * time.Millisecond
}
func (d *dice) from(t, more time.Duration) time.Duration { return t + d.upTo(more) }

// config returns a worker configuration with random values for all time settings.
func (d *dice) config(t *testing.T, done *ids) reprise.WorkerConfig {
	cfg := reprise.WorkerConfig{
		Queue: "orders", Handler: d.handler(done), Concurrency: 1 + d.n(4),
		Policy: reprise.Policy{MaxAttempts: 1 + d.n(6), Backoff: backoff.Exponential{Initial: d.from(time.Millisecond, 5*time.Second), Max: time.Minute}},
	}
	switch d.n(6) {
	case 0:
		cfg.Strategy.Route = topology.Levels{}
	case 1:
		cfg.Strategy.Route = topology.DeadLettering{Delay: 5 * time.Second}
	case 2:
		cfg.Strategy.Route = topology.Requeuing{}
	case 3:
		cfg.CrashLimit = 1 + d.n(60)
		cfg.Topology.Queues = []topology.Queue{{Name: cfg.Queue, Args: topology.Table{"x-queue-type": "classic"}}}
	case 4:
		cfg.Order = reprise.AckThenPublish
	}
	if d.once(2) {
		cfg.Limiter = faultyLimiter{d}
	}
	if d.once(2) {
		var err error
		cfg.Breaker, err = breaker.New(breaker.Config{Failures: 1 + d.n(4), OpenFor: d.from(time.Second, time.Minute), Probes: 1 + d.n(3)})
		if err != nil {
			t.Fatal(err)
		}
	}
	if d.once(3) {
		cfg.Debounce = &reprise.Debounce{Window: d.from(time.Second, 10*time.Second), Key: reprise.ContentKey}
	}
	if d.once(3) {
		cfg.ConsumerTimeout = time.Minute
	}
	if d.once(3) {
		cfg.Middleware = []reprise.Middleware{reprise.Immediate(2, 100*time.Millisecond), reprise.Timeout(d.from(time.Second, 5*time.Second))}
	}
	switch h := cfg.Handler; d.n(4) {
	case 0:
		cfg.Handler = &reprise.Mux{
			By: func(m *reprise.Delivery) string { return fmt.Sprint(m.Body) },
			Routes: []reprise.Route{
				{Pattern: "[0]", Handler: h, Concurrency: 1, Policy: reprise.Policy{MaxAttempts: 1 + d.n(6)}},
				{Pattern: "[1]", Handler: h, Concurrency: 1 + d.n(4)},
				{Pattern: "#", Handler: h},
			},
		}
	case 1:
		cfg.Handler = reprise.Batch(1+d.n(cfg.Concurrency), d.from(time.Millisecond, 3*time.Second), func(ctx context.Context, batch []*reprise.Delivery) []error {
			errs := make([]error, len(batch))
			for i, m := range batch {
				errs[i] = h.Handle(ctx, m)
			}
			return errs
		})
	}
	if d.once(3) {
		cfg.Acked = func(*reprise.Delivery, error) {}
	}
	return cfg
}

func (d *dice) handler(done *ids) reprise.HandlerFunc {
	return func(ctx context.Context, m *reprise.Delivery) error {
		select {
		case <-time.After(d.upTo(4 * time.Second)):
		case <-ctx.Done():
			return ctx.Err()
		}
		switch d.n(14) {
		case 0, 1, 2:
			return errScripted
		case 3:
			return reprise.RetryAfter(d.upTo(20*time.Second), nil)
		case 4:
			return reprise.PauseFor(d.upTo(20*time.Second), nil)
		case 5:
			return reprise.Park(nil)
		case 6:
			panic("at the disco")
		case 7:
			runtime.Goexit()
		}
		done.add(m.MessageID)
		return nil
	}
}

// faultyLimiter delays calls, and fails occasionally.
type faultyLimiter struct{ *dice }

func (l faultyLimiter) Wait(ctx context.Context) error {
	select {
	case <-time.After(l.upTo(3 * time.Second)):
	case <-ctx.Done():
		return ctx.Err()
	}
	if l.once(10) {
		return errors.New("limiter is unavailable")
	}
	return nil
}

// olderConn is a connection on which the broker appears to have version 4.2. Before RabbitMQ 4.3, a requeued
// delivery counts as failed, so workers avoid requeues.
type olderConn struct{ net.Conn }

func (o olderConn) Read(p []byte) (int, error) {
	n, err := o.Conn.Read(p)
	copy(p, bytes.ReplaceAll(p[:n], []byte("4.3."), []byte("4.2.")))
	return n, err
}

// ids contains the IDs of messages that are processed or parked.
type ids struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (i *ids) add(id string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.seen[id] = true
}

func (i *ids) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.seen)
}
