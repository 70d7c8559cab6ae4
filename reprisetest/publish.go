package reprisetest

import (
	"context"
	"errors"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
)

// Publish publishes messages in order, like reprise.Client.Publish. The test fails at the first message that the
// broker does not accept. When Publish returns, the messages are in their queues. In a bubble, their immediate effects
// are also complete: for example, idle workers have processed them.
//
// Faults do not affect Publish, except [Broker.Block].
func (b *Broker) Publish(t TB, messages ...*reprise.Message) {
	t.Helper()
	client := b.ownClient(t)
	for _, m := range messages {
		err := client.Publish(context.Background(), m)
		if unroutable, ok := errors.AsType[*reprise.UnroutableError](err); ok && unroutable.Exchange == "" {
			t.Fatalf("reprisetest: publish: queue %q not found (declare it with Work or Declare; existing queues: %s)", m.RoutingKey, b.names())
		}
		if err != nil {
			t.Fatalf("reprisetest: publish: %v", err)
		}
	}
	b.waitIdle()
}

// Declare declares topologies that must exist before the test begins, or that other programs declare
// in production. [Broker.Work] declares the topology of its worker.
func (b *Broker) Declare(t TB, topologies ...topology.Topology) {
	t.Helper()
	client := b.ownClient(t)
	for _, each := range topologies {
		if err := client.Declare(context.Background(), each); err != nil {
			t.Fatalf("reprisetest: %v", err)
		}
	}
}
