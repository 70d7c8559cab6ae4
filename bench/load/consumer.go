package load

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// consumer consumes from one or more queues on one channel.
type consumer struct {
	o        *Options
	link     *link
	channel  uint16
	progress *progress
	ledger   *ledger

	measuring atomic.Bool
	latency   *hdrhistogram.Histogram
	lateness  *hdrhistogram.Histogram
	late      int64
	early     int64

	// State of the incomplete delivery.
	expected amqpwire.FrameType
	queue    int
	tag      uint64
	left     uint64 // unread bytes of the body

	fresh int64 // number of messages received since the last flush
	at    int64
	ack   []byte // template: an encoded ack, without the delivery tag
	acks  []byte
}

// newHistogram returns a histogram of durations in nanoseconds, from 100 ns to one hour, with three significant digits.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(100, int64(time.Hour), 3)
}

func newConsumer(o *Options, l *link, run uint16, id int, progress *progress) (*consumer, error) {
	c := &consumer{
		o: o, link: l, progress: progress, ledger: newLedger(run),
		latency: newHistogram(), lateness: newHistogram(), expected: amqpwire.FrameMethod,
	}
	var err error
	if c.channel, err = l.channel(c); err != nil {
		return nil, err
	}
	if c.ack, err = amqpwire.AppendMethodFrame(nil, c.channel, &amqpwire.BasicAck{Multiple: o.Ack == AckMultiple}); err != nil {
		return nil, err
	}
	if o.Prefetch > 0 {
		if err := l.call(c.channel, &amqpwire.BasicQos{PrefetchCount: uint16(o.Prefetch)}, &amqpwire.BasicQosOk{}); err != nil {
			return nil, err
		}
	}
	for _, queue := range share(id, o.Consumers, o.Queues) {
		if err := l.call(c.channel, &amqpwire.BasicConsume{
			Queue: o.outName(queue), ConsumerTag: strconv.Itoa(queue), NoAck: o.Ack == AckAuto,
		}, &amqpwire.BasicConsumeOk{}); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *consumer) frame(f amqpwire.Frame, now int64) error {
	if f.Type != c.expected {
		return fmt.Errorf("consumer expected a frame of type %d%s", c.expected, reason(f))
	}
	switch f.Type {
	case amqpwire.FrameMethod:
		return c.deliver(f)
	case amqpwire.FrameHeader:
		h, err := amqpwire.ParseContentHeader(f.Payload)
		if err != nil {
			return err
		}
		if h.BodySize != uint64(c.o.Body) {
			return fmt.Errorf("body from queue %d must have %d bytes: got %d", c.queue, c.o.Body, h.BodySize)
		}
		c.expected, c.left = amqpwire.FrameBody, h.BodySize
		return nil
	}
	if c.left == uint64(c.o.Body) {
		if len(f.Payload) < stampSize {
			return fmt.Errorf("queue %d: first body frame must have at least %d bytes: got %d", c.queue, stampSize, len(f.Payload))
		}
		if err := c.receive(readStamp(f.Payload), now); err != nil {
			return err
		}
	}
	if uint64(len(f.Payload)) > c.left {
		return fmt.Errorf("queue %d: body is longer than its header announces", c.queue)
	}
	if c.left -= uint64(len(f.Payload)); c.left == 0 {
		c.expected = amqpwire.FrameMethod
		c.received()
	}
	return nil
}

// deliver parses a basic.deliver without allocating strings for its names. The consumer tag is the number of the queue.
func (c *consumer) deliver(f amqpwire.Frame) error {
	id, _ := amqpwire.PeekMethodID(f.Payload)
	if id != amqpwire.IDBasicDeliver {
		return fmt.Errorf("unexpected message at a consumer%s", reason(f))
	}
	b := f.Payload[4:]
	if len(b) < 1 || len(b) < 1+int(b[0])+9 {
		return fmt.Errorf("basic.deliver is truncated: got %d bytes", len(b))
	}
	c.queue = 0
	for _, digit := range b[1 : 1+b[0]] {
		c.queue = 10*c.queue + int(digit-'0')
	}
	b = b[1+b[0]:]
	c.tag = binary.BigEndian.Uint64(b)
	if redelivered := b[8]&1 != 0; redelivered {
		return fmt.Errorf("queue %d: message redelivered", c.queue)
	}
	c.expected = amqpwire.FrameHeader
	return nil
}

func (c *consumer) receive(s stamp, now int64) error {
	if err := c.ledger.receive(c.queue, s); err != nil {
		return err
	}
	c.at = now
	if !c.measuring.Load() {
		return nil
	}
	took := now - s.published
	_ = c.latency.RecordValue(min(max(took, 0), int64(time.Hour)))
	if c.o.TTL > 0 {
		late := took - int64(c.o.TTL)
		_ = c.lateness.RecordValue(min(max(late, 0), int64(time.Hour)))
		switch {
		case late > int64(c.o.Late):
			c.late++
		case late < 0:
			c.early++
		}
	}
	return nil
}

// received counts a message and, if the consumer acks each message, appends its ack to c.acks.
func (c *consumer) received() {
	c.fresh++
	if c.o.Ack == AckEach {
		c.appendAck()
	}
}

func (c *consumer) appendAck() {
	const tagAt = amqpwire.FrameOverhead - 1 + 4
	c.acks = append(c.acks, c.ack...)
	binary.BigEndian.PutUint64(c.acks[len(c.acks)-len(c.ack)+tagAt:], c.tag)
}

func (c *consumer) flush() {
	if c.fresh == 0 {
		return
	}
	if c.o.Ack == AckMultiple {
		c.appendAck()
	}
	if len(c.acks) > 0 {
		c.link.later.write(c.acks)
		c.acks = c.acks[:0]
	}
	c.progress.deliver(c.fresh, c.at)
	c.fresh = 0
}
