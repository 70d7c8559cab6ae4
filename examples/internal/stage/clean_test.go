package stage

import (
	"context"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// Clean deletes only queues and exchanges that the program has created, including the messages.
func TestCleanDeletesOnlyNewQueues(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		var (
			name = testkit.Name(t, "clean")
			all  = topology.Topology{
				Exchanges: []topology.Exchange{{Name: name + ".made", Kind: topology.Fanout}, {Name: name + ".there", Kind: topology.Fanout}, {Name: name + ".bound", Kind: topology.Fanout}},
				Queues: []topology.Queue{
					{Name: name + ".there"},
					{Name: name + ".classic"},
					{Name: name + ".consumed"},
					{Name: name + ".quorum", Args: topology.Table{"x-queue-type": "quorum"}},
				},
				Bindings: []topology.Binding{{Exchange: name + ".made", Queue: name + ".quorum"}},
			}
			before = topology.Topology{Exchanges: all.Exchanges[1:2], Queues: all.Queues[:1]}
		)
		s := &Stage{URL: b.URL, clean: true}
		conn, err := s.connect()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			if err := s.remove(all); err != nil {
				t.Error(err)
			}
		})
		client, err := s.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close(context.Background()) })
		if err := client.Declare(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		err = s.Clean(all, func() error {
			if err := client.Declare(t.Context(), all); err != nil {
				return err
			}
			for _, q := range all.Queues {
				if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: q.Name}); err != nil {
					return err
				}
			}
			// Another program consumes.
			ch, err := conn.Channel()
			if err != nil {
				return err
			}
			if _, err := ch.Consume(name+".consumed", "", false, false, false, false, nil); err != nil {
				return err
			}
			return ch.QueueBind(name+".there", "", name+".bound", false, nil)
		})
		if err != nil {
			t.Fatal(err)
		}
		deleted, err := s.missing(all)
		if err != nil {
			t.Fatal(err)
		}
		if len(deleted.Queues) != 2 || deleted.Queues[0].Name != name+".classic" || deleted.Queues[1].Name != name+".quorum" ||
			len(deleted.Exchanges) != 1 || deleted.Exchanges[0].Name != name+".made" {
			t.Errorf("deleted: got %+v, want the queues %[2]s.classic and %[2]s.quorum, and the exchange %[2]s.made", deleted, name)
		}
		if ch, err := conn.Channel(); err != nil {
			t.Error(err)
		} else if q, err := ch.QueueDeclarePassive(name+".there", true, false, false, false, amqp.Table{}); err != nil || q.Messages != 1 {
			t.Errorf("existing queue: got %d messages, %v, want 1", q.Messages, err)
		}
	})
}
