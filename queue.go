package reprise

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/reprisemq/reprise/internal/ack"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/announce"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// Depth returns the number of ready messages in a queue. It does not include messages that are delivered and not yet
// settled. It returns a *QueueError if the queue does not exist, or if this user or connection may not use it. It waits for
// a connection, and repeats the request after a lost connection, until ctx is done.
// https://www.rabbitmq.com/amqp-0-9-1-reference#queue.declare-ok.message-count
func (c *Client) Depth(ctx context.Context, queue string) (int, error) {
	for failures := 1; ; failures++ {
		n, err := c.depth(ctx, queue)
		if err == nil || ctx.Err() != nil || !isTransient(err) {
			return n, err
		}
		if retry.Sleep(ctx, c.cfg.Reconnect.Delay(failures)) != nil {
			return 0, err
		}
	}
}

func (c *Client) depth(ctx context.Context, queue string) (n int, err error) {
	conn, err := c.consuming.Get(ctx)
	if err != nil {
		return 0, err
	}
	err = conn.Do(ctx, func(ch *amqpconn.Channel) (err error) {
		n, err = ch.Depth(ctx, queue)
		return err
	})
	return n, aboutQueue(queue, err)
}

// CheckExchange returns an *UnroutableError if the exchange does not exist, and a *RefusedError if this user may not access
// it. It waits for a connection until ctx is done. It does not repeat the request after a lost connection.
func (c *Client) CheckExchange(ctx context.Context, exchange string) error {
	conn, err := c.consuming.Get(ctx)
	if err != nil {
		return err
	}
	return checkTarget(ctx, conn, target{exchange: exchange})
}

// aboutQueue converts a refusal by the broker to a *QueueError, and returns other errors unchanged.
func aboutQueue(queue string, err error) error {
	if refusal, ok := amqpconn.RefusedChannel(err); ok {
		return &QueueError{Queue: queue, Code: refusal.Code, Text: refusal.Text}
	}
	return err
}

// MaxPeeks is the number of failed deliveries (x-delivery-count) at which Peek refuses to examine a message on RabbitMQ
// before 4.3, where each Peek itself counts as a failed delivery.
const MaxPeeks = 5

// Peek calls examine with each of the first n messages of a queue, one at a time and in the order of the queue. The
// messages are unchanged, as with WorkerConfig.AsDelivered. Then Peek requeues all of them together. Peek stops early at
// the end of the queue. Before RabbitMQ 4.3, it stops with ErrPeekLimit at a message with MaxPeeks failed deliveries.
// Peek returns a *QueueError for the same reasons as Depth. It waits for a connection until ctx is done, and does not
// repeat the requests after a lost connection.
//
// Peek has side effects. Until it returns, no consumer receives these messages. Afterwards they are redelivered. Before
// RabbitMQ 4.3, each call counts towards the x-delivery-limit of a quorum queue, above which the broker dead-letters or
// drops a message. The default limit is 20. MaxPeeks protects only the messages after the first one: to read the count of
// the first message, Peek must receive and requeue that message. Do not call Peek again after ErrPeekLimit, and do not
// call it at all if the x-delivery-limit is MaxPeeks or less. A quorum queue stores requeued messages separately, so a
// Peek at only some of the messages changes the order. On RabbitMQ, a Peek at more than 32 messages can also change it.
// On RabbitMQ 3.10, a quorum queue without a delivery limit requeues messages to its tail.
// https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling
func (c *Client) Peek(ctx context.Context, queue string, n int, examine func(*Delivery)) error {
	conn, err := c.consuming.Get(ctx)
	if err != nil {
		return err
	}
	ch, err := conn.Open(ctx)
	if err != nil {
		return err
	}
	defer closeSoon(ctx, ch, consume.LastGrace) // requeues the messages if examine panics, or after an error of Nack
	limited := consume.CountsNacks(conn.Version())
	last, err := peek(ctx, ch, queue, n, limited, examine)
	if last > 0 && ch.Nack(last, true, true) == nil {
		awaitReturn(ctx, ch, queue, int(last))
	}
	return aboutQueue(queue, err)
}

const (
	returnTime = time.Second           // maximum time for which Peek and Sift wait until the queue shows the requeued messages
	settleTime = 32 * time.Millisecond // time after which a constant depth is final, because other messages were taken or have become due
)

// awaitReturn waits until a queue has n ready messages. A quorum queue of RabbitMQ processes a requeue later than the channel, so
// that the next request, for example of a redrive, could find an empty queue.
func awaitReturn(ctx context.Context, ch *amqpconn.Channel, queue string, n int) {
	ctx, cancel := context.WithTimeout(ctx, returnTime)
	defer cancel()
	before := 0
	for pause := time.Millisecond; ; pause *= 2 {
		depth, err := ch.Depth(ctx, queue)
		if err != nil || depth >= n || depth > 0 && depth == before && pause > settleTime || retry.Sleep(ctx, pause) != nil {
			return
		}
		before = depth
	}
}

// closeSoon closes a channel and waits for the broker's reply, even if ctx is done.
func closeSoon(ctx context.Context, ch *amqpconn.Channel, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	ch.Close(ctx)
}

