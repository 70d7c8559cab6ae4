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

// On a classic queue that another program declared, a worker can retry a message any number of times. If the retries are
// exhausted, the worker parks the message.
func TestRequeuingOnClassicQueues(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		name     string
		route    topology.Requeuing
		attempts int // limit of the policy
		runs     int // number of runs of the handler
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
				h := newScript(func(m *reprise.Delivery) error {
					if runs++; way.route.Unlimited && runs == way.runs {
						return reprise.Park(errScripted)
					}
					return fmt.Errorf("error %d", m.Attempt)
				})
				start(t, dial(t, b.URL), reprise.WorkerConfig{
					Queue: queue, Handler: h, Strategy: topology.Strategy{Route: way.route}, Policy: reprise.Policy{MaxAttempts: way.attempts},
				})
				r.publish("", queue, amqp.Publishing{MessageId: "id", Type: "order", Body: []byte("17")})
				d := r.take(queue + ".failed")
				if n := h.count(); n != way.runs || d.MessageId != "id" || d.Type != "order" || string(d.Body) != "17" {
					t.Errorf("parked after %d runs, want %d: %+v", n, way.runs, d)
				}
				if n, _ := amqpvalue.Integer(d.Headers[topology.HeaderAttempts]); !way.route.Unlimited && int(n) != way.runs {
					t.Errorf("attempts header: got %d, want %d", n, way.runs)
				}
				if n := r.depth(queue); n != 0 {
					t.Errorf("queue has %d messages, want 0", n)
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
		t.Error("Validate accepted CrashLimit, although the worker cannot count crashes")
	}
	config.CrashLimit, config.Strategy.Route = 0, topology.Requeuing{Unlimited: true}
	if config.Validate() == nil {
		t.Error("Validate accepted a quorum queue, which has a delivery limit")
	}
}
