package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/migrate"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A message whose expiration ends in the holding queue reaches the dead-letter exchange.
func TestExpirationInHoldingQueue(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, f *fixture) {
				f.settle = time.Millisecond
				f.queue(t, "wait", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "back"})
				f.queue(t, "back", nil)
				f.bound(t, "waits", "wait", "")
				if err := f.ch.Publish("waits", "", true, false, amqp.Publishing{Body: []byte("a"), Expiration: "1000"}); err != nil {
					t.Fatal(err)
				}
				var once sync.Once
				f.onStep = func(text string) {
					if text == "declare wait" {
						once.Do(func() {
							testkit.Eventually(t, time.Minute, func() error {
								q, err := f.ch.QueueDeclarePassive("wait.migrating", true, false, false, false, nil)
								if err == nil && q.Messages > 0 {
									err = errors.New("not expired yet")
								}
								return err
							})
						})
					}
				}
				change := migrate.Change{Queue: "wait", Set: topology.Table{"x-queue-type": kind, "x-max-length": int64(100)}, Delete: true}
				if _, err := f.migrate(t.Context(), t, f.url, f.api, change); err != nil {
					t.Fatal(err)
				}
				conserved(t, []string{"a"}, append(f.bodies(t, "back"), f.bodies(t, "wait")...), 0)
			})
		})
	}
}

// design is a published design with one type of queue.
type design struct {
	queue    string
	exchange string // to which programs publish
	key      string
	topology topology.Topology
	strategy topology.Strategy
}

var designs = map[string]func(kind string) design{
	"workretry": func(kind string) design {
		w := preset.WorkRetry{QueueType: kind, RetryDelay: 2 * time.Second}
		return design{w.Queue(), preset.WorkRetryWorkExchange, "", w.Topology(), w.Strategy()}
	},
	"coverart": func(kind string) design {
		c := preset.CoverArt{QueueType: kind, RetryDelay: 2 * time.Second}
		return design{preset.CoverArtIndexQueue, preset.CoverArtExchange, "index", c.Topology(), c.Strategy()}
	},
	"staking": func(kind string) design {
		s := preset.Staking{QueueType: kind, RetryDelay: 2 * time.Second, Queues: []string{preset.StakingActiveQueue}}
		return design{preset.StakingActiveQueue, "", preset.StakingActiveQueue, s.Topology(), s.Strategy()}
	},
	"cdnpurge": func(kind string) design {
		w := preset.CDNPurge{QueueType: kind, First: 2 * time.Second, Jitter: -1}
		return design{preset.CDNPurgeQueue, preset.CDNPurgeExchange, "url", w.Topology(), w.Strategy()}
	},
}

// work runs a worker of the design until stop is called, or it ends.
func (d design) work(t *testing.T, f *fixture, handle reprise.HandlerFunc) (stop func()) {
	t.Helper()
	client, err := reprise.Dial(t.Context(), f.url, &reprise.Config{Name: "worker"})
	if err != nil {
		t.Fatal(err)
	}
	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{Queue: d.queue, Strategy: d.strategy, Handler: handle})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("worker: %v", err)
		}
		client.Close(context.Background())
	}
}

// All queues of a published design can be migrated to quorum queues while messages wait for their retry, and a worker of the design
// then processes all messages.
func TestDesigns(t *testing.T) {
	t.Parallel()
	for name, of := range designs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, f *fixture) {
				f.settle = time.Millisecond
				old, next := of("classic"), of("quorum")
				const n = 20
				var mu sync.Mutex
				failed, processed := map[string]int{}, map[string]int{}
				stop := old.work(t, f, func(_ context.Context, m *reprise.Delivery) error {
					mu.Lock()
					defer mu.Unlock()
					failed[string(m.Body)]++
					return errors.New("not yet")
				})
				testkit.Eventually(t, time.Minute, func() error { // all objects are declared
					q, err := f.open(t).QueueDeclarePassive(old.queue, true, false, false, false, nil)
					if err == nil && q.Consumers == 0 {
						err = errors.New("no consumer")
					}
					return err
				})
				f.ch = f.open(t)
				f.publish(t, old.exchange, old.key, "m", n)
				testkit.Eventually(t, time.Minute, func() error {
					mu.Lock()
					defer mu.Unlock()
					if len(failed) < n {
						return fmt.Errorf("%d messages have failed", len(failed))
					}
					return nil
				})
				stop()
				for _, q := range next.topology.Queues {
					change := migrate.Change{Queue: q.Name, Set: q.Args, Disconnect: true}
					for _, was := range old.topology.Queues {
						for k := range was.Args {
							if _, found := q.Args[k]; was.Name == q.Name && !found {
								change.Unset = append(change.Unset, k)
							}
						}
					}
					if _, err := f.migrate(t.Context(), t, f.url, f.api, change); err != nil {
						t.Fatalf("%s: %v\n%s", q.Name, err, strings.Join(f.steps, "\n"))
					}
				}
				f.ch = f.open(t)
				stop = next.work(t, f, func(_ context.Context, m *reprise.Delivery) error {
					mu.Lock()
					defer mu.Unlock()
					processed[string(m.Body)]++
					return nil
				})
				f.publish(t, next.exchange, next.key, "later", 1)
				testkit.Eventually(t, time.Minute, func() error {
					mu.Lock()
					defer mu.Unlock()
					if len(processed) < n+1 {
						return fmt.Errorf("%d messages are processed", len(processed))
					}
					return nil
				})
				stop()
			})
		})
	}
}
