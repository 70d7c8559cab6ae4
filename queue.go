package reprise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/announce"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// Depth returns how many messages are ready in a queue: those that were delivered to a
// consumer and are not settled do not count. It returns a *QueueError if there is no
// such queue, or if this user or connection may not use it. It waits for a connection,
// and asks again if that is lost, until ctx ends.
// https://www.rabbitmq.com/amqp-0-9-1-reference#queue.declare-ok.message-count
func (c *Client) Depth(ctx context.Context, queue string) (int, error) {
	for failures := 1; ; failures++ {
		n, err := c.depth(ctx, queue)
		if err == nil || ctx.Err() != nil || !passes(err) {
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

// aboutQueue returns a *QueueError where the broker refused a request about a queue.
func aboutQueue(queue string, err error) error {
	if refusal, ok := amqpconn.RefusedChannel(err); ok {
		return &QueueError{Queue: queue, Code: refusal.Code, Text: refusal.Text}
	}
	return err
}

// MaxPeeks is how often a message may have been given back to its queue for Peek to look at
// it once more.
const MaxPeeks = 5

// Peek shows look the first n messages of a queue, in their order, one at a time, as
// WorkerConfig.AsDelivered does, and gives them back together. A queue that has fewer ends
// it early, and so does a message that was given back MaxPeeks times. It returns a
// *QueueError as Depth does.
//
// Looking is not free. Until it returns nobody else gets these messages. They are
// redelivered after it, and before RabbitMQ 4.3 each look counts towards the
// x-delivery-limit of a quorum queue, beyond which a message is dead-lettered or dropped:
// that is 20 unless it is set, so that MaxPeeks leaves room, but for a limit below it.
// A quorum queue keeps apart what was given back: of that, a look at a part
// changes the order. RabbitMQ 3.10 puts it at the tail of one that has no limit.
// https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling
func (c *Client) Peek(ctx context.Context, queue string, n int, look func(*Message)) error {
	conn, err := c.consuming.Get(ctx)
	if err != nil {
		return err
	}
	ch, err := conn.Open(ctx)
	if err != nil {
		return err
	}
	last, err := peek(ctx, ch, queue, n, look)
	if last > 0 {
		_ = ch.Nack(last, true, true) // or it is given back as the channel closes
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), consume.LastGrace)
	defer cancel()
	ch.Close(back)
	return aboutQueue(queue, err)
}

// peek returns the tag of the last message that it has got.
func peek(ctx context.Context, ch *amqpconn.Channel, queue string, n int, look func(*Message)) (last uint64, err error) {
	for range n {
		d, found, err := ch.Get(ctx, queue)
		if err != nil || !found {
			return last, err
		}
		last = d.Tag
		if given, _ := amqpvalue.Integer(d.Headers["x-delivery-count"]); given >= MaxPeeks {
			return last, nil
		}
		m := messageOf(&d, queue, amqpconn.CloneTable(d.Headers))
		look(&m)
	}
	return last, nil
}

// Verdict is what becomes of a message that was picked: see Client.Sift.
type Verdict int

const (
	GiveBack    Verdict = iota // it keeps its place in the queue
	Acknowledge                // it is gone
	DeadLetter                 // the broker dead-letters it, as if it had expired: basic.nack without requeue
)

const (
	// siftIdle is how long Sift waits for a message that the broker has counted.
	siftIdle = 2 * time.Second

	// siftAtOnce is how many settlements Sift sends at a time: RabbitMQ's channel holds back and forgets those beyond 32 that a quorum
	// queue has not taken. siftPause is the time that it gives the queue to take them.
	siftAtOnce = 24
	siftPause  = 20 * time.Millisecond
)

// Sift looks for messages in a queue that has no other consumer, such as a wait queue. It takes up to n of the messages that are ready
// out of the queue, in their order, shows each to pick as WorkerConfig.AsDelivered does, and stops early if pick reports the last.
// Then it calls settle with those that pick has picked, carries out its verdicts, one for each message, and gives all others back.
// It returns how many messages it has looked at, and whether there are more.
//
// All that it looks at is unacknowledged until it returns: nobody else gets these messages, and they do not expire. What is due
// meanwhile is dead-lettered when it is given back, and the others are where they were. A look does not count as a failed delivery on
// RabbitMQ 4.3 and later; before, it does, in quorum queues. If the process or the connection ends in between, each message stays as if
// given back, and that always counts as a failed delivery in quorum queues.
//
// An error after settle was called means that it is not known which of the verdicts were carried out. Without an error, they were sent
// to the queue; a quorum queue that has no majority at that moment may still give back messages. It returns a *QueueError as Depth does.
func (c *Client) Sift(ctx context.Context, queue string, n int, pick func(m *Message) (picked, last bool), settle func([]*Message) []Verdict) (looked int, more bool, err error) {
	conn, err := c.consuming.Get(ctx)
	if err != nil {
		return 0, false, err
	}
	ch, err := conn.Open(ctx)
	if err != nil {
		return 0, false, err
	}
	s := sieve{ch: ch, queue: queue, counted: consume.CountsNacks(conn.Version())}
	err = s.look(ctx, n, pick)
	rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), conn.Timeout())
	defer cancel()
	if err == nil {
		err = s.settle(rest, settle(s.picked))
	}
	ch.Close(rest)
	return s.looked, s.more, aboutQueue(queue, err)
}

