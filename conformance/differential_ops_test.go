package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// operation is a line of a script. String returns the line as text.
type operation interface {
	fmt.Stringer
	// do performs the operation on the broker of the player and returns the reply.
	do(p *player) string
}

// clientIndex selects one of the two clients. Client 0 is in confirm mode. Client 1 is in confirm mode only after a
// confirm.select in the script.
type clientIndex int

func (c clientIndex) String() string { return fmt.Sprintf("client%d", int(c)) }

// method is an operation that sends one method and waits for the reply.
type method struct {
	clientIndex
	m amqpwire.Method
}

func call(c clientIndex, m amqpwire.Method) operation { return method{c, m} }

func (o method) do(p *player) string {
	if ln := p.channel(o.clientIndex); o.m.ID() == amqpwire.IDBasicRecover && (p.hasMixedSources(ln) || p.hasSharedQueue(ln)) {
		return "not recovered"
	}
	m := p.qualified(o.m)
	if o.m.ID() == amqpwire.IDBasicRecover {
		p.channel(o.clientIndex).pending = nil // remove the deliveries before they are redelivered
	}
	answer := p.channel(o.clientIndex).call(m)
	switch o.m.(type) {
	case *amqpwire.TxSelect:
		p.channels[o.clientIndex].tx = p.channels[o.clientIndex].open
	case *amqpwire.TxCommit:
		p.channels[o.clientIndex].held = nil
	case *amqpwire.TxRollback:
		held := p.channels[o.clientIndex].held
		p.channels[o.clientIndex].held = nil
		p.channels[o.clientIndex].await(held...)
	}
	return answer
}

func (o method) String() string { return o.clientIndex.String() + " " + methodText(o.m) }

// publish publishes n messages whose bodies contain the number of the step.
type publish struct {
	clientIndex
	exchange, key string
	mandatory     bool
	n             int
	props         amqpwire.Properties
}

func (o publish) do(p *player) string {
	ln := p.channel(o.clientIndex)
	if o.props.Headers != nil {
		o.props.Flags |= amqpwire.PropHeaders
	}
	props, err := o.props.Append(nil)
	if err != nil {
		panic(err)
	}
	for i := range o.n {
		body := fmt.Sprintf("m%d.%d", p.step, i)
		rest := amqpwire.AppendHeaderFrame(nil, ln.id, 60, uint64(len(body)), props)
		rest = amqpwire.AppendBodyFrames(rest, ln.id, []byte(body), 0)
		ln.send(&amqpwire.BasicPublish{
			Exchange: p.name(o.exchange), RoutingKey: p.name(o.key), Mandatory: o.mandatory,
		}, rest...)
	}
	ln.sync()
	return "sent"
}

func (o publish) String() string {
	c := content{method: &amqpwire.BasicGetOk{}, props: o.props}
	if o.props.Headers != nil {
		c.props.Flags |= amqpwire.PropHeaders
	}
	_, props, _ := strings.Cut(c.String(), "0-left ")
	return fmt.Sprintf("%v publish %d to %q/%q mandatory=%v %s", o.clientIndex, o.n, o.exchange, o.key, o.mandatory, props)
}

// get gets a message from a queue.
type get struct {
	clientIndex
	queue string
	noAck bool
}

func (o get) do(p *player) string {
	ln := p.channel(o.clientIndex)
	ln.asked = o.queue
	if o.noAck {
		ln.asked = ""
	}
	return ln.call(&amqpwire.BasicGet{Queue: p.name(o.queue), NoAck: o.noAck})
}

func (o get) String() string {
	return fmt.Sprintf("%v get %s no-ack=%v", o.clientIndex, o.queue, o.noAck)
}

// consume sets the prefetch and starts a consumer.
type consume struct {
	clientIndex
	queue, tag       string
	prefetch         uint16
	noAck, exclusive bool
	priority         int32
}

func (o consume) do(p *player) string {
	ln := p.channel(o.clientIndex)
	if _, used := ln.source[o.tag]; !used && slices.ContainsFunc(ln.pending, func(d pendingDelivery) bool { return d.origin == o.tag }) {
		return "not consumed"
	}
	ln.call(&amqpwire.BasicQos{PrefetchCount: o.prefetch})
	m := &amqpwire.BasicConsume{Queue: p.name(o.queue), ConsumerTag: o.tag, NoAck: o.noAck, Exclusive: o.exclusive}
	if o.priority != 0 {
		m.Arguments = amqpwire.Table{{Name: "x-priority", Value: o.priority}}
	}
	if _, used := ln.source[o.tag]; !used && !o.noAck {
		ln.source[o.tag] = o.queue
	}
	return ln.call(m)
}

