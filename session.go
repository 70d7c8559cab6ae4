package reprise

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/ack"
)

// session is one consuming channel, from open to gone. Deliveries belong to the
// session they came on and are settled through it alone.
type session struct {
	worker *Worker
	conn   *conn
	ch     *amqp.Channel
	acks   *ack.Acker
	asking chan struct{} // semaphore of one: see ask

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
	retry := retrier{schedule: w.client.cfg.Reconnect}
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
			careful = s.conn.choked()
		}
		switch _, refused := errors.AsType[*DeclareError](err); {
		case ctx.Err() != nil:
			return nil, nil
		case errors.Is(err, ErrClosed), refused && first:
			return nil, err
		}
		delay := retry.failed(time.Since(began))
		w.log.Warn("consuming interrupted", "error", err, nextTry(delay))
		w.interrupted(err, delay)
		if sleep(ctx, delay) != nil {
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
	conn, ch, err := w.client.channel(ctx, w.client.consuming)
	if err != nil {
		return nil, err
	}
	s := &session{worker: w, conn: conn, ch: ch, asking: make(chan struct{}, 1), careful: careful, countsNacks: countsNacks(conn.Properties), forgetful: isRabbitMQ(conn.Properties)}
	s.acks = ack.New(settler{ch, s})
	s.ctx, s.end = context.WithCancelCause(w.settling)
	closes := ch.NotifyClose(make(chan *amqp.Error, 1))
	err = errors.Join(
		w.client.spawn(func() { s.watch(closes) }),
		w.client.spawn(s.settle),
	)
	if err != nil {
		s.end(err)
		return nil, err
	}
	return s, nil
}

// watch ends the session when its channel is gone.
func (s *session) watch(closes <-chan *amqp.Error) {
	reason, ok := <-closes
	if !ok {
		s.end(errGone) // by ourselves, or before we looked
		return
	}
	s.end(fmt.Errorf("consuming channel closed: %w", inWords(reason)))
}

// settle writes what is settled. A session that nothing can be settled on any more
// must not go on: what it was given would never be.
func (s *session) settle() {
	err := s.acks.Run(s.ctx)
	if err != nil && !errors.Is(err, amqp.ErrClosed) { // watch knows why it is closed
		s.end(fmt.Errorf("cannot settle: %w", err))
	}
}

// ask makes a request that the broker answers, one at a time: answers carry no
// number, and the AMQP client gives one to whoever waits. A session whose broker
// gives none ends, for another one to be tried; the request goes on until the answer
// comes, or the end of the connection.
func (s *session) ask(request func() error) error {
	select {
	case s.asking <- struct{}{}:
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
	defer func() { <-s.asking }()
	defer time.AfterFunc(s.conn.patience(s.conn.timeout), func() { s.end(errSilent) }).Stop()
	return s.conn.ask(request)
}

// abandon leaves the session behind. Its running handlers go on; what they
// settle goes nowhere.
func (s *session) abandon(reason error) {
	s.end(reason)
	_ = s.worker.client.spawn(s.closeChannel) // a closed client has closed it
}

// closeChannel closes the channel when nothing else is written on it any more: an ack
// that follows the end of its channel ends the connection (504), and a request under
// way would take the answer for its own. Nothing may be asked after it.
func (s *session) closeChannel() {
	<-s.acks.Done()
	s.asking <- struct{}{}
	s.conn.closeChannel(s.ch)
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
			_ = sleep(ctx, takenWithin)
		}
	case <-ctx.Done():
	}
	_, _ = call(ctx, s.worker.client, func() (struct{}, error) {
		s.closeChannel() // if need be, later
		return struct{}{}, nil
	}, nil)
	s.end(ErrClosed)
}

// takenWithin is the time in which a quorum queue takes an ack. It mostly needs some
// milliseconds, and more than 30 where its disk is busy.
const takenWithin = time.Second

// isRabbitMQ reports whether a broker is RabbitMQ itself. Others that only do as
// RabbitMQ does call themselves so, too.
func isRabbitMQ(properties amqp.Table) bool {
	platform, _ := properties["platform"].(string)
	return strings.HasPrefix(platform, "Erlang")
}

// settler is a channel as an acker needs it.
type settler struct {
	*amqp.Channel
	session *session
}

// Sync implements ack.Channel. The request is one that changes nothing: the
// prefetch is that of consumers to come, and each sets its own.
func (c settler) Sync() error {
	return c.session.ask(func() error { return c.Qos(1, 0, false) })
}