// sieve is a Sift.
type sieve struct {
	ch      *amqpconn.Channel
	queue   string
	counted bool // giving back by nack counts, or changes the order
	looked  int
	more    bool
	picked  []*Message
	tags    []uint64 // of picked
}

// look consumes until it has seen enough, and cancels the consumer.
func (s *sieve) look(ctx context.Context, n int, pick func(*Message) (picked, last bool)) error {
	depth, err := s.ch.Depth(ctx, s.queue)
	if err != nil || depth == 0 || n <= 0 {
		return err
	}
	s.more = depth > n
	const tag = "sift"
	in, err := s.ch.Consume(ctx, s.queue, tag, min(n, depth, math.MaxUint16), nil, func(amqpconn.Deliveries) {})
	if err != nil {
		return err
	}
	idle := time.NewTimer(siftIdle)
	defer idle.Stop()
	for last := false; !last && s.looked < min(n, depth); {
		select {
		case d, ok := <-in:
			if !ok {
				return &QueueError{Queue: s.queue, Code: amqpconn.NotFound, Text: "the consumer was cancelled"}
			}
			var picked bool
			delivery := amqpconn.NewDelivery(d)
			m := messageOf(&delivery, s.queue, amqpconn.CloneTable(delivery.Headers))
			if picked, last = pick(&m); picked {
				s.picked, s.tags = append(s.picked, &m), append(s.tags, delivery.Tag)
			}
			s.looked++
			s.more = s.more || last && s.looked < depth
			idle.Reset(siftIdle)
		case <-idle.C:
			last = true // the others are due, or somebody else has them
		case <-s.ch.Context().Done():
			return context.Cause(s.ch.Context())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return s.ch.Cancel(ctx, tag)
}

// settle carries out verdicts, and gives the others back.
func (s *sieve) settle(ctx context.Context, verdicts []Verdict) error {
	sent := 0
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
		if sent++; sent%siftAtOnce == 0 {
			if err := cmp.Or(s.ch.Sync(ctx), retry.Sleep(ctx, siftPause)); err != nil {
				return err
			}
		}
	}
	if !s.counted && s.looked > 0 {
		if err := s.ch.Nack(0, true, true); err != nil {
			return err
		}
	}
	return s.ch.Sync(ctx)
}

// QueuePause returns the pause of a work queue, and false if it is not paused. See Control.
func (c *Client) QueuePause(ctx context.Context, queue string) (p topology.Pause, paused bool, err error) {
	conn, err := c.consuming.Get(ctx)
	if err != nil {
		return p, false, err
	}
	p, paused, err = announce.ReadPause(ctx, conn, queue)
	return p, paused, aboutQueue(topology.PauseQueuePrefix+queue, err)
}

// askTimeout is how long the statuses wait that come while workers are asked for them.
const askTimeout = 5 * time.Second

// WatchWorkers calls each, one at a time, with the statuses that announced workers of all processes send, until ctx ends. It asks
// them for one when it begins to listen, also after a lost connection. It returns the cause of the end of ctx, ErrClosed, or a
// *DeclareError if the broker refuses it. Package fleet keeps a list.
func (c *Client) WatchWorkers(ctx context.Context, each func(topology.WorkerStatus)) error {
	ask := func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		_ = c.Control(ctx, topology.Command{Do: topology.DoReport}) // else the statuses come within an interval
	}
	err := announce.Watch(ctx, c.consuming, c.cfg.Reconnect, ask, each)
	if _, refused := amqpconn.RefusedChannel(err); refused {
		return explainDeclare("exchange", topology.WorkersExchange, err)
	}
	return err
}

