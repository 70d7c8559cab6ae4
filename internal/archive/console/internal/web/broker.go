package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/ingest"
	"github.com/reprisemq/reprise/internal/archive/sift"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/internal/inner"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/outbox"
	"github.com/reprisemq/reprise/topology"
)

// broker returns the client for the broker, or a failure if the console is not connected.
func (c *Call) broker() (*reprise.Client, error) {
	if c.Broker != nil {
		if client := c.Broker(); client != nil {
			return client, nil
		}
	}
	return nil, &fault.Failure{
		Status: http.StatusServiceUnavailable, Text: "this console is not connected to a broker",
		Advice: "start it with a broker: reprise console --url URL",
	}
}

// HasBroker reports whether the console is connected to a broker.
func (c *Call) HasBroker() bool {
	_, err := c.broker()
	return err == nil
}

// ofBroker converts the error for a missing queue into a failure with advice for the visitor, and the refusal
// to take messages from a queue of workers with order_by. It returns all other errors unchanged.
func ofBroker(err error) error {
	if queue, ok := errors.AsType[*reprise.QueueError](err); ok {
		return &fault.Failure{Status: http.StatusNotFound, Text: strings.TrimPrefix(queue.Error(), "reprise: "), Advice: "use a queue that exists and that this console may access"}
	}
	if keyed, ok := errors.AsType[*protocol.KeyedQueueError](err); ok {
		return &fault.Failure{Status: http.StatusConflict, Text: keyed.Error(), Advice: "nothing was changed: see the list of workers"}
	}
	return err
}

// QueueDepth returns the number of ready messages in a queue from which an operator may take messages.
func (c *Call) QueueDepth(queue string) (int, error) {
	client, err := c.broker()
	if err != nil {
		return 0, err
	}
	if queue == "" {
		return 0, fault.BadRequest("queue must not be empty", `send its name as "queue"`)
	}
	if err := protocol.CheckNotKeyed(queue); err != nil {
		return 0, ofBroker(err)
	}
	ctx, cancel := context.WithTimeout(c.R.Context(), commandTimeout)
	defer cancel()
	n, err := client.Depth(ctx, queue)
	return n, ofBroker(err)
}

// maxPurge is the maximum number of messages that one request removes from a queue, so that the request completes
// within 30 seconds, the timeout of the server.
const maxPurge = 5000

// PurgeQueue removes the oldest messages of a queue, at most p.Limit and at most maxPurge, and returns the number of
// removed messages.
func (c *Call) PurgeQueue(p api.PurgeQueue) (int, error) {
	client, err := c.broker()
	if err != nil {
		return 0, err
	}
	cfg := ingest.EmptyConfig{Queue: string(p.Queue), Limit: min(p.Limit, maxPurge), Reason: p.Reason, Drop: p.Drop}
	n, err := ingest.Empty(c.R.Context(), client, c.Archive, cfg, c.Who.Actor)
	return n, ofBroker(err)
}

// PeekCost returns the number of ready messages in a queue, and the cost of a look at them.
func (c *Call) PeekCost(queue string) (ready int, cost sift.Cost, err error) {
	ready, err = c.QueueDepth(queue)
	if err != nil {
		return 0, cost, err
	}
	ctx, cancel := context.WithTimeout(c.R.Context(), commandTimeout)
	defer cancel()
	conn, err := inner.Of(c.Broker()).Consuming.Get(ctx)
	if err != nil {
		return 0, cost, err
	}
	var declared *topology.Queue
	if c.Management != nil && consume.CountsNacks(conn.Version()) {
		q, err := c.Management.Declaration(ctx, queue)
		if err != nil {
			return 0, cost, &fault.Failure{Status: http.StatusBadGateway, Text: "cannot read the type of the queue: " + err.Error(), Advice: "check the management API of the broker"}
		}
		declared = &q
	}
	return ready, sift.CostOf(conn.Version(), declared), nil
}