// peek returns the tag of the last message that it received. If limited is set, MaxPeeks applies.
func peek(ctx context.Context, ch *amqpconn.Channel, queue string, n int, limited bool, examine func(*Delivery)) (last uint64, err error) {
	for range n {
		d, found, err := ch.Get(ctx, queue)
		if err != nil || !found {
			return last, err
		}
		last = d.Tag
		if limited && amqpvalue.DeliveryCount(d.Redelivered, d.Headers) >= MaxPeeks {
			return last, fmt.Errorf("queue %q: %w", queue, ErrPeekLimit)
		}
		m := messageOf(&d, queue, amqpconn.CloneTable(d.Headers))
		examine(&m)
	}
	return last, nil
}

// Verdict is the decision about a picked message: see Client.Sift.
type Verdict int

const (
	Requeue     Verdict = iota // the message stays in the queue
	Acknowledge                // the message is removed
	DeadLetter                 // the broker dead-letters the message as if it had expired (basic.nack without requeue)
)

// siftIdle is the maximum time that Sift waits for the next message, if the depth of the queue indicates that there is one.
const siftIdle = 2 * time.Second

// Sift examines messages in a queue that has no other consumer, such as a wait queue. The queue must not be
// auto-delete, because the broker would delete the queue and its messages when Sift cancels its consumer. Sift takes up
// to n ready messages out of the queue, in their order, and calls pick with each, unchanged as with
// WorkerConfig.AsDelivered. It stops early if pick returns true for last. Then it calls settle with the picked
// messages, applies the returned verdicts, one for each message, and requeues all other messages. It returns the number
// of examined messages, and whether the queue has more.
//
// The examined messages are unacknowledged until Sift returns. Until then no consumer receives them, and they do not
// expire. Afterwards, the broker dead-letters requeued messages that have become due, and returns the others to their
// places. If Sift stops before it has examined n messages, a quorum queue places the examined messages after messages
// that were requeued earlier and that Sift has not examined. On RabbitMQ 4.3 and later, an examination does not count
// as a failed delivery. Before 4.3, it counts in quorum queues. If the process exits or the connection is lost before Sift
// returns, the broker requeues all examined messages, which always counts as a failed delivery in quorum queues.
//
// If Sift returns an error after it has called settle, any of the verdicts may have been applied. Without an error, the
// verdicts were sent to the queue. A quorum queue that has no majority at that moment may still requeue messages. Sift
// returns a *QueueError for the same reasons as Depth.
func (c *Client) Sift(ctx context.Context, queue string, n int, pick func(m *Delivery) (picked, last bool), settle func([]*Delivery) []Verdict) (examined int, more bool, err error) {
	conn, err := c.consuming.Get(ctx)
	if err != nil {
		return 0, false, err
	}
	ch, err := conn.Open(ctx)
	if err != nil {
		return 0, false, err
	}
	defer closeSoon(ctx, ch, conn.Timeout()) // requeues the messages if pick or settle panics
	s := siftState{ch: ch, queue: queue, counted: consume.CountsNacks(conn.Version())}
	err = s.examine(ctx, n, pick)
	if err == nil {
		verdicts := settle(s.picked)
		rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), conn.Timeout())
		defer cancel()
		if err = s.settle(rest, verdicts); err == nil && s.examined > 0 {
			ch.Close(rest) // requeues the messages, unless settle has requeued them
			_ = conn.Do(rest, func(ch *amqpconn.Channel) error { awaitReturn(rest, ch, queue, s.depth-s.settled); return nil })
		}
	}
	return s.examined, s.more, aboutQueue(queue, err)
}

// siftState is the state of a Sift call.
type siftState struct {
	ch       *amqpconn.Channel
	queue    string
	counted  bool // set if a nack with requeue counts as a delivery, or changes the order
	depth    int  // number of ready messages at the start
	examined int
	settled  int // number of verdicts that remove a message
	more     bool
	picked   []*Delivery
	tags     []uint64 // delivery tags of picked
}