// Control sends a command to announced workers in all processes: see Config.Announce.
//
// The pause of a queue (Command.Worker is empty) is kept by the broker. It lasts until Pause.Until or DoResume, also while no
// worker and no operator runs, and holds for workers that start later. Control returns when the broker has it. Workers follow
// at once, or if they miss the command, within topology.StatusInterval. A paused worker finishes what it handles, and gives
// back what it has not begun.
//
// The pause of a worker ends with the worker. Control returns an *UnroutableError if no client listens. A client that listens
// and has no such worker is no error: the status of the worker tells whether it has paused.
func (c *Client) Control(ctx context.Context, command topology.Command) error {
	if command.Do != topology.DoReport && command.Queue == "" {
		return errors.New("reprise: Control: Command.Queue is empty: name the queue")
	}
	ofQueue := command.Worker == "" && command.Do != topology.DoReport
	var err error
	switch command.Do {
	case topology.DoPause:
		if command.Pause.At.IsZero() {
			command.Pause.At = time.Now()
		}
		if ofQueue {
			err = c.pauseQueue(ctx, command.Queue, command.Pause)
		}
	case topology.DoResume:
		if ofQueue {
			err = c.resumeQueue(ctx, command.Queue)
		}
	case topology.DoReport:
	default:
		err = fmt.Errorf("reprise: Control: Command.Do %q: use pause, resume or report", command.Do)
	}
	if err != nil {
		return err
	}
	if err = c.sendCommand(ctx, command); ofQueue {
		return nil // workers look at the queue anyway
	}
	return err
}

func (c *Client) sendCommand(ctx context.Context, command topology.Command) error {
	body, err := command.Encode()
	if err != nil {
		return err
	}
	if err := c.declare(ctx, c.publishing, topology.Workers()); err != nil {
		return err
	}
	msg := amqpconn.Message{ContentType: "application/json", Timestamp: time.Now(), Body: body}
	return c.publishOwn(ctx, topology.ControlExchange, command.Queue, &msg)
}

func (c *Client) pauseQueue(ctx context.Context, queue string, p topology.Pause) error {
	q, ok := topology.PauseQueue(queue)
	if !ok {
		return fmt.Errorf("reprise: queue %.40q… cannot be paused: its name is too long for the queue %s…", queue, topology.PauseQueuePrefix)
	}
	msg := amqpconn.Message{ContentType: "application/json", Timestamp: time.Now()}
	if !p.Until.IsZero() {
		left := time.Until(p.Until)
		if left <= 0 || left > amqpconn.MaxExpiration {
			return fmt.Errorf("reprise: Control: Pause.Until must be in the future, and at most ten years away: got %s", p.Until.Format(time.RFC3339))
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
	return aboutQueue(topology.PauseQueuePrefix+queue, announce.Resume(ctx, conn, queue))
}
