package reprise

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/topology"
)

// HeaderCrashes is the header of a parked message with the number of its deliveries
// that were never settled (int64).
const HeaderCrashes = "x-reprise-crashes"

// Deliveries that were never settled say that a message may be what ends the
// process that handles it, long before there is an error to record. Who counts:
//
//	quorum queue    the broker, in x-delivery-count: deliveries that ended with the
//	                consumer's process or connection, and before RabbitMQ 4.3 also
//	                those that were given back by basic.nack
//	classic queue   nobody: redelivered means "once or more"
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

// suspect reports whether a delivery should be handled alone. It is asked for each
// delivery, so it looks at little.
func (w *Worker) suspect(d amqpconn.Delivery) bool {
	if !d.Redelivered {
		return false
	}
	n, _ := amqpvalue.Integer(d.Headers["x-delivery-count"])
	if n < suspectAfter {
		return false
	}
	at := topology.Delivery{Queue: w.cfg.Queue, Exchange: d.Exchange, RoutingKey: d.RoutingKey, Redelivered: true, Headers: amqpconn.CloneTable(d.Headers)}
	crashes := 0
	_ = guard("strategy", func() error { // attempt meets it again, and says so
		crashes = amqpvalue.Crashes(w.cfg.Strategy.Marks, at, at.Redelivered, at.Headers)
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

// countsNacks reports whether a broker counts what is given back by basic.nack as
// a failed delivery, as RabbitMQ does before 4.3. What is not known does not.
func countsNacks(version string) bool {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, err1 := strconv.Atoi(major)
	y, err2 := strconv.Atoi(minor)
	return err1 == nil && err2 == nil && (x < 4 || x == 4 && y < 3)
}
