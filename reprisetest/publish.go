package reprisetest

import (
	"context"
	"errors"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
)

// Publish publishes messages, one after the other, as reprise.Client.Publish
// does, and fails the test at the first that the broker does not take. When it
// returns they are in their queues, and in a bubble all that follows at once has
// been done: handlers are at work on them.
//
// No fault strikes it but [Broker.Block].
func (b *Broker) Publish(t TB, messages ...*reprise.Message) {
	t.Helper()
	client := b.hands(t)
	for _, m := range messages {
		err := client.Publish(context.Background(), m)
		if unroutable, ok := errors.AsType[*reprise.UnroutableError](err); ok && unroutable.Exchange == "" {
			t.Fatalf("reprisetest: publish: there is no queue %q: Work declares one, and so does Declare; there are %s", m.RoutingKey, b.names())
		}
		if err != nil {
			t.Fatalf("reprisetest: publish: %v", err)
		}
	}
	b.still()
}

// Declare declares what is to be there before the test begins, or is declared by
// other programs in production. What its worker needs, [Broker.Work] declares.
func (b *Broker) Declare(t TB, topologies ...topology.Topology) {
	t.Helper()
	client := b.hands(t)
	for _, each := range topologies {
		if err := client.Declare(context.Background(), each); err != nil {
			t.Fatalf("reprisetest: %v", err)
		}
	}
}