func (o consume) String() string {
	return fmt.Sprintf("%v consume %s as %s prefetch=%d no-ack=%v exclusive=%v priority=%d",
		o.clientIndex, o.queue, o.tag, o.prefetch, o.noAck, o.exclusive, o.priority)
}

// cancel cancels a consumer.
type cancel struct {
	clientIndex
	tag string
}

func (o cancel) do(p *player) string {
	ln := p.channel(o.clientIndex)
	answer := ln.call(&amqpwire.BasicCancel{ConsumerTag: o.tag})
	delete(ln.source, o.tag)
	return answer
}

func (o cancel) String() string { return fmt.Sprintf("%v cancel %s", o.clientIndex, o.tag) }

// settle settles the nth unsettled delivery of the client or, if multiple is set, all deliveries up to the nth. If the
// client has no unsettled delivery, the other client settles a delivery.
type settle struct {
	clientIndex
	how      how
	nth      int
	multiple bool
}

type how string

const (
	acked    how = "ack"
	nacked   how = "nack"
	requeued how = "nack-requeue"
	rejected how = "reject"
	returned how = "reject-requeue"
)

func (h how) method(tag uint64, multiple bool) amqpwire.Method {
	switch h {
	case acked:
		return &amqpwire.BasicAck{DeliveryTag: tag, Multiple: multiple}
	case nacked, requeued:
		return &amqpwire.BasicNack{DeliveryTag: tag, Multiple: multiple, Requeue: h == requeued}
	}
	return &amqpwire.BasicReject{DeliveryTag: tag, Requeue: h == returned}
}

func (o settle) do(p *player) string {
	ln := p.channels[o.clientIndex]
	if ln == nil || !ln.open || len(ln.pending) == 0 {
		ln = p.channels[1-o.clientIndex]
	}
	if ln == nil || !ln.open || len(ln.pending) == 0 {
		return "nothing to settle"
	}
	d := ln.pending[o.nth%len(ln.pending)]
	multiple := o.multiple && o.how != rejected && o.how != returned && !p.hasMixedSources(ln) && !p.hasSharedQueue(ln)
	tag := d.tag
	var settled, left []pendingDelivery
	for _, other := range ln.pending {
		if multiple && other.step == d.step {
			tag = max(tag, other.tag) // includes all deliveries of the same step, because their order is random
		}
	}
	for _, other := range ln.pending {
		if other.tag == tag || multiple && other.tag < tag {
			settled = append(settled, other)
		} else {
			left = append(left, other)
		}
	}
	ln.pending = left
	if ln.tx {
		ln.held = append(ln.held, settled...)
	}
	ln.send(o.how.method(tag, multiple))
	ln.settled = tag
	ln.sync()
	return "sent"
}

func (o settle) String() string {
	return fmt.Sprintf("%v %s its delivery %d multiple=%v", o.clientIndex, o.how, o.nth, o.multiple)
}

// settleAgain settles, a second time, the delivery that the client has settled most recently.
type settleAgain struct {
	clientIndex
	how how
}

func (o settleAgain) do(p *player) string {
	ln := p.channels[o.clientIndex]
	if ln == nil || !ln.open || ln.settled == 0 {
		return "nothing to settle"
	}
	ln.send(o.how.method(ln.settled, false))
	ln.sync()
	return "sent"
}

func (o settleAgain) String() string {
	return fmt.Sprintf("%v %s what it settled last", o.clientIndex, o.how)
}

// settleUnknown settles a delivery that does not exist.
type settleUnknown struct {
	clientIndex
	how      how
	tag      uint64
	multiple bool
}

func (o settleUnknown) do(p *player) string {
	ln := p.channel(o.clientIndex)
	multiple := o.multiple && (o.tag != 0 || len(ln.pending) == 0)
	ln.send(o.how.method(o.tag, multiple))
	ln.sync()
	return "sent"
}

func (o settleUnknown) String() string {
	return fmt.Sprintf("%v %s delivery tag %d multiple=%v", o.clientIndex, o.how, o.tag, o.multiple)
}

// reopen closes the channel of the client. The next operation of the client opens a new channel.
type reopen struct{ clientIndex }

func (o reopen) do(p *player) string {
	ln := p.channels[o.clientIndex]
	if ln == nil || !ln.open {
		return "is closed"
	}
	if p.hasMixedSources(ln) {
		return "not closed"
	}
	return ln.call(&amqpwire.ChannelClose{})
}

func (o reopen) String() string { return o.clientIndex.String() + " closes its channel" }
