// Package sift takes single messages out of queues, such as wait queues.
package sift

import (
	"context"
	"math"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/ack"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/internal/inner"
)

// Verdict is the decision about a picked message.
type Verdict int

const (
	Requeue     Verdict = iota // the message stays in the queue
	Acknowledge                // the message is removed
	DeadLetter                 // the broker dead-letters the message as if it had expired (basic.nack without requeue)
)

// idleTime is the maximum time that Queue waits for the next message, if the depth of the queue indicates that there is one.
const idleTime = 2 * time.Second

// Queue examines messages in a queue that has no other consumer, such as a wait queue. The queue must not be
// auto-delete, because the broker would delete the queue and its messages when Queue cancels its consumer. Queue takes up
// to n ready messages out of the queue, in their order, and calls pick with each, unchanged as with
// reprise.WorkerConfig.AsDelivered. It stops early if pick returns true for last. Then it calls settle with the picked
// messages, applies the returned verdicts, one for each message, and requeues all other messages. It returns the number
// of examined messages, and whether the queue has more.
//
// The examined messages are unacknowledged until Queue returns. Until then no consumer receives them, and they do not
// expire. Afterwards, the broker dead-letters requeued messages that have become due, and returns the others to their
// places. If Queue stops before it has examined n messages, a quorum queue places the examined messages after messages
// that were requeued earlier and that Queue has not examined. On RabbitMQ 4.3 and later, an examination does not count
// as a failed delivery. Before 4.3, it counts in quorum queues. If the process exits or the connection is lost before Queue
// returns, the broker requeues all examined messages, which always counts as a failed delivery in quorum queues.
//
// If Queue returns an error after it has called settle, any of the verdicts may have been applied. Without an error, the
// verdicts were sent to the queue. A quorum queue that has no majority at that moment may still requeue messages. Queue
// returns a *reprise.QueueError for the same reasons as Client.Depth.
func Queue(ctx context.Context, client *reprise.Client, queue string, n int, pick func(m *reprise.Delivery) (picked, last bool), settle func([]*reprise.Delivery) []Verdict) (examined int, more bool, err error) {
	c := inner.Of(client)
	conn, err := c.Consuming.Get(ctx)
	if err != nil {
		return 0, false, err
	}
	ch, err := conn.Open(ctx)
	if err != nil {
		return 0, false, err
	}
	defer ch.CloseSoon(ctx, conn.Timeout()) // requeues the messages if pick or settle panics
	s := state{ch: ch, queue: queue, read: c.Read, counted: consume.CountsNacks(conn.Version())}
	err = s.examine(ctx, n, pick)
	if err == nil {
		verdicts := settle(s.picked)
		rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), conn.Timeout())
		defer cancel()
		if err = s.settle(rest, verdicts); err == nil && s.examined > 0 {
			ch.Close(rest) // requeues the messages, unless settle has requeued them
			_ = conn.Do(rest, func(ch *amqpconn.Channel) error { ch.AwaitReturn(rest, queue, s.depth-s.settled); return nil })
		}
	}
	return s.examined, s.more, c.Refused(queue, err)
}

// state is the state of a call of Queue.
type state struct {
	ch       *amqpconn.Channel
	queue    string
	read     func(d *amqpconn.Delivery, queue string) any
	counted  bool // set if a nack with requeue counts as a delivery, or changes the order
	depth    int  // number of ready messages at the start
	examined int
	settled  int // number of verdicts that remove a message
	more     bool
	picked   []*reprise.Delivery
	tags     []uint64 // delivery tags of picked
}

// examine consumes until it has examined enough messages, and then cancels the consumer.
func (s *state) examine(ctx context.Context, n int, pick func(*reprise.Delivery) (picked, last bool)) error {
	depth, err := s.ch.Depth(ctx, s.queue)
	if err != nil || depth == 0 || n <= 0 {
		return err
	}
	s.depth = depth
	s.more = depth > n
	const tag = "sift"
	in, err := s.ch.Consume(ctx, s.queue, tag, min(n, depth, math.MaxUint16), nil, func(amqpconn.Deliveries) {})
	if err != nil {
		return err
	}
	idle := time.NewTimer(idleTime)
	defer idle.Stop()
	for last := false; !last && s.examined < min(n, depth); {
		select {
		case d, ok := <-in:
			if !ok {
				return &reprise.QueueError{Queue: s.queue, Code: amqpconn.NotFound, Text: "the broker canceled the consumer"}
			}
			var picked bool
			delivery := d.Delivery
			m := s.read(&delivery, s.queue).(*reprise.Delivery)
			if picked, last = pick(m); picked {
				s.picked, s.tags = append(s.picked, m), append(s.tags, delivery.Tag)
			}
			s.examined++
			s.more = s.more || last && s.examined < depth
			idle.Reset(idleTime)
		case <-idle.C:
			last = true // the other messages have become due, or another consumer receives them
		case <-s.ch.Context().Done():
			return context.Cause(s.ch.Context())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return s.ch.Cancel(ctx, tag)
}

// settle applies the verdicts, and requeues the other messages.
func (s *state) settle(ctx context.Context, verdicts []Verdict) error {
	for i, tag := range s.tags[:min(len(s.tags), len(verdicts))] {
		var err error
		switch verdicts[i] {
		case Acknowledge:
			err = s.ch.Ack(tag, false)
		case DeadLetter:
			err = s.ch.Nack(tag, false, false)
		default:
			continue
		}
		if err != nil {
			return err
		}
		s.settled++
	}
	if s.settled > ack.CertainWindow {
		if err := s.proveSettled(ctx); err != nil {
			return err
		}
	}
	if !s.counted && s.examined > 0 {
		if err := s.ch.Nack(0, true, true); err != nil {
			return err
		}
	}
	return s.ch.Sync(ctx)
}

// proveSettled returns when the queue has processed all verdicts. While more than 32 acks wait for a quorum queue to process
// them, a RabbitMQ channel holds back further acks, and loses them when it closes. A reply on the channel therefore does not
// prove that the queue has processed the acks (docs/guarantees.md, Many acks in a row). However, the queue itself answers
// the start and the cancellation of a consumer, after all earlier requests. The consumer may receive a message, which is
// requeued together with the others.
func (s *state) proveSettled(ctx context.Context) error {
	const tag = "sift-end"
	if _, err := s.ch.Consume(ctx, s.queue, tag, 1, nil, func(amqpconn.Deliveries) {}); err != nil {
		return err
	}
	return s.ch.Cancel(ctx, tag)
}
