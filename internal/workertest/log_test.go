package workertest

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// In each attempt, the log contains the exchange and the routing key of the first publication, not those of the copies.
func TestLogContainsRoutingKeyOfMessage(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		c := dial(t, b.URL)
		start(t, c, reprise.WorkerConfig{
			Queue: queue, Strategy: strategy, Policy: quick(2),
			Topology: topology.Topology{Bindings: []topology.Binding{{Exchange: "amq.topic", Queue: queue, RoutingKey: queue + ".#"}}},
			Handler: newScript(func(m *reprise.Delivery) error {
				if m.MessageID == "bad" || m.Attempt == 1 {
					return errors.New("declined")
				}
				return nil
			}),
		})
		for _, id := range []string{"bad", "good"} {
			if err := c.Publish(t.Context(), &reprise.Message{Exchange: "amq.topic", RoutingKey: queue + ".paid", MessageID: id}); err != nil {
				t.Fatal(err)
			}
		}
		c.log.wait(t, "parked", 1)
		c.log.wait(t, "processed", 1)
		origin := " attempt=N exchange=amq.topic routing_key=" + queue + ".paid "
		for _, want := range []string{
			"retry queue=" + queue + " message_id=bad" + strings.Replace(origin, "N", "1", 1) + "delay=[^ ]+ error=declined",
			"parked queue=" + queue + " message_id=bad" + strings.Replace(origin, "N", "2", 1) + "to=" + queue + ".failed reason=.* error=declined",
			"processed queue=" + queue + " message_id=good" + strings.Replace(origin, "N", "2", 1) + "took=[^ ]+s",
		} {
			if log := c.log.String(); !regexp.MustCompile(want + "\n").MatchString(log) {
				t.Errorf("no line %s in\n%s", want, log)
			}
		}
	})
}
