package consume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/internal/ack"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/retry"
)

// session is one consuming channel. Deliveries belong to the session that they came on
// and are settled through it alone: delivery tags restart at 1 on each channel, so that on
// a later channel an ack would settle another message.
type session struct {
	consumer *Consumer
	conn     *amqpconn.Conn
	ch       *amqpconn.Channel
	acks     *ack.Acker

	// ctx ends when the channel is gone, or when a drain has given up waiting for
	// copies. In both cases the broker keeps what is not acked, and delivers it again.
	ctx context.Context
	end context.CancelCauseFunc

	// careful: the session takes one delivery at a time until one is settled. A message
	// that the AMQP client cannot read costs the connection, and all that was delivered
	// with it one of the deliveries that it is allowed. The next session gets it alone,
	// until the broker's delivery limit parks it.
	careful bool

	// countsNacks: the broker counts what is given back as a failed delivery.
	countsNacks bool

	// When the queue had answered last, it had the first proven commands. RabbitMQ's channel
	// may hold back others, and forgets them when it is closed: see ack.CertainWindow.
	proven atomic.Uint64

	// The goroutine of serve owns these.
	subscription subscription
	pending      []*Delivery // delivered, and not begun
	suspected    bool        // a message was to be handled alone, and none has begun since
	bursts       bursts
	shared       struct { // see inTime
		ctx   context.Context
		until time.Time // for deliveries before
	}
}

// session returns the session of a channel.
func (c *Consumer) session(conn *amqpconn.Conn, ch *amqpconn.Channel, careful bool) (*session, error) {
	s := &session{consumer: c, conn: conn, ch: ch, careful: careful, countsNacks: CountsNacks(conn.Version())}
	s.bursts.window = c.Window
	s.acks = ack.New(channel{ch, s})
	s.ctx, s.end = context.WithCancelCause(c.settling)
	context.AfterFunc(ch.Context(), s.lose)
	if err := c.Tasks.Go(s.settle); err != nil {
		s.end(err)
		return nil, err
	}
	return s, nil
}

// CountsNacks reports whether a broker counts what is given back by basic.nack as a
// failed delivery, as RabbitMQ does before 4.3. An unknown broker does not.
func CountsNacks(version string) bool {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, err1 := strconv.Atoi(major)
	y, err2 := strconv.Atoi(minor)
	return err1 == nil && err2 == nil && slices.Compare([]int{x, y}, []int{4, 3}) < 0
}

// channel is a channel as an acker needs it.
type channel struct {
	*amqpconn.Channel
	session *session
}

// Sync implements ack.Channel.
func (c channel) Sync() error { return c.Channel.Sync(c.session.ctx) }

// lose ends the session, whose channel is gone.
func (s *session) lose() {
	err := context.Cause(s.ch.Context())
	if err != amqpconn.ErrGone && err != amqpconn.ErrSilent {
		err = fmt.Errorf("consuming channel closed: %w", err)
	}
	s.end(err)
}

// settle writes settlements. If the channel takes none any more the session ends, for the
// broker to deliver its messages again.
func (s *session) settle() {
	err := s.acks.Run(s.ctx)
	if err != nil && !errors.Is(err, amqpconn.ErrGone) { // lose knows the reason
		s.end(fmt.Errorf("cannot settle: %w", err))
	}
}

// abandon leaves the session. Its attempts go on, and settle nothing.
func (s *session) abandon(reason error) {
	s.end(reason)
	_ = s.consumer.Tasks.Go(s.closeChannel) // a closed client has closed it
}

// closeChannel closes the channel when nothing else is written on it any more: an ack
// after the end of its channel ends the connection (504).
func (s *session) closeChannel() {
	<-s.acks.Done()
	s.ch.Close(context.Background())
}

// takenWithin is the time in which a quorum queue takes an ack. It mostly needs some
// milliseconds, and more than 30 if its disk is busy.
const takenWithin = time.Second

// close writes the settlements there are and closes the channel when RabbitMQ does not
// forget them, which gives back all other deliveries.
func (s *session) close(timeout time.Duration) {
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	defer cancel()
	s.acks.End()
	select {
	case <-s.acks.Done():
		if s.conn.IsRabbitMQ() && s.acks.Commands()-s.proven.Load() > ack.CertainWindow {
			_ = retry.Sleep(ctx, takenWithin)
		}
	case <-ctx.Done():
	}
	closed := make(chan struct{})
	err := s.consumer.Tasks.Go(func() {
		s.closeChannel() // later, if it takes longer
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
