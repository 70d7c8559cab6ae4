package consume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/internal/ack"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/retry"
)

// session is one consuming channel. Deliveries belong to the session that received them
// and are settled only through it. Delivery tags restart at 1 on each channel, so an ack on
// a later channel would settle another message.
type session struct {
	consumer *Consumer
	conn     *amqpconn.Conn
	ch       *amqpconn.Channel
	acks     *ack.Acker

	// ctx is canceled when the session ends: for example, when the channel closes, or when a drain has stopped waiting for
	// copies. The broker then keeps unacked messages and redelivers them.
	ctx context.Context
	end context.CancelCauseFunc

	// careful limits the session to one delivery at a time until one is settled. If the AMQP client cannot read a
	// message, it closes the connection. The lost connection counts towards the delivery limit of all messages that were
	// delivered with the unreadable message. The next session receives the unreadable message alone, until the broker
	// dead-letters it at the delivery limit.
	careful bool

	// countsNacks reports whether the broker counts a requeue as a failed delivery.
	countsNacks bool

	// queueAnswered is the number of commands that the queue had processed when it last answered. RabbitMQ's channel
	// may hold back further commands, and loses them when it closes; see ack.CertainWindow.
	queueAnswered atomic.Uint64

	held       [holdings]atomic.Int32 // deliveries that stay unsettled; see Delivery.hold
	delayed    delayedAcks
	checkQueue func() error  // refuseStream, called once
	heldMore   chan struct{} // receives a token after held has increased

	// Only the goroutine of serve uses these fields.
	subscription subscription
	pending      pending       // delivered, without an attempt
	repeated     []*Delivery   // redelivered, while a handler still processes the message
	searchFrom   int           // lane in which search begins
	searched     int           // number of lanes that were searched
	chosen       *Delivery     // pending delivery that search has found, or that must be handled alone
	yielded      chan struct{} // must be closed after errBusy, when the subscription has ended
	suspected    bool          // a message must be handled alone, and no attempt has started since
	bursts       bursts
	shared       struct { // see inTime
		ctx   context.Context
		until time.Time // for deliveries before this time
	}
}

// session starts the session of a channel.
func (c *Consumer) session(conn *amqpconn.Conn, ch *amqpconn.Channel, careful bool) (*session, error) {
	s := &session{consumer: c, conn: conn, ch: ch, careful: careful, countsNacks: CountsNacks(conn.Version()), heldMore: make(chan struct{}, 1)}
	s.pending.lanes = make([][]*Delivery, max(1, len(c.Lanes)))
	s.bursts.window = c.Window
	s.acks = ack.New(channel{ch, s})
	s.checkQueue = sync.OnceValue(s.refuseStream)
	s.ctx, s.end = context.WithCancelCause(c.settling)
	context.AfterFunc(ch.Context(), s.endWithChannel)
	if err := c.Tasks.Go(s.settle); err != nil {
		s.end(err)
		return nil, err
	}
	return s, nil
}

// refuseStream returns ErrStream if the queue is a stream.
func (s *session) refuseStream() error {
	stream := false
	for _, queue := range s.consumer.queues() {
		err := s.conn.Do(s.ctx, func(ch *amqpconn.Channel) (err error) {
			stream, err = ch.IsStream(s.ctx, queue)
			return err
		})
		if stream {
			return ErrStream
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// CountsNacks reports whether a broker counts a requeue by basic.nack as a failed delivery, as RabbitMQ does before 4.3.
// It returns false for an unknown version.
func CountsNacks(version string) bool {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, err1 := strconv.Atoi(major)
	y, err2 := strconv.Atoi(minor)
	return err1 == nil && err2 == nil && slices.Compare([]int{x, y}, []int{4, 3}) < 0
}

// channel adapts a channel to ack.Channel.
type channel struct {
	*amqpconn.Channel
	session *session
}

// Sync implements ack.Channel.
func (c channel) Sync() error { return c.Channel.Sync(c.session.ctx) }

// endWithChannel ends the session after its channel has closed.
func (s *session) endWithChannel() {
	err := context.Cause(s.ch.Context())
	if err != amqpconn.ErrGone && err != amqpconn.ErrSilent {
		err = fmt.Errorf("consuming channel closed: %w", err)
	}
	s.end(err)
}

// settle writes settlements. If the channel no longer accepts settlements, settle ends the
// session, so that the broker redelivers its messages.
func (s *session) settle() {
	err := s.acks.Run(s.ctx)
	if err != nil && !errors.Is(err, amqpconn.ErrGone) { // endWithChannel sets the cause
		s.end(fmt.Errorf("cannot settle: %w", err))
	}
}

// abandon ends the session. Its attempts continue, but cannot settle their messages.
func (s *session) abandon(reason error) {
	s.end(reason)
	_ = s.consumer.Tasks.Go(s.closeChannel) // fails only if the client is closed, which also closes the channel
}

// closeChannel closes the channel after the last write on it. An ack on a closed channel would close the connection (504).
func (s *session) closeChannel() {
	<-s.acks.Done()
	s.ch.Close(context.Background())
}

// quorumAckTime is an upper bound for the time that a quorum queue needs to process an ack: usually a few milliseconds,
// but more than 30 if the disk is busy.
const quorumAckTime = time.Second

// awaitQueue waits until RabbitMQ can no longer lose the written settlements when the channel closes.
func (s *session) awaitQueue(ctx context.Context) {
	if s.conn.IsRabbitMQ() && s.acks.Commands()-s.queueAnswered.Load() > ack.CertainWindow {
		_ = retry.Sleep(ctx, quorumAckTime)
	}
}

// close writes the remaining settlements and waits, for at most timeout, until RabbitMQ can no longer lose them. It then
// closes the channel, which requeues all unsettled deliveries.
func (s *session) close(timeout time.Duration) {
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	defer cancel()
	s.acks.End()
	select {
	case <-s.acks.Done():
		s.awaitQueue(ctx)
	case <-ctx.Done():
	}
	closed := make(chan struct{})
	err := s.consumer.Tasks.Go(func() {
		s.closeChannel() // may take longer than ctx
		close(closed)
	})
	if err == nil {
		select {
		case <-closed:
		case <-ctx.Done():
		}
	}
	s.end(amqpconn.ErrClosed)
}
