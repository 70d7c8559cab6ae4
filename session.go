package reprise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/internal/ack"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/retry"
)

// session is one consuming channel, from open to gone. Deliveries belong to the
// session they came on and are settled through it alone.
type session struct {
	worker *Worker
	conn   *amqpconn.Conn
	ch     *amqpconn.Channel
	acks   *ack.Acker

	// ctx ends when the channel is gone, or when a drain has given up waiting
	// for copies: in both cases the broker keeps what is not acked, and
	// delivers it again.
	ctx context.Context
	end context.CancelCauseFunc

	// careful: takes one delivery at a time until one is settled. A message that
	// the AMQP client cannot read costs the connection, and every other that was
	// delivered with it one of the deliveries it is allowed. The next session
	// gets it by itself, until the broker's delivery limit parks it.
	careful bool

	// countsNacks: the broker counts what is given back as a failed delivery.
	countsNacks bool

	// forgetful: the channel may hold back acks for a quorum queue, and forgets those
	// when it is closed (see ack.CertainWindow). When the queue had answered last, it
	// had the first proven commands.
	forgetful bool
	proven    uint64

	prefetch int // of the subscription

	// pending was delivered and has not begun. Only serve uses it.
	pending []*delivery
}

var errConsumerCancelled = errors.New("the broker cancelled the consumer (queue deleted or moved, or a message kept for longer than its timeout)")

// consume keeps a session open until ctx ends, and returns the last one, still
// open, for the drain. An error means that going on is pointless.
func (w *Worker) consume(ctx context.Context) (*session, error) {
	retrier := retry.Retrier{Schedule: w.client.cfg.Reconnect}
	first, careful := true, false
	for ctx.Err() == nil {
		began := time.Now()
		s, err := w.open(ctx, careful)
		if err == nil {
			first = false
			err = s.serve(ctx)
			if err == nil {
				return s, nil // to be drained
			}
			s.abandon(err)
			careful = s.conn.Unreadable()
		}
		switch _, refused := errors.AsType[*DeclareError](err); {
		case ctx.Err() != nil:
			return nil, nil
		case errors.Is(err, ErrClosed), refused && first:
			return nil, err
		}
		delay := retrier.Failed(time.Since(began))
		w.log.Warn("consuming interrupted", "error", err, retry.Next(delay))
		w.interrupted(err, delay)
		if retry.Sleep(ctx, delay) != nil {
			return nil, nil
		}
	}
	return nil, nil
}

// open declares what is needed and opens a channel.
func (w *Worker) open(ctx context.Context, careful bool) (*session, error) {
	if err := w.client.declare(ctx, w.client.consuming, w.cfg.topology()); err != nil {
		return nil, err
	}
	conn, err := w.client.consuming.Get(ctx)
	if err != nil {
		return nil, err
	}
	ch, err := conn.Open(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{worker: w, conn: conn, ch: ch, careful: careful, countsNacks: countsNacks(conn.Version()), forgetful: conn.IsRabbitMQ()}
	s.acks = ack.New(settler{ch, s})
	s.ctx, s.end = context.WithCancelCause(w.settling)
	err = errors.Join(
		w.client.tasks.Go(s.watch),
		w.client.tasks.Go(s.settle),
	)
	if err != nil {
		s.end(err)
		return nil, err
	}
	return s, nil
}

// watch ends the session when its channel is gone.
func (s *session) watch() {
	<-s.ch.Done()
	err := s.ch.Err()
	if err != amqpconn.ErrGone && err != amqpconn.ErrSilent {
		err = fmt.Errorf("consuming channel closed: %w", err)
	}
	s.end(err)
}

// settle writes what is settled. A session that nothing can be settled on any more
// must not go on: what it was given would never be.
func (s *session) settle() {
	err := s.acks.Run(s.ctx)
	if err != nil && !errors.Is(err, amqpconn.ErrGone) { // watch knows why it is closed
		s.end(fmt.Errorf("cannot settle: %w", err))
	}
}

// abandon leaves the session behind. Its running handlers go on; what they
// settle goes nowhere.
func (s *session) abandon(reason error) {
	s.end(reason)
	_ = s.worker.client.tasks.Go(s.closeChannel) // a closed client has closed it
}

// closeChannel closes the channel when nothing else is written on it any more: an ack
// that follows the end of its channel ends the connection (504), and a request under
// way would take the answer for its own. Nothing may be asked after it.
func (s *session) closeChannel() {
	<-s.acks.Done()
	s.ch.Close(context.Background())
}

// close writes the settlements there are, waits until RabbitMQ cannot forget them,
// and closes the channel, which gives back all other deliveries.
func (s *session) close(patience time.Duration) {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	s.acks.End()
	select {
	case <-s.acks.Done():
		if s.forgetful && s.acks.Commands()-s.proven > ack.CertainWindow {
			_ = retry.Sleep(ctx, takenWithin)
		}
	case <-ctx.Done():
	}
	closed := make(chan struct{})
	err := s.worker.client.tasks.Go(func() {
		s.closeChannel() // later, if it takes longer
		close(closed)
	})
	if err == nil {
		select {
		case <-closed:
		case <-ctx.Done():
		}
	}
	s.end(ErrClosed)
}

// takenWithin is the time in which a quorum queue takes an ack. It mostly needs some
// milliseconds, and more than 30 where its disk is busy.
const takenWithin = time.Second

// settler is a channel as an acker needs it.
type settler struct {
	*amqpconn.Channel
	session *session
}

// Sync implements ack.Channel.
func (c settler) Sync() error { return c.Channel.Sync(c.session.ctx) }
