package workertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/broker"
)

// permits is a Limiter that limits the number of running attempts.
type permits struct {
	free chan struct{}

	mu     sync.Mutex
	issued int
}

func (p *permits) Wait(ctx context.Context) error {
	select {
	case p.free <- struct{}{}:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.issued++
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Minute):
		return errors.New("no permit for a minute")
	}
}

func (p *permits) Done() { <-p.free }

// A worker returns each permit exactly once, also if the attempt fails, panics or does not start, and when the worker stops. The
// test runs in virtual time.
func TestWorkerReturnsPermits(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, err := broker.New(broker.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer b.Shutdown(context.Background())
				client, err := reprise.Dial(t.Context(), "amqp://guest:guest@broker", &reprise.Config{Dial: b.DialContext})
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close(context.Background())
				random := rand.New(rand.NewPCG(seed, 1))
				p := &permits{free: make(chan struct{}, 1+seed%3)}
				var mu sync.Mutex
				running, most := 0, 0
				handler := func(context.Context, *reprise.Delivery) error {
					mu.Lock()
					running++
					most = max(most, running)
					act := random.IntN(6)
					mu.Unlock()
					time.Sleep(time.Duration(act) * 20 * time.Second)
					mu.Lock()
					running--
					mu.Unlock()
					switch act {
					case 0:
						panic("panic")
					case 1:
						return reprise.PauseFor(time.Minute, errScripted)
					case 2:
						return errScripted
					}
					return nil
				}
				var wg sync.WaitGroup
				work := func() {
					w, err := reprise.NewWorker(client, reprise.WorkerConfig{
						Queue: "orders", Concurrency: 4, Limiter: p, Handler: reprise.HandlerFunc(handler),
						Policy: reprise.Policy{MaxAttempts: 3, Backoff: backoff.Fixed(time.Second)}, DrainTimeout: time.Second,
						ConsumerTimeout: []time.Duration{time.Minute, time.Hour}[seed/2%2], // a message can return to the queue before its permit arrives
					})
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					stop := time.Duration(random.IntN(600)) * time.Second
					mu.Unlock()
					wg.Go(func() { _ = w.Run(context.Background()) })
					time.Sleep(stop)
					_ = w.Shutdown(context.Background())
				}
				for range 3 {
					for range 1 + seed%2 {
						wg.Go(work)
					}
					synctest.Wait()
					for range 20 {
						if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: "orders"}); err != nil {
							t.Fatal(err)
						}
					}
					wg.Wait()
					time.Sleep(5 * time.Minute) // handlers that ignored their context
					synctest.Wait()
					if n := len(p.free); n != 0 {
						t.Fatalf("%d of %d permits were not returned", n, p.issued)
					}
				}
				if most > cap(p.free) {
					t.Errorf("%d attempts ran at the same time, want at most %d", most, cap(p.free))
				}
			})
		})
	}
}