// Peek looks at the first messages of a queue, records the look in the audit log, and passes the messages to show. It refuses a look
// that counts as a failed delivery unless p.Counts is set.
func (c *Call) Peek(p api.Peek, show func(*reprise.Delivery)) (ready int, cost sift.Cost, err error) {
	p.Limit = cmp.Or(p.Limit, 1)
	if p.Limit < 1 || p.Limit > sift.MaxLook {
		return 0, cost, fault.BadRequest(fmt.Sprintf("limit must be from 1 to %d: got %d", sift.MaxLook, p.Limit), "correct the number of messages")
	}
	ready, cost, err = c.PeekCost(string(p.Queue))
	switch {
	case err != nil || ready == 0:
		return ready, cost, err
	case cost.Drops:
		return 0, cost, &fault.Failure{Status: http.StatusConflict, Text: cost.Text, Advice: "archive the queue, or raise its delivery limit"}
	case cost.Counts && !p.Counts:
		return 0, cost, &fault.Failure{Status: http.StatusConflict, Text: cost.Text, Advice: `send "counts": true to look in spite of this`}
	}
	// The look changes the queue, so the record comes first.
	if err := c.Archive.Record(c.R.Context(), c.Who.Actor, "peek", "", map[string]any{"queue": p.Queue, "messages": min(p.Limit, ready)}); err != nil {
		return 0, cost, err
	}
	ctx, cancel := context.WithTimeout(c.R.Context(), commandTimeout)
	defer cancel()
	err = c.Broker().Peek(ctx, string(p.Queue), p.Limit, show)
	if errors.Is(err, reprise.ErrPeekLimit) {
		err = &fault.Failure{
			Status: http.StatusConflict, Text: fmt.Sprintf("a message has failed %d times, and each look brings it closer to the delivery limit", reprise.MaxPeeks),
			Advice: "do not look again; archive the queue, or redrive it",
		}
	}
	return ready, cost, ofBroker(err)
}

// Publish publishes a message, or inserts it into the outbox, and records this in the audit log.
func (c *Call) Publish(p api.Publish) (result api.Published, err error) {
	var client *reprise.Client
	var box *outbox.Box
	if p.Later() {
		box, err = c.Box()
	} else {
		client, err = c.broker()
	}
	if err != nil {
		return result, err
	}
	m, err := messageOf(p)
	if err != nil {
		return result, err
	}
	ctx, cancel := context.WithTimeout(c.R.Context(), commandTimeout)
	defer cancel()
	details := map[string]any{"exchange": p.Exchange, "routing_key": p.RoutingKey, "bytes": len(m.Body)}
	if box != nil {
		result, err = c.schedule(ctx, box, m, p, details)
	} else {
		result, err = publishNow(ctx, client, m)
		details["message_id"] = api.Text(m.MessageID)
	}
	if f, ok := errors.AsType[*fault.Failure](err); ok && f.Status == http.StatusUnprocessableEntity {
		return api.Published{}, err
	}
	if err != nil {
		details["error"] = err.Error()
	}
	// Record the publication even if the visitor has disconnected, or if the message may have been stored despite an error.
	recording, done := context.WithTimeout(context.WithoutCancel(c.R.Context()), commandTimeout)
	defer done()
	if unrecorded := c.Archive.Record(recording, c.Who.Actor, "publish", "", details); unrecorded != nil {
		return api.Published{}, errors.Join(err, fmt.Errorf("cannot record message %s in the audit log: %w", brief.Quoted(m.MessageID), unrecorded))
	}
	return result, err
}

// publishNow publishes a message to the broker.
func publishNow(ctx context.Context, client *reprise.Client, m *reprise.Message) (api.Published, error) {
	if m.Timestamp.IsZero() {
		m.Timestamp = time.Now()
	}
	err := client.Publish(ctx, m)
	result := api.Published{MessageID: api.Text(m.MessageID)}
	if err == nil {
		return result, nil
	}
	text := strings.TrimPrefix(err.Error(), "reprise: ")
	if _, unroutable := errors.AsType[*reprise.UnroutableError](err); unroutable || errors.Is(err, reprise.ErrInvalidMessage) {
		return result, &fault.Failure{Status: http.StatusUnprocessableEntity, Text: text, Advice: "the message was not stored: correct the destination or the message"}
	}
	return result, &fault.Failure{Status: http.StatusBadGateway, Text: text, Advice: "the broker may have stored the message: check the queue before you send the message again"}
}

// messageOf returns the message of a request.
func messageOf(p api.Publish) (*reprise.Message, error) {
	switch {
	case p.Exchange == "" && p.RoutingKey == "":
		return nil, fault.BadRequest("exchange and routing key must not both be empty", `send "routing_key": the name of a queue, or "exchange" and the key`)
	case p.Body != nil && p.Text != nil:
		return nil, fault.BadRequest("body and text must not both be set", "send one of them")
	}
	given := p.Properties.Properties()
	if given.UserID != "" || given.Expiration != "" || given.Exchange != "" {
		return nil, fault.BadRequest("user_id, expiration and exchange must not be set", "omit these properties")
	}
	m := &reprise.Message{
		Exchange: string(p.Exchange), RoutingKey: string(p.RoutingKey), Body: p.Body, Headers: maps.Clone(map[string]any(p.Headers)),
		ContentType: given.ContentType, ContentEncoding: given.ContentEncoding, CorrelationID: given.CorrelationID,
		ReplyTo: given.ReplyTo, MessageID: given.MessageID, Type: given.Type, AppID: given.AppID,
		Priority: given.Priority, Timestamp: given.Timestamp, Zero: given.Zero,
	}
	if p.Text != nil {
		m.Body = []byte(*p.Text)
	}
	return m, nil
}
