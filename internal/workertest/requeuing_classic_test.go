package workertest

import (
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A classic queue of another program: a message is requeued once, twice, more often, or until its retries are
// exhausted, and is then parked.
func TestRequeuingOnClassicQueues(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		name     string
		route    topology.Requeuing
		attempts int // limit of the policy
		gives    int // number of runs of the handler
	}{
		{"once", topology.Requeuing{Classic: true}, 2, 2},
		{"twice", topology.Requeuing{Classic: true}, 3, 3},
		{"four times", topology.Requeuing{Classic: true}, 5, 5},
		{"unlimited", topology.Requeuing{Classic: true, Unlimited: true}, 0, 40},
	} {
		t.Run(way.name, func(t *testing.T) {
			testkit.Each(t, func(t *testing.T, b testkit.Target) {
				r := newRaw(t, b.URL)
				queue := testkit.Name(t, "work")
				r.deleteQueues(queue, queue+".failed")
				if _, err := r.QueueDeclare(queue, true, false, false, false, nil); err != nil { // as other programs declare it
					t.Fatal(err)
				}
				runs := 0
				h := newScript(func(m *reprise.Message) error {
					if runs++; way.route.Unlimited && runs == way.gives {
						return reprise.Park(errScripted)
					}
					return fmt.Errorf("error %d", m.Attempt)
				})
				start(t, dial(t, b.URL), reprise.WorkerConfig{
					Queue: queue, Handler: h, Strategy: topology.Strategy{Route: way.route}, Policy: reprise.Policy{MaxAttempts: way.attempts},
				})
				r.publish("", queue, amqp.Publishing{MessageId: "id", Type: "order", Body: []byte("17")})
				d := r.take(queue + ".failed")
				if n := h.count(); n != way.gives || d.MessageId != "id" || d.Type != "order" || string(d.Body) != "17" {
					t.Errorf("parked after %d runs, want %d: %+v", n, way.gives, d)
				}
				if n, _ := amqpvalue.Integer(d.Headers[topology.HeaderAttempts]); !way.route.Unlimited && int(n) != way.gives {
					t.Errorf("%d attempts are written on it, want %d", n, way.gives)
				}
				if n := r.depth(queue); n != 0 {
					t.Errorf("%d messages left", n)
				}
			})
		})
	}
}

func TestRequeuingOnClassicQueuesValidates(t *testing.T) {
	t.Parallel()
	config := reprise.WorkerConfig{Queue: "q", Handler: newScript(nil), Strategy: topology.Strategy{Route: topology.Requeuing{Classic: true}}}
	if err := config.Validate(); err != nil {
		t.Error(err)
	}
	config.CrashLimit = 3
	if config.Validate() == nil {
		t.Error("a crash cannot be told from a message that was put back")
	}
	config.CrashLimit, config.Strategy.Route = 0, topology.Requeuing{Unlimited: true}
	if config.Validate() == nil {
		t.Error("a quorum queue has a limit")
	}
}
