package ingest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/reprisetest"
	"github.com/reprisemq/reprise/topology"
)

// unreachable is an archive that the test can make unreachable.
type unreachable struct {
	*archivetest.Memory
	down atomic.Bool
}

func (a *unreachable) err() error {
	if a.down.Load() {
		return archivetest.ErrDown
	}
	return nil
}

func (a *unreachable) Ingest(ctx context.Context, arrivals []failed.Arrived) ([]failed.ID, error) {
	if err := a.err(); err != nil {
		return nil, err
	}
	return a.Memory.AddDelivered(ctx, arrivals)
}

func (a *unreachable) MarkSettled(ctx context.Context, ids []failed.ID) error {
	if err := a.err(); err != nil {
		return err
	}
	return a.Memory.MarkSettled(ctx, ids)
}

func (a *unreachable) ClaimQueue(ctx context.Context, queue, owner string, lease time.Duration) (bool, error) {
	if err := a.err(); err != nil {
		return false, err
	}
	return a.Memory.ClaimQueue(ctx, queue, owner, lease)
}

func (a *unreachable) RenewQueue(ctx context.Context, queue, owner string, lease time.Duration) (bool, error) {
	if err := a.err(); err != nil {
		return false, err
	}
	return a.Memory.RenewQueue(ctx, queue, owner, lease)
}

func (a *unreachable) ReleaseQueue(ctx context.Context, queue, owner string) error {
	if err := a.err(); err != nil {
		return err
	}
	return a.Memory.ReleaseQueue(ctx, queue, owner)
}

// If two processes archive one queue, the first process has the lease. The second process takes over after the first
// has exited, or has not reached the archive for the duration of the lease. Each message is archived once, even if
// connections fail, or if the first process reclaims the lease before it notices the loss.
func TestTwoIngestsArchiveEachMessageOnce(t *testing.T) {
	for name, happens := range map[string]func(t *testing.T, b *reprisetest.Broker, first *unreachable, endFirst, endSecond func()){
		"first ends":      func(_ *testing.T, _ *reprisetest.Broker, _ *unreachable, endFirst, _ func()) { endFirst() },
		"first continues": func(*testing.T, *reprisetest.Broker, *unreachable, func(), func()) {},
		"first loses the lease": func(_ *testing.T, _ *reprisetest.Broker, first *unreachable, _, _ func()) {
			first.down.Store(true)
			time.Sleep(time.Minute)
		},
		"first loses the lease and then the connection": func(_ *testing.T, b *reprisetest.Broker, first *unreachable, _, _ func()) {
			first.down.Store(true)
			time.Sleep(time.Minute)
			b.Cut()
			time.Sleep(time.Minute)
		},
		"first loses the connection and then the lease": func(_ *testing.T, b *reprisetest.Broker, first *unreachable, _, _ func()) {
			first.down.Store(true)
			b.Cut()
			time.Sleep(time.Minute)
		},
		"first loses and reclaims the lease": func(_ *testing.T, b *reprisetest.Broker, first *unreachable, _, endSecond func()) {
			first.down.Store(true)
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
				archive := archivetest.NewMemory()
				start := func(a Store) (end func()) {
					in, err := NewFor(b.Client(t, nil), a, Config{Queues: []string{"orders.failed"}, Batch: 20})
					archivetest.Must(t, err)
					ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
					ended := make(chan error, 1)
					go func() { ended <- in.Run(ctx) }()
					synctest.Wait()
					return func() {
						stop()
						archivetest.Must(t, <-ended)
					}
				}
				first := &unreachable{Memory: archive}
				endFirst := start(first)
				endSecond := start(archive)
				publish := func(from, to int) {
					for i := from; i < to; i++ {
						b.Publish(t, &reprise.Message{RoutingKey: "orders.failed", Body: fmt.Append(nil, i)})
					}
				}
				publish(0, 30)
				synctest.Wait()
				first.down.Store(name != "first ends" && name != "first continues")
				publish(30, 60)
				synctest.Wait()
				endFirst, endSecond = sync.OnceFunc(endFirst), sync.OnceFunc(endSecond)
				happens(t, b, first, endFirst, endSecond)
				publish(60, 90)
				first.down.Store(false)
				time.Sleep(time.Minute)
				b.Drain(t)
				synctest.Wait()
				seen := map[string]int{}
				for _, body := range archive.Bodies() {
					seen[body]++
				}
				if len(seen) != 90 || len(archive.Bodies()) != 90 || b.Depth(t, "orders.failed") != 0 {
					t.Errorf("got %d messages, %d different, %d in the queue; want 90, 90, 0", len(archive.Bodies()), len(seen), b.Depth(t, "orders.failed"))
				}
				endFirst()
				endSecond()
			})
		})
	}
}

// An Ingest that waits for the lease becomes healthy again when the archive is available.
func TestWaitingIngestRecovers(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		archive := archivetest.NewMemory()
		second := &unreachable{Memory: archive}
		var waiting *Ingest
		for _, a := range []Store{archive, second} {
			in, err := NewFor(b.Client(t, nil), a, Config{Queues: []string{"orders.failed"}})
			archivetest.Must(t, err)
			ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
			ended := make(chan error, 1)
			go func() { ended <- in.Run(ctx) }()
			t.Cleanup(func() {
				stop()
				archivetest.Must(t, <-ended)
			})
			synctest.Wait() // the first process has the lease
			waiting = in
		}
		archivetest.Must(t, waiting.Healthy())
		second.down.Store(true)
		time.Sleep(time.Minute)
		if waiting.Healthy() == nil {
			t.Error("Ingest is healthy without an archive")
		}
		second.down.Store(false)
		time.Sleep(time.Minute)
		if err := waiting.Healthy(); err != nil {
			t.Errorf("Ingest is not healthy a minute later: %v", err)
		}
	})
}

// If a lost connection requeues the messages that could not be stored, Healthy stops reporting their error when the
// archive is available again.
func TestIdleIngestRecovers(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		b.Declare(t, topology.Buckets{}.Topology("orders"))
		archive := &unreachable{Memory: archivetest.NewMemory()}
		in, err := NewFor(b.Client(t, nil), archive, Config{Queues: []string{"orders.failed"}})
		archivetest.Must(t, err)
		ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		ended := make(chan error, 1)
		go func() { ended <- in.Run(ctx) }()
		t.Cleanup(func() {
			stop()
			archivetest.Must(t, <-ended)
		})
		synctest.Wait() // the consumer has started
		archive.down.Store(true)
		b.Publish(t, &reprise.Message{RoutingKey: "orders.failed"})
		time.Sleep(time.Minute)
		if in.Healthy() == nil {
			t.Error("Ingest is healthy without an archive")
		}
		b.Refuse(time.Hour)
		b.Cut()
		archive.down.Store(false)
		time.Sleep(time.Minute)
		if err := in.Healthy(); err != nil {
			t.Errorf("Ingest is not healthy a minute later: %v", err)
		}
		b.Refuse(-1)
		b.Drain(t)
		if n := len(archive.Bodies()); n != 1 {
			t.Errorf("got %d archived messages, want 1", n)
		}
	})
}
