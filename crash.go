package reprise

import (
	"fmt"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/topology"
)

// HeaderCrashes is the header that tells, on a parked message, how often it was
// delivered and never settled (int64). On a message that comes from a queue
// whose type does not count deliveries it is a table meanwhile: what was counted
// so far, and where the message was first published.
const HeaderCrashes = "x-reprise-crashes"

// Deliveries that were never settled say that a message may be what ends the
// process that handles it, long before there is an error to record. Who counts:
//
//	quorum queue    the broker, in x-delivery-count: deliveries that ended with the
//	                consumer's process or connection, and before RabbitMQ 4.3 also
//	                those that were given back by basic.nack
//	classic queue   nobody: redelivered says "once or more". With a CrashLimit, the
//	                worker replaces such a delivery by a copy that has the count on it
//
// https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling

// suspectAfter is how many crashes make a message suspect: it is handled alone from
// then on. A process that ends takes everything that was delivered to it along,
// and each of those has one delivery less; so that the guilty one is parked and
// not its neighbours, it must be alone before the limit is reached.
const suspectAfter = 2

// DefaultCrashLimit is the default CrashLimit where the broker counts crashes and
// nothing else, as RabbitMQ does since 4.3.
const DefaultCrashLimit = 5

// crashLimit is how many crashes park a message of this session; 0: any number.
func (s *session) crashLimit() int {
	switch limit := s.worker.cfg.CrashLimit; {
	case limit < 0:
		return 0
	case limit > 0:
		return limit
	case s.countsNacks:
		return 0 // the broker's own delivery limit has to do
	}
	return DefaultCrashLimit
}

// suspect reports whether a delivery should be handled alone. It is asked for each,
// so it looks at little. What is not counted by the queue never is: to give it back
// until it is alone would count it once more.
func (w *Worker) suspect(d amqp.Delivery) bool {
	if !d.Redelivered {
		return false
	}
	n, _ := topology.Integer(d.Headers["x-delivery-count"])
	if n < suspectAfter {
		return false
	}
	at := topology.Delivery{Queue: w.cfg.Queue, Exchange: d.Exchange, RoutingKey: d.RoutingKey, Redelivered: true, Headers: decodeTable(d.Headers)}
	crashes := 0
	_ = guard("strategy", func() error { // attempt meets it again, and says so
		crashes = topology.Crashes(w.cfg.Strategy.Marks, at)
		return nil
	})
	return crashes >= suspectAfter
}

// crashed says why a delivery is not to be handled any more, or nothing.
func (d *delivery) crashed() string {
	limit := d.session.crashLimit()
	if limit == 0 || d.crashes < limit {
		return ""
	}
	return fmt.Sprintf("not handled again: it was delivered %d times and never settled, its worker or its connection having ended each time (the limit is %d, CrashLimit)", d.crashes, limit)
}

// uncounted reports whether it is only known that d was delivered before, not
// how often, and somebody wants to know. What says otherwise: quorum queues in
// two ways, and RabbitMQ 4.0 of a dead letter that was rejected where it died.
func (w *Worker) uncounted(d amqp.Delivery) bool {
	if !d.Redelivered || w.cfg.CrashLimit <= 0 {
		return false
	}
	for _, header := range []string{"x-delivery-count", "x-acquired-count", "x-death"} {
		if _, found := d.Headers[header]; found {
			return false
		}
	}
	return true
}

// readMoved reads what a move of the message noted: the count so far, and where
// it was first published. That is for people and marks; what becomes of the
// message goes by where it really is, since anybody can write a header.
func (d *delivery) readMoved() (crashes int, origin topology.Delivery) {
	origin = d.at
	moved, ok := d.at.Headers[HeaderCrashes].(topology.Table)
	if !ok || d.session.worker.cfg.CrashLimit <= 0 {
		return 0, origin
	}
	n, _ := topology.Integer(moved["count"])
	exchange, ok1 := moved["exchange"].(string)
	key, ok2 := moved["routing-key"].(string)
	if ok1 && ok2 {
		origin.Exchange, origin.RoutingKey = exchange, key
	}
	return int(min(max(n, 0), 1<<30)), origin
}

// recounted returns a copy for the end of the same queue that has the count of a
// delivery's crashes on it.
func (w *Worker) recounted(d *delivery) (*replacement, error) {
	c := w.replacement(d, "", 0)
	c.hop, c.kind = topology.Hop{RoutingKey: w.cfg.Queue}, moved
	headers := c.carry(d, w.client.publishing.user)
	headers[HeaderCrashes] = topology.Table{
		"count": int64(d.crashes + 1), "exchange": d.origin.Exchange, "routing-key": d.origin.RoutingKey,
	}
	var err error
	if c.msg.Headers, err = encodeTable(headers); err != nil {
		return nil, err
	}
	return c, checkSize("", c.hop.RoutingKey, &c.msg, d.session.conn.Config.FrameSize, roomForDelivery)
}

// countsNacks reports whether a broker counts what is given back by basic.nack as
// a failed delivery, as RabbitMQ does before 4.3. What is not known does not.
func countsNacks(properties amqp.Table) bool {
	version, _ := properties["version"].(string)
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, err1 := strconv.Atoi(major)
	y, err2 := strconv.Atoi(minor)
	return err1 == nil && err2 == nil && (x < 4 || x == 4 && y < 3)
}
