package failed

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/reprisetest"
	"github.com/reprisemq/reprise/topology"
)

// away is an archive that one process cannot reach at times, but others can.
type away struct {
	*memory
	is atomic.Bool
}

func (a *away) err() error {
	if a.is.Load() {
		return errDown
	}
	return nil
}

func (a *away) ingest(ctx context.Context, arrivals []delivered) ([]ID, error) {
	if err := a.err(); err != nil {
		return nil, err
	}
	return a.memory.ingest(ctx, arrivals)
}

func (a *away) markSettled(ctx context.Context, ids []ID) error {
	if err := a.err(); err != nil {
		return err
	}
	return a.memory.markSettled(ctx, ids)
}

func (a *away) claimQueue(ctx context.Context, queue, owner string, lease time.Duration) (bool, error) {
	if err := a.err(); err != nil {
		return false, err
	}
	return a.memory.claimQueue(ctx, queue, owner, lease)
}

func (a *away) renewQueue(ctx context.Context, queue, owner string, lease time.Duration) (bool, error) {
	if err := a.err(); err != nil {
		return false, err
	}
	return a.memory.renewQueue(ctx, queue, owner, lease)
}

func (a *away) releaseQueue(ctx context.Context, queue, owner string) error {
	if err := a.err(); err != nil {
		return err
	}
	return a.memory.releaseQueue(ctx, queue, owner)
}

// If two processes archive one queue, the first process has the lease. The second process takes over after the first
// has exited or has not reached the archive for the lease. Each message is archived once, even if connections fail,
// or if the first process reclaims the lease before it notices the loss.
func TestTwoThatEmptyOneQueue(t *testing.T) {
	for name, happens := range map[string]func(t *testing.T, b *reprisetest.Broker, first *away, endFirst, endSecond func()){
		"it ends":    func(_ *testing.T, _ *reprisetest.Broker, _ *away, endFirst, _ func()) { endFirst() },
		"it goes on": func(*testing.T, *reprisetest.Broker, *away, func(), func()) {},
		"it loses its place": func(_ *testing.T, _ *reprisetest.Broker, first *away, _, _ func()) {
			first.is.Store(true)
			time.Sleep(time.Minute)
		},
		"and its connection": func(_ *testing.T, b *reprisetest.Broker, first *away, _, _ func()) {
			first.is.Store(true)
			time.Sleep(time.Minute)
			b.Cut()
			time.Sleep(time.Minute)
		},
		"its connection, and then its place": func(_ *testing.T, b *reprisetest.Broker, first *away, _, _ func()) {
			first.is.Store(true)
			b.Cut()
			time.Sleep(time.Minute)
		},
		"and its connection, and gets its place back": func(_ *testing.T, b *reprisetest.Broker, first *away, _, endSecond func()) {
			first.is.Store(true)
			time.Sleep(time.Minute)
			b.Cut()
			time.Sleep(time.Minute)
			endSecond()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
				b.Declare(t, topology.Buckets{}.Topology("orders"))
				archive := newMemory()
				start := func(a keeper) (end func()) {
					in, err := newIngest(b.Client(t, nil), a, IngestConfig{Queues: []string{"orders.failed"}, Batch: 20})
					must(t, err)
					ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
					ended := make(chan error, 1)
					go func() { ended <- in.Run(ctx) }()
					synctest.Wait()
					return func() {
						stop()
						must(t, <-ended)
					}
				}
				first := &away{memory: archive}
				endFirst := start(first)
				endSecond := start(archive)
				publish := func(from, to int) {
					for i := from; i < to; i++ {
						b.Publish(t, &reprise.Message{RoutingKey: "orders.failed", Body: fmt.Append(nil, i)})
					}
				}
				publish(0, 30)
				synctest.Wait()
				first.is.Store(name != "it ends" && name != "it goes on")
				publish(30, 60)
				synctest.Wait()
				endFirst, endSecond = sync.OnceFunc(endFirst), sync.OnceFunc(endSecond)
				happens(t, b, first, endFirst, endSecond)
				publish(60, 90)
				first.is.Store(false)
				time.Sleep(time.Minute)
				b.Drain(t)
				synctest.Wait()
				seen := map[string]int{}
				for _, body := range archive.bodies() {
					seen[body]++
				}
				if len(seen) != 90 || len(archive.bodies()) != 90 || b.Depth(t, "orders.failed") != 0 {
					t.Errorf("%d messages, %d different, %d in the queue", len(archive.bodies()), len(seen), b.Depth(t, "orders.failed"))
				}
				endFirst()
				endSecond()
			})
		})
	}
}

// An Ingest that waits for the lease is healthy again as soon as the archive is.
func TestOneThatWaitsRecovers(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		archive := newMemory()
		second := &away{memory: archive}
		var waiting *Ingest
		for _, a := range []keeper{archive, second} {
			in, err := newIngest(b.Client(t, nil), a, IngestConfig{Queues: []string{"orders.failed"}})
			must(t, err)
			ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
			ended := make(chan error, 1)
			go func() { ended <- in.Run(ctx) }()
			t.Cleanup(func() {
				stop()
				must(t, <-ended)
			})
			synctest.Wait() // the first process has the lease
			waiting = in
		}
		must(t, waiting.Healthy())
		second.is.Store(true)
		time.Sleep(time.Minute)
		if waiting.Healthy() == nil {
			t.Error("healthy without an archive")
		}
		second.is.Store(false)
		time.Sleep(time.Minute)
		if err := waiting.Healthy(); err != nil {
			t.Errorf("a minute later: %v", err)
		}
	})
}

// After failed messages were requeued because of a lost connection, Healthy no longer reports their error.
func TestAnIngestWithoutMessagesRecovers(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		b.Declare(t, topology.Buckets{}.Topology("orders"))
		archive := &away{memory: newMemory()}
		in, err := newIngest(b.Client(t, nil), archive, IngestConfig{Queues: []string{"orders.failed"}})
		must(t, err)
		ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		ended := make(chan error, 1)
		go func() { ended <- in.Run(ctx) }()
		t.Cleanup(func() {
			stop()
			must(t, <-ended)
		})
		synctest.Wait() // the consumer has started
		archive.is.Store(true)
		b.Publish(t, &reprise.Message{RoutingKey: "orders.failed"})
		time.Sleep(time.Minute)
		if in.Healthy() == nil {
			t.Error("healthy without an archive")
		}
		b.Refuse(time.Hour)
		b.Cut()
		archive.is.Store(false)
		time.Sleep(time.Minute)
		if err := in.Healthy(); err != nil {
			t.Errorf("a minute later: %v", err)
		}
		b.Refuse(-1)
		b.Drain(t)
		if n := len(archive.bodies()); n != 1 {
			t.Errorf("%d messages in the archive", n)
		}
	})
}
