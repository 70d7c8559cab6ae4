// Package inner gives the archive and the command line what a *reprise.Client does not export.
package inner

import (
	"context"

	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/topology"
)

// Of returns the inside of a *reprise.Client. Package reprise sets it.
var Of func(client any) Client

// Client is the inside of a *reprise.Client.
type Client struct {
	Consuming, Publishing *amqpconn.Link
	Reconnect             backoff.Backoff
	Name                  string // prefix of the consumer tags of its workers

	// Declare is like reprise.Client.Declare, but uses the connection of Publish. In a cluster, its node knows the objects
	// when Declare returns.
	Declare func(ctx context.Context, t topology.Topology) error

	// AwaitMature waits until the broker can no longer lose a queue that the client has created.
	AwaitMature func(ctx context.Context) error

	// Check is like Declare, but creates nothing. It reports existing objects that differ, and missing objects that the user may
	// not create. It does not check bindings.
	Check func(ctx context.Context, t topology.Topology) error

	// Publish publishes a message that is not the program's, so neither an observer nor BeforePublish sees it. It returns
	// when the broker has confirmed the message.
	Publish func(ctx context.Context, exchange, key string, msg *amqpconn.Message) error

	// Read returns a *reprise.Delivery with the message as it was delivered.
	Read func(d *amqpconn.Delivery, queue string) any

	// Refused converts a refusal of a request about a queue to a *reprise.QueueError. It returns other errors unchanged.
	Refused func(queue string, err error) error

	// Explain converts the refusal of a declaration to a *reprise.DeclareError.
	Explain func(kind, name string, err error) error
}