// examine consumes until it has examined enough messages, and then cancels the consumer.
func (s *siftState) examine(ctx context.Context, n int, pick func(*Delivery) (picked, last bool)) error {
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
	idle := time.NewTimer(siftIdle)
	defer idle.Stop()
	for last := false; !last && s.examined < min(n, depth); {
		select {
		case d, ok := <-in:
			if !ok {
				return &QueueError{Queue: s.queue, Code: amqpconn.NotFound, Text: "the broker canceled the consumer"}
			}
			var picked bool
			delivery := amqpconn.NewDelivery(d)
			m := messageOf(&delivery, s.queue, amqpconn.CloneTable(delivery.Headers))
			if picked, last = pick(&m); picked {
				s.picked, s.tags = append(s.picked, &m), append(s.tags, delivery.Tag)
			}
			s.examined++
			s.more = s.more || last && s.examined < depth
			idle.Reset(siftIdle)
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
func (s *siftState) settle(ctx context.Context, verdicts []Verdict) error {
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
func (s *siftState) proveSettled(ctx context.Context) error {
	const tag = "sift-end"
	if _, err := s.ch.Consume(ctx, s.queue, tag, 1, nil, func(amqpconn.Deliveries) {}); err != nil {
		return err
	}
	return s.ch.Cancel(ctx, tag)
}

// QueuePause returns the pause of a work queue, and whether the queue is paused. See Control.
func (c *Client) QueuePause(ctx context.Context, queue string) (p protocol.Pause, paused bool, err error) {
	conn, err := c.consuming.Get(ctx)
	if err != nil {
		return p, false, err
	}
	p, paused, err = announce.ReadPause(ctx, conn, queue)
	return p, paused, aboutQueue(protocol.PauseQueuePrefix+queue, err)
}

// askTimeout limits the time of the command that requests statuses, because statuses that arrive during the command
// have to wait.
const askTimeout = 5 * time.Second

// WatchWorkers calls f with each status of the announced workers in all processes, one at a time, until ctx is
// done. It requests the statuses when it starts to listen, and again after a lost connection. It returns the cause of
// ctx's cancellation, ErrClosed, or a *DeclareError if the broker refuses access. Package fleet maintains a list of the
// workers.
func (c *Client) WatchWorkers(ctx context.Context, f func(protocol.WorkerStatus)) error {
	ask := func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		_ = c.Control(ctx, protocol.Command{Do: protocol.DoReport}) // after an error, the statuses arrive within StatusInterval
	}
	err := announce.Watch(ctx, c.consuming, c.cfg.Reconnect, ask, f)
	if _, refused := amqpconn.RefusedChannel(err); refused {
		return explainDeclare("exchange", protocol.WorkersExchange, err)
	}
	return err
}

// Control sends a command to announced workers in all processes: see Config.Announce.
//
// If Command.Worker is empty, the command applies to the queue, and the broker stores the pause. The pause lasts until
// Pause.Until or DoResume, even if no worker and no operator is running, and also applies to workers that start later.
// Control returns after the broker has stored the pause. Workers pause immediately. A worker that misses the command
// pauses within protocol.StatusInterval. A paused worker finishes the messages that it handles, and requeues the
// others.
//
// If Command.Worker is set, the command applies only to that worker, and its pause lasts no longer than the worker. For
// such a command, and for DoReport, Control returns an *UnroutableError if no client listens. It does not return an error
// if clients listen but none of them has the worker. The status of the worker reports whether it has paused.
func (c *Client) Control(ctx context.Context, command protocol.Command) error {
	if command.Do != protocol.DoReport && command.Queue == "" {
		return errors.New("reprise: Control: Command.Queue must not be empty")
	}
	ofQueue := command.Worker == "" && command.Do != protocol.DoReport
	var err error
	switch command.Do {
	case protocol.DoPause:
		if command.Pause.At.IsZero() {
			command.Pause.At = time.Now()
		}
		if ofQueue {
			err = c.pauseQueue(ctx, command.Queue, command.Pause)
		}
	case protocol.DoResume:
		if ofQueue {
			err = c.resumeQueue(ctx, command.Queue)
		}
	case protocol.DoReport:
	default:
		err = fmt.Errorf("reprise: Control: Command.Do must be pause, resume or report: got %q", command.Do)
	}
	if err != nil {
		return err
	}
	if err = c.sendCommand(ctx, command); ofQueue {
		return nil // workers regularly check the pause of the queue anyway
	}
	return err
}

func (c *Client) sendCommand(ctx context.Context, command protocol.Command) error {
	body, err := command.Encode()
	if err != nil {
		return err
	}
	if err := c.declare(ctx, c.publishing, protocol.Workers()); err != nil {
		return err
	}
	msg := amqpconn.Message{ContentType: "application/json", Timestamp: time.Now(), Body: body}
	return c.publishOwn(ctx, protocol.ControlExchange, command.Queue, &msg)
}

func (c *Client) pauseQueue(ctx context.Context, queue string, p protocol.Pause) error {
	q, ok := protocol.PauseQueue(queue)
	if !ok {
		return fmt.Errorf("reprise: Control: Command.Queue must have at most %d bytes: got %d", math.MaxUint8-len(protocol.PauseQueuePrefix), len(queue))
	}
	msg := amqpconn.Message{ContentType: "application/json", Timestamp: time.Now()}
	if !p.Until.IsZero() {
		left := time.Until(p.Until)
		if left <= 0 || left > amqpconn.MaxExpiration {
			return fmt.Errorf("reprise: Control: Pause.Until must be in the future, within ten years: got %s", p.Until.Format(time.RFC3339))
		}
		msg.Expiration = amqpconn.FormatExpiration(left)
	}
	body, err := p.Encode()
	if err != nil {
		return err
	}
	msg.Body = body
	if err := c.declare(ctx, c.publishing, topology.Topology{Queues: []topology.Queue{q}}); err != nil {
		return err
	}
	return c.publishOwn(ctx, "", q.Name, &msg)
}

func (c *Client) resumeQueue(ctx context.Context, queue string) error {
	conn, err := c.publishing.Get(ctx)
	if err != nil {
		return err
	}
	return aboutQueue(protocol.PauseQueuePrefix+queue, announce.Resume(ctx, conn, queue))
}
