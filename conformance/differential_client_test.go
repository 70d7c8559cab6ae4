package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/testkit"
)

// answerTime is the timeout for a reply from a broker. The declaration of the first quorum queue on a new node can take
// 30 seconds.
const answerTime = 60 * time.Second

// clientConn is a connection from which the test reads only while it waits for a reply. When the reply arrives, the
// test has therefore read all frames that the broker sent before, and knows that no other frames will follow.
type clientConn struct {
	raw         *raw
	channels    map[uint16]*clientChannel
	closeReason string // reason why the connection was closed; empty while it is open
}

// clientChannel is a channel and its state.
type clientChannel struct {
	conn  *clientConn
	id    uint16
	open  bool
	reply string // most recent reply

	opening bool // until channel.open-ok, frames belong to the previous channel with this number

	seen  frameLog
	named func(string) string // replaces the unique names on the broker with the names in the script

	content content           // message that is arriving
	source  map[string]string // queue of each consumer
	asked   string            // queue of the current basic.get
	step    int
	pending []pendingDelivery // unsettled deliveries
	held    []pendingDelivery // deliveries that were settled in the current transaction
	tx      bool
	settled uint64 // most recently settled tag
}

// frameLog contains the frames that the broker has sent without a request since the step began.
type frameLog struct {
	deliveries map[string][]string // by consumer
	returns    []string
	confirms   map[uint64]string
	confirmed  uint64
	others     []string
}

// pendingDelivery is an unsettled delivery.
type pendingDelivery struct {
	tag    uint64
	queue  string
	origin string // consumer tag; empty for basic.get
	step   int
}

// content is a message whose frames may not all have arrived.
type content struct {
	method amqpwire.Method // nil without a message
	props  amqpwire.Properties
	size   uint64
	body   []byte
}

func dialConn(t *testing.T, b testkit.Target) *clientConn {
	t.Helper()
	r := dialRaw(t, b)
	r.start("\x00guest\x00guest", amqpwire.Table{{Name: "consumer_cancel_notify", Value: true}})
	tune := expect(r, &amqpwire.ConnectionTune{})
	r.send(0, &amqpwire.ConnectionTuneOk{ChannelMax: tune.ChannelMax, FrameMax: tune.FrameMax})
	r.send(0, &amqpwire.ConnectionOpen{VirtualHost: "/"})
	expect(r, &amqpwire.ConnectionOpenOk{})
	return &clientConn{raw: r, channels: make(map[uint16]*clientChannel)}
}

// openChannel opens the channel with the given number.
func (l *clientConn) openChannel(id uint16, named func(string) string) *clientChannel {
	ln := &clientChannel{conn: l, id: id, named: named, source: make(map[string]string), open: true, opening: true}
	ln.seen.clear()
	l.channels[id] = ln
	ln.call(&amqpwire.ChannelOpen{})
	return ln
}

func (s *frameLog) clear() {
	*s = frameLog{deliveries: make(map[string][]string), confirms: make(map[uint64]string), confirmed: s.confirmed}
}

// send sends a method, followed by more, which contains encoded frames.
func (ln *clientChannel) send(m amqpwire.Method, more ...byte) {
	if !ln.open {
		return
	}
	b, err := amqpwire.AppendMethodFrame(nil, ln.id, m)
	if err != nil {
		panic(err) // a defect of the test
	}
	_ = ln.conn.raw.SetDeadline(time.Now().Add(answerTime))
	if _, err := ln.conn.raw.Write(append(b, more...)); err != nil {
		// Read the reason, which the broker may have sent before it closed the connection.
		ln.conn.readUntil(func() bool { return false })
	}
}

// call sends a method and returns the reply, or the reason with which the broker closes the channel.
func (ln *clientChannel) call(m amqpwire.Method) string {
	if !ln.open {
		return "closed"
	}
	ln.reply = ""
	ln.send(m)
	ln.conn.readUntil(func() bool { return ln.reply != "" || !ln.open })
	return ln.reply
}

// sync waits until the broker has processed all frames that were sent on the channel. The channel.flow that it sends
// has no other effect.
func (ln *clientChannel) sync() {
	reply := ln.reply
	if ln.open {
		ln.call(&amqpwire.ChannelFlow{Active: true})
	}
	if ln.open {
		ln.reply = reply
	}
}

func (l *clientConn) readUntil(done func() bool) {
	for l.closeReason == "" && !done() {
		f, err := l.raw.in.ReadFrame()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			l.end("no answer")
			return
		case err != nil:
			l.end("connection lost: " + reason(err))
			return
		}
		if ln := l.channels[f.Channel]; ln != nil {
			ln.take(f)
		} else if f.Type == amqpwire.FrameMethod {
			if m, err := amqpwire.ParseMethod(f.Payload); err == nil && m.ID() == amqpwire.IDConnectionClose {
				c := m.(*amqpwire.ConnectionClose)
				l.raw.send(0, &amqpwire.ConnectionCloseOk{})
				l.end(fmt.Sprintf("connection closed: %d %s", c.ReplyCode, c.ReplyText))
			}
		}
	}
}

