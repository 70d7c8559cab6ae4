package reprise

import (
	"fmt"
	"maps"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/topology"
)

// replacement is what takes a delivery's place. It is large, and is filled in where it is:
// handed from one function to the next it would have each delivery's goroutine grow its
// stack once more.
type replacement struct {
	hop  topology.Hop
	msg  amqpconn.Message // where hop.Way is Copy
	f    topology.Failure
	kind kind

	unmarked bool // it is parked as it came: there is nothing less to try
}

type kind int

const (
	retried kind = iota
	parked
)

// replacement begins what takes the place of a delivery whose attempt has failed.
func (w *Worker) replacement(d *delivery, text string, took time.Duration) *replacement {
	c := &replacement{f: topology.Failure{
		AttemptError: topology.AttemptError{
			Attempt:  d.attempt,
			Time:     time.Now(),
			Error:    text,
			Host:     w.host,
			Duration: took,
		},
		History: d.history,
		Queue:   w.cfg.Queue,
	}}
	c.f.Exchange, c.f.RoutingKey = d.history.OriginAt(d.at)
	return c
}

// mark is a method of topology.Marks that writes on a copy.
type mark func(headers topology.Table, f topology.Failure) topology.Table

// fill makes the copy for c's hop, with a handler's notes on it if they can be sent. It
// leaves room in the header frame for what brokers add.
func (w *Worker) fill(d *delivery, c *replacement, notes topology.Table, m mark, reserve int) error {
	headers := c.carry(d, w.client.publishing.User())
	delete(headers, HeaderCrashes)
	if reserve > 0 && d.crashed() != "" {
		headers[HeaderCrashes] = int64(d.crashes)
	}
	c.msg.Expiration = amqpconn.FormatExpiration(c.hop.TTL)
	c.hop.Topology = w.cfg.own(c.hop.Topology)
	c.f.Room = amqpconn.HeaderRoom(&c.msg, d.session.conn.FrameSize(), reserve) - sizeOf(c.hop.Headers)
	if len(notes) == 0 {
		return c.write(headers, m)
	}
	err := c.write(w.annotate(headers, notes), m)
	if err != nil {
		text := c.f.Error
		c.f.Error += "\n\nwithout the headers of Annotate: " + err.Error()
		if err = c.write(headers, m); err != nil {
			c.f.Error = text
		}
	}
	return err
}

// write writes the headers of a copy, and the marks on them.
func (c *replacement) write(headers topology.Table, m mark) (err error) {
	headers = m(headers, c.f)
	if size := headers.WireSize(); size > c.f.Room {
		return fmt.Errorf("%w: the headers take %d bytes, the broker's frames have room for %d", ErrInvalidMessage, size, c.f.Room)
	}
	if len(c.hop.Headers) > 0 {
		headers = headers.Clone()
		maps.Copy(headers, c.hop.Headers)
	}
	c.msg.Headers, err = amqpconn.EncodeTable(headers)
	return err
}

// sizeOf is what a table adds to another one.
func sizeOf(t topology.Table) int {
	if len(t) == 0 {
		return 0
	}
	return t.WireSize()
}

// annotate returns headers with those of a handler over them.
func (w *Worker) annotate(headers, notes topology.Table) topology.Table {
	out := headers.Clone()
	for k, v := range notes {
		if !reserved(k) && !w.cfg.Strategy.Marks.Owns(k) {
			out[k] = v
		}
	}
	return out
}
