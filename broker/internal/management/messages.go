package management

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/alarm"
	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/session"
	"github.com/reprisemq/reprise/broker/internal/stats"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// publication is the body of POST /api/exchanges/{vhost}/{exchange}/publish.
type publication struct {
	Properties      properties `json:"properties"`
	RoutingKey      string     `json:"routing_key"`
	Payload         payload    `json:"payload"`
	PayloadEncoding string     `json:"payload_encoding"`
}

// payload is the body of a message, as text.
type payload string

// UnmarshalJSON implements [json.Unmarshaler].
func (p *payload) UnmarshalJSON(b []byte) error {
	if b[0] != '"' {
		return badRequest("payload_not_string")
	}
	return json.Unmarshal(b, (*string)(p))
}

var noExchange = &failure{404, "not_found", "exchange_not_found"}

func publishTo(c *call) (any, error) {
	v, x, err := c.exchange()
	if err == error(notFound) {
		err = noExchange
	}
	if err != nil {
		return nil, err
	}
	var p publication
	if err := c.decode(&p, "routing_key", "properties", "payload", "payload_encoding"); err != nil {
		return nil, err
	}
	body, err := p.body()
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(c.mayConnect(v), c.mayExchange(v, access.Write, x.Name)); err != nil {
		return nil, err
	}
	encoded, err := (*amqpwire.Properties)(&p.Properties).Append(nil)
	if err != nil {
		return nil, err
	}
	if short := c.node.Alarms.Resources(); len(short) > 0 {
		return nil, badRequest(alarm.Reason(short) + ": publishing is blocked")
	}
	m, err := vhost.NewMessage(vhost.Published{
		Exchange: x.Name, RoutingKey: p.RoutingKey, Properties: encoded, Body: body, User: c.user.Name,
	})
	if err != nil {
		return nil, inFull(err)
	}
	if err := session.MayTopics(c.node.Access, v, c.user.Name, access.Write, x.Name, m.RoutingKey, m.CC, m.BCC); err != nil {
		return nil, inFull(err)
	}
	var counter stats.Counter
	defer c.count(v, &counter)
	counter.Add(stats.Publish, 1)
	n, accepted, err := v.Publish(m)
	if err != nil {
		return nil, inFull(err)
	}
	if n == 0 {
		counter.Add(stats.Returned, 1)
	}
	return fields{"routed": n > 0 && accepted}, nil
}

// inFull returns an error whose text begins with the reply code, as RabbitMQ formats the errors of its internal
// channel.
func inFull(err error) error {
	if e, ok := err.(*exception.Error); ok {
		return badRequest(fmt.Sprintf("%d %v", e.Code, e))
	}
	return err
}

func (p *publication) body() ([]byte, error) {
	switch p.PayloadEncoding {
	case "string":
		return []byte(p.Payload), nil
	case "base64":
		body, err := base64.StdEncoding.DecodeString(string(p.Payload))
		if err != nil {
			return nil, badRequest([]string{"not_base64", string(p.Payload)})
		}
		return body, nil
	}
	return nil, badRequest([]string{"unsupported_encoding", p.PayloadEncoding})
}

// count adds the operations of a call to the totals, because a call does not have a channel that counts them.
func (c *call) count(v *vhost.VHost, counter *stats.Counter) {
	c.node.Stats.Messages.Add(counter)
	v.Messages().Add(counter)
}

// The whole response is in memory. It contains at most maxGet messages, and the handler adds no further messages when
// it has maxGetBytes or more.
const (
	maxGet      = 10_000
	maxGetBytes = 64 << 20
)

// retrieval is the body of POST /api/queues/{vhost}/{queue}/get.
type retrieval struct {
	AckMode  string  `json:"ackmode"`
	Encoding string  `json:"encoding"`
	Count    natural `json:"count"`
	Truncate natural `json:"truncate"` // maximum size of a returned payload in bytes
}

var ackModes = []string{"ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false"}

func (r *retrieval) check() error {
	if !slices.Contains(ackModes, r.AckMode) {
		return badRequest("Invalid ackmode value: " + r.AckMode + ". Valid values are: " + strings.Join(ackModes, ", "))
	}
	if r.Encoding != "auto" && r.Encoding != "base64" {
		return badRequest("Unsupported encoding. Please use auto or base64.")
	}
	return nil
}

// notRead is the error response for messages that the broker cannot read from the disk.
var notRead = &failure{503, "unavailable", "cannot read messages from the disk"}

var noQueue = &failure{404, "not_found", "queue_not_found"}

func getFrom(c *call) (any, error) {
	if err := c.takeTurn(); err != nil {
		return nil, err
	}
	v, q, err := c.ownQueue(access.Read)
	if err == error(notFound) {
		err = noQueue
	}
	if err != nil {
		return nil, err
	}
	r := retrieval{Truncate: math.MaxInt}
	if err := c.decode(&r, "ackmode", "count", "encoding"); err != nil {
		return nil, err
	}
	if err := cmp.Or(r.check(), c.mayConnect(v)); err != nil {
		return nil, err
	}
	if config := q.Config(); config.Quorum && config.SingleActive {
		return nil, badRequest("basic.get is not supported by quorum queues with a single active consumer")
	}
	if q.Consumed(c.Context()) != nil {
		return nil, notRead
	}
	var counter stats.Counter
	defer c.count(v, &counter)
	var all []element
	var taken []*queue.Item
	// Settle at the end. Otherwise, the loop would get requeued messages again.
	defer func() { settle(q, r.AckMode, taken) }()
	ack, way := false, stats.Get
	if r.AckMode == "ack_requeue_false" {
		ack, way = true, stats.GetNoAck
	}
	for size := int64(0); len(all) < int(min(r.Count, maxGet)) && size < maxGetBytes; {
		var got *queue.Item
		var redelivered bool
		var left int
		var encoded []byte
		found, err := q.Get(ack, func(it *queue.Item, n int) {
			// copied here, because the item may change when this callback has returned
			got, encoded, redelivered, left = it, it.DeliveryProperties(), it.Redelivered, n
		})
		if err != nil && len(all) == 0 {
			return nil, notRead
		}
		if err != nil {
			break // return the messages read so far, because the queue may no longer contain them
		}
		if !found {
			counter.AddFrom(q.Quorum(), stats.GetEmpty, 1)
			break
		}
		if !ack {
			taken = append(taken, got)
		}
		counter.Out(q.Quorum(), redelivered, way)
		m := got.Message
		all = append(all, func() fields {
			return r.describe(m).with(fields{
				"properties": describeProperties(encoded), "redelivered": redelivered, "message_count": left,
			})
		})
		size += m.Size()
	}
	return list(slices.Values(all)), nil
}

func settle(q *vhost.Queue, ackMode string, items []*queue.Item) {
	if len(items) == 0 {
		return
	}
	switch ackMode {
	case "ack_requeue_true":
		q.Requeue(false, items...)
	case "reject_requeue_true":
		q.Requeue(true, items...)
	case "reject_requeue_false":
		q.Reject(true, items...)
	}
}

// describe returns the fields of a message.
func (r *retrieval) describe(m *queue.Message) fields {
	shown := m.Body[:min(int(r.Truncate), len(m.Body))]
	payload, encoding := string(shown), "string"
	if r.Encoding == "base64" || !utf8.Valid(shown) {
		payload, encoding = base64.StdEncoding.EncodeToString(shown), "base64"
	}
	return fields{
		"payload_bytes": len(m.Body), "payload": payload, "payload_encoding": encoding,
		"exchange": m.Exchange, "routing_key": m.RoutingKey,
	}
}