func reason(err error) string {
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return "network"
	}
	return err.Error()
}

func (l *clientConn) end(why string) {
	l.closeReason = why
	_ = l.raw.Close()
	for _, ln := range l.channels {
		ln.close(why)
	}
}

func (ln *clientChannel) close(why string) {
	if ln.open {
		ln.open, ln.reply = false, ln.named(why)
		ln.seen.others = append(ln.seen.others, ln.reply)
		ln.pending, ln.held, ln.tx, ln.seen.confirmed = nil, nil, false, 0
	}
}

func (ln *clientChannel) take(f amqpwire.Frame) {
	switch f.Type {
	case amqpwire.FrameMethod:
		m, err := amqpwire.ParseMethod(f.Payload)
		if err != nil {
			ln.conn.end("not a method: " + err.Error())
			return
		}
		if ln.opening && m.ID() != amqpwire.IDChannelOpenOk {
			return
		}
		ln.opening = false
		ln.method(m)
		return
	case amqpwire.FrameHeader:
		h, err := amqpwire.ParseContentHeader(f.Payload)
		if err == nil {
			ln.content.props, err = amqpwire.ParseProperties(h.Properties)
		}
		if err != nil {
			ln.conn.end("not a content header: " + err.Error())
			return
		}
		ln.content.size = h.BodySize
	case amqpwire.FrameBody:
		ln.content.body = append(ln.content.body, f.Payload...)
	}
	if c := ln.content; c.method != nil && uint64(len(c.body)) == c.size {
		ln.content = content{}
		ln.message(c)
	}
}

func (ln *clientChannel) method(m amqpwire.Method) {
	switch m := m.(type) {
	case *amqpwire.BasicDeliver, *amqpwire.BasicReturn, *amqpwire.BasicGetOk:
		ln.content = content{method: m}
	case *amqpwire.BasicAck:
		ln.confirm(m.DeliveryTag, m.Multiple, "ack")
	case *amqpwire.BasicNack:
		ln.confirm(m.DeliveryTag, m.Multiple, "nack")
	case *amqpwire.BasicCancel:
		ln.seen.others = append(ln.seen.others, "cancelled "+m.ConsumerTag)
	case *amqpwire.ChannelClose:
		ln.send(&amqpwire.ChannelCloseOk{})
		ln.close(fmt.Sprintf("closed: %d %s", m.ReplyCode, m.ReplyText))
	default:
		ln.reply = ln.named(fmt.Sprintf("%v %+v", m.ID(), deref(m)))
		if m.ID() == amqpwire.IDChannelCloseOk {
			ln.open = false
			ln.seen.deliveries = nil // the number of deliveries in flight is random
			ln.pending, ln.held, ln.tx, ln.seen.confirmed = nil, nil, false, 0
		}
	}
}

func (ln *clientChannel) confirm(tag uint64, multiple bool, how string) {
	s := &ln.seen
	first := tag
	if multiple {
		first = s.confirmed + 1
	}
	for t := first; t <= tag; t++ {
		if s.confirms[t] == "" {
			s.confirms[t] = how
		}
	}
	for s.confirms[s.confirmed+1] != "" {
		s.confirmed++
	}
}

func (ln *clientChannel) message(c content) {
	text := ln.named(c.String())
	switch m := c.method.(type) {
	case *amqpwire.BasicDeliver:
		ln.seen.deliveries[m.ConsumerTag] = append(ln.seen.deliveries[m.ConsumerTag], text)
		if queue, settles := ln.source[m.ConsumerTag]; settles {
			ln.await(pendingDelivery{m.DeliveryTag, queue, m.ConsumerTag, ln.step})
		}
	case *amqpwire.BasicReturn:
		ln.seen.returns = append(ln.seen.returns, text)
	case *amqpwire.BasicGetOk:
		ln.reply = text
		if ln.asked != "" {
			ln.await(pendingDelivery{m.DeliveryTag, ln.asked, "", ln.step})
		}
	}
}

// await adds deliveries to the unsettled deliveries. It sorts the deliveries of a step by consumer, because the order
// in which consumers get deliveries is random.
func (ln *clientChannel) await(p ...pendingDelivery) {
	ln.pending = append(ln.pending, p...)
	slices.SortStableFunc(ln.pending, func(a, b pendingDelivery) int {
		return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.origin, b.origin), cmp.Compare(a.tag, b.tag))
	})
}
