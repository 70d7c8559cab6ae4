package sift

import (
	"fmt"
	"strings"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/topology"
)

// MaxLook is the maximum number of messages that an operator may look at. RabbitMQ may change the order of more messages.
const MaxLook = 32

// Cost is what a look at messages with reprise.Client.Peek changes.
type Cost struct {
	Text   string // one sentence without a period
	Counts bool   // the look may count as a failed delivery, so the operator must agree
	Drops  bool   // the look could drop the message, so it must not happen
}

// CostOf returns the cost of a look at a queue with its effective arguments. The queue is nil if only the version is known.
func CostOf(version string, q *topology.Queue) Cost {
	const returns = "the messages return to their places, marked as redelivered"
	switch {
	case !consume.CountsNacks(version):
		return Cost{Text: returns}
	case q == nil:
		return Cost{Text: "if this is a quorum queue, RabbitMQ " + brief.Visible(version) + " counts each look as a failed delivery of the message (--management URL finds the type)", Counts: true}
	case q.Args["x-queue-type"] != "quorum":
		return Cost{Text: returns}
	}
	limit, limited := q.Args["x-delivery-limit"].(int64)
	c := Cost{Text: "this look counts as a failed delivery of each message", Counts: true}
	switch {
	case limited && limit >= 0 && limit <= reprise.MaxPeeks:
		c.Text = fmt.Sprintf("a look could drop the message: this is a quorum queue with a delivery limit of %d, and each look counts", limit)
		c.Drops = true
	case limited && limit >= 0:
		c.Text += fmt.Sprintf(", after %d of which the broker drops or dead-letters it", limit)
	case strings.HasPrefix(version, "3."):
		c.Text += ", and the messages return to the end of the queue"
	case !limited:
		c.Text += ", after 20 of which the broker drops or dead-letters it"
	}
	return c
}
