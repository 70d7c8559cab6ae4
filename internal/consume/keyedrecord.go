package consume

import (
	"maps"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/ordered"
	"github.com/reprisemq/reprise/topology"
)

// headerOrder contains the ordered.Record of a message in a held queue, and the properties that the original had and that its
// copy must not have. It never reaches a handler or another queue.
const headerOrder = "x-reprise-order"

// withRecord returns a copy of m for a held queue. A copy has no priority, because the order of the held queue matters.
func withRecord(m *amqpconn.Message, r ordered.Record, d *Delivery) (*amqpconn.Message, error) {
	t := topology.Table{"kind": string(r.Kind), "owner": r.Owner, "epoch": r.Epoch}
	held := amqpconn.Message{Timestamp: time.Now()}
	if r.Kind == ordered.Copy || r.Kind == ordered.Done {
		t["key"], t["seq-epoch"], t["seq"], t["version"] = r.Key, r.Seq.Epoch, r.Seq.Number, r.Version
	}
	if r.Kind == ordered.Copy {
		held = *m
		if !r.Due.IsZero() {
			t["due"] = r.Due.UnixMilli()
		}
		if r.Starts != 0 {
			t["starts"] = r.Starts
		}
		if r.By != "" {
			t["by"] = r.By
		}
		t["exchange"], t["routing-key"], t["priority"], t["redelivered"] = d.Exchange, d.RoutingKey, int64(held.Priority), d.Redelivered
		held.Priority = 0
	}
	headers := maps.Clone(held.Headers)
	if headers == nil {
		headers = topology.Table{}
	}
	headers[headerOrder] = t
	var err error
	held.Headers, err = amqpconn.EncodeTable(headers)
	return &held, err
}

// isReturned reports whether a delivery may have terminated processes. The count also includes other changes of the owner.
func (d *Delivery) isReturned() bool {
	n, _ := amqpvalue.Integer(d.Headers["x-delivery-count"])
	return n >= suspectAfter
}

// takeRecord removes the record from a delivery of a held queue, and restores the properties of the original. It returns false
// for a message without a record.
func takeRecord(d *Delivery) (r ordered.Record, ok bool) {
	headers := amqpconn.ReadTable(d.Headers)
	t, ok := headers[headerOrder].(topology.Table)
	if !ok {
		return ordered.Record{}, false
	}
	number := func(name string) int64 {
		n, _ := amqpvalue.Integer(t[name])
		return n
	}
	text := func(name string) string {
		s, _ := t[name].(string)
		return s
	}
	r = ordered.Record{
		Kind: ordered.Kind(text("kind")), Owner: text("owner"), Epoch: number("epoch"), Key: text("key"),
		Seq: ordered.Seq{Epoch: number("seq-epoch"), Number: number("seq")}, Version: number("version"), Starts: number("starts"),
		By: text("by"), Act: ordered.Act(text("act")), Limit: number("limit"),
	}
	if due := number("due"); due != 0 {
		r.Due = time.UnixMilli(due)
	}
	d.Headers = withoutDelivery(headers)
	delete(d.Headers, headerOrder)
	d.Exchange, d.RoutingKey, d.Priority = text("exchange"), text("routing-key"), uint8(number("priority"))
	d.Redelivered, _ = t["redelivered"].(bool)
	return r, true
}

// withoutDelivery returns headers without those that describe the delivery by a quorum queue. Each change of the owner returns
// messages that had no attempt, so the count says nothing about a message.
func withoutDelivery(headers topology.Table) topology.Table {
	headers = maps.Clone(headers)
	delete(headers, "x-delivery-count")
	delete(headers, "x-acquired-count")
	return headers
}
