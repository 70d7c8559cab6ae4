package load

import (
	"fmt"
	"math"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

const (
	classBasic = 60
	// writeSize is the approximate maximum size of a write in bytes.
	writeSize = 1 << 16
)

// publisher publishes to one or more queues in turn.
type publisher struct {
	o        *Options
	link     *link
	channel  uint16
	run, id  uint16
	targets  []target
	next     int
	window   *window // nil without publisher confirms
	progress *progress
	buf      []byte
}

// target is a queue to which a publisher publishes.
type target struct {
	queue    int
	encoded  []byte // the method, the header and the body of a message
	stampAt  int    // offset of the body
	messages int64  // number of messages sent
}

func newPublisher(o *Options, l *link, run, id uint16, progress *progress) (*publisher, error) {
	p := &publisher{o: o, link: l, run: run, id: id, progress: progress}
	var err error
	if p.channel, err = l.channel(p); err != nil {
		return nil, err
	}
	for _, queue := range share(int(id), o.Publishers, o.Queues) {
		t, err := newTarget(o, p.channel, queue, l.frameMax)
		if err != nil {
			return nil, err
		}
		p.targets = append(p.targets, t)
	}
	if o.Confirms == 0 {
		return p, nil
	}
	p.window = newWindow(o.Confirms)
	return p, l.call(p.channel, &amqpwire.ConfirmSelect{}, &amqpwire.ConfirmSelectOk{})
}

func newTarget(o *Options, channel uint16, queue int, frameMax uint32) (target, error) {
	t := target{queue: queue}
	b, err := amqpwire.AppendMethodFrame(nil, channel, &amqpwire.BasicPublish{RoutingKey: o.queueName(queue)})
	if err != nil {
		return t, err
	}
	properties := amqpwire.Properties{Flags: amqpwire.PropDeliveryMode, DeliveryMode: 2}
	if o.Transient {
		properties.DeliveryMode = 1
	}
	encoded, err := properties.Append(nil)
	if err != nil {
		return t, err
	}
	b = amqpwire.AppendHeaderFrame(b, channel, classBasic, uint64(o.Body), encoded)
	t.stampAt = len(b) + amqpwire.FrameOverhead - 1
	t.encoded = amqpwire.AppendBodyFrames(b, channel, make([]byte, o.Body), frameMax)
	return t, nil
}

// publish publishes until the plan is complete or the window is closed.
func (p *publisher) publish(plan plan) error {
	batch := max(1, int64(writeSize/len(p.targets[0].encoded)))
	for sent := int64(0); sent < plan.count; {
		n, at := min(batch, plan.count-sent), int64(0)
		if plan.paced() {
			var due int64
			due, at = plan.wait(sent)
			n = min(n, due)
		}
		if clock() >= plan.end {
			return nil
		}
		if p.window != nil {
			if n = p.window.reserve(n); n == 0 {
				return nil
			}
		}
		if at == 0 || p.o.TTL > 0 { // not when the message was due: the TTL starts when the broker receives the message
			at = clock()
		}
		if err := p.write(n, at); err != nil {
			return fmt.Errorf("cannot publish: %w", err)
		}
		sent += n
		p.progress.published.Add(n)
	}
	return nil
}

// write stamps n messages with the time at, and sends them in one call of conn.Write.
func (p *publisher) write(n, at int64) error {
	p.buf = p.buf[:0]
	for range n {
		t := &p.targets[p.next]
		if p.next++; p.next == len(p.targets) {
			p.next = 0
		}
		if t.messages > math.MaxUint32 {
			return fmt.Errorf("queue %d must receive at most %d messages per publisher", t.queue, int64(math.MaxUint32))
		}
		start := len(p.buf)
		p.buf = append(p.buf, t.encoded...)
		stamp{published: at, run: p.run, publisher: p.id, number: uint32(t.messages)}.put(p.buf[start+t.stampAt:])
		t.messages++
	}
	_, err := p.link.conn.Write(p.buf)
	return err
}

// frame handles a publisher confirm, the only frame that a publisher expects.
func (p *publisher) frame(f amqpwire.Frame, now int64) error {
	id, _ := amqpwire.PeekMethodID(f.Payload)
	if f.Type != amqpwire.FrameMethod || id != amqpwire.IDBasicAck || p.window == nil {
		return fmt.Errorf("unexpected reply to publisher %d%s", p.id, reason(f))
	}
	var ack amqpwire.BasicAck
	if err := amqpwire.Parse(f.Payload[4:], &ack); err != nil {
		return err
	}
	if err := p.window.ack(ack.DeliveryTag, ack.Multiple); err != nil {
		return fmt.Errorf("publisher %d: %w", p.id, err)
	}
	p.progress.confirmedAt.Store(now)
	return nil
}

func (p *publisher) flush() {
	if p.window == nil {
		return
	}
	fresh, err := p.window.flush()
	if err != nil {
		p.progress.fail(fmt.Errorf("publisher %d: %w", p.id, err))
	}
	if fresh > 0 {
		p.progress.confirm(fresh)
	}
}
