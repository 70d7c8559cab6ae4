package workertest

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// process is a worker with a separate client. To simulate a killed process, kill cuts the connections of the client, and the
// handler has no further effect.
type process struct {
	proxy *testkit.Proxy
	dead  chan struct{}
	once  sync.Once
}

func (p *process) kill() {
	p.once.Do(func() {
		p.proxy.Refuse()
		p.proxy.Cut()
		close(p.dead)
	})
}

// runProcesses runs processes one after another, until done returns true. A handler kills its process if poison returns true
// for the message. runProcesses returns the number of the process and the message ID for each call of a handler.
func runProcesses(t *testing.T, b testkit.Target, cfg reprise.WorkerConfig, poison func(*reprise.Delivery) bool, done func() bool) (runs []string) {
	t.Helper()
	var mu sync.Mutex
	for n := 1; n <= 40 && !done(); n++ {
		p := &process{proxy: testkit.NewProxy(t, b.URL), dead: make(chan struct{})}
		c := dial(t, p.proxy.URL())
		mine := cfg
		mine.Handler = newScript(func(m *reprise.Delivery) error {
			select {
			case <-p.dead:
				return errScripted // handlers do not run after their process is killed
			default:
			}
			mu.Lock()
			runs = append(runs, fmt.Sprintf("%d:%s", n, m.MessageID))
			mu.Unlock()
			if poison(m) {
				p.kill()
			}
			select {
			case <-p.dead:
				return errScripted // the result has no effect
			default:
				return nil
			}
		})
		stop := start(t, c, mine)
		testkit.Eventually(t, timeout, func() bool {
			select {
			case <-p.dead:
				return true
			default:
				return done()
			}
		})
		_ = stop()
	}
	mu.Lock()
	defer mu.Unlock()
	return runs
}

// The worker parks a message that kills its process each time, but not the messages that were delivered with it.
func TestWorkerParksPoisonMessage(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		// Declare creates the quorum queue, so that the test can publish before the first worker starts.
		c := dial(t, b.URL)
		if err := c.Declare(t.Context(), strategy.Route.Topology(queue)); err != nil {
			t.Fatal(err)
		}
		ids := []string{"a", "b", "poison", "c", "d"}
		for _, id := range ids {
			r.publish("", queue, amqp.Publishing{MessageId: id, Type: "order", Headers: amqp.Table{"k": "v"}})
		}
		cfg := reprise.WorkerConfig{Queue: queue, Strategy: strategy, Concurrency: 3, CrashLimit: 6}
		runs := runProcesses(t, b, cfg,
			func(m *reprise.Delivery) bool { return m.MessageID == "poison" },
			func() bool { return r.depth(queue+".failed") == 1 && r.depth(queue) == 0 })

		parked := r.take(queue + ".failed")
		if parked.MessageId != "poison" || parked.Type != "order" || parked.Headers["k"] != "v" {
			t.Errorf("parked message: got ID %q, type %q, headers %v; want poison, order, and k=v", parked.MessageId, parked.Type, parked.Headers)
		}
		if n, _ := amqpvalue.Integer(parked.Headers[reprise.HeaderCrashes]); n < 6 {
			t.Errorf("parked message: got %s = %v, want at least 6", reprise.HeaderCrashes, parked.Headers[reprise.HeaderCrashes])
		}
		errs, _ := parked.Headers[topology.HeaderErrors].([]any)
		if len(errs) != 1 || !strings.Contains(fmt.Sprint(errs[0]), "ended before the message was settled") {
			t.Errorf("parked message: got errors %v, want ended before the message was settled", errs)
		}
		handled := map[string]bool{}
		for _, run := range runs {
			_, id, _ := strings.Cut(run, ":")
			handled[id] = true
		}
		for _, id := range ids {
			if !handled[id] {
				t.Errorf("message %s must be handled: got runs %v", id, runs)
			}
		}
	})
}
