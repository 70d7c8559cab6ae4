package reprise

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// session is one consuming channel, from open to gone. Deliveries belong to the
// session they came on and are settled through it alone.
type session struct {
	worker *Worker
	conn   *conn
	ch     *amqp.Channel
	acks   *acker

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
}

// errSettled ends the care that is taken at the beginning of a session.
var errSettled = errors.New("a delivery was settled")

var errConsumerCancelled = errors.New("the broker cancelled the consumer (queue deleted, or moved)")

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
		w.log.Warn("consuming interrupted", "error", err, "next_try", delay)
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
	s := &session{worker: w, conn: conn, ch: ch, acks: newAcker(ch), careful: careful}
	s.ctx, s.end = context.WithCancelCause(w.settling)
	closes := ch.NotifyClose(make(chan *amqp.Error, 1))
	err = errors.Join(
		w.client.spawn(func() { s.watch(closes) }),
		w.client.spawn(func() { s.acks.run(s.ctx) }),
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
	s.end(fmt.Errorf("consuming channel closed: %w", reason))
}

// abandon leaves the session behind. Its running handlers go on; what they
// settle goes nowhere.
func (s *session) abandon(reason error) {
	s.end(reason)
	_ = s.worker.client.spawn(func() { closeChannel(s.ch) }) // a closed client has closed it
}

// close writes the settlements there are and closes the channel, which gives
// back all other deliveries.
func (s *session) close(patience time.Duration) {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	s.acks.end()
	select {
	case <-s.acks.done:
	case <-ctx.Done():
	}
	_, _ = call(ctx, s.worker.client, func() (struct{}, error) { return struct{}{}, s.ch.Close() }, nil)
	s.end(ErrClosed)
}

// serve consumes until the channel is gone (an error) or ctx ends (nil). A
// consumer that the broker cancels is replaced on the same channel, so that
// what it was given before can still be settled.
func (s *session) serve(ctx context.Context) error {
	w := s.worker
	retry := retrier{schedule: w.client.cfg.Reconnect}
	prefetch, settled := w.cfg.Prefetch, (<-chan struct{})(nil)
	if s.careful && prefetch > 1 {
		prefetch, settled = 1, s.acks.first
	}
	for n := 1; ; n++ {
		began := time.Now()
		tag := fmt.Sprintf("%s-%d", w.client.cfg.Name, n)
		deliveries, err := call(ctx, w.client, func() (<-chan amqp.Delivery, error) {
			if err := s.ch.Qos(prefetch, 0, false); err != nil { // of consumers to come
				return nil, err
			}
			return s.ch.Consume(w.cfg.Queue, tag, false, false, false, false, nil)
		}, nil)
		if err != nil {
			return s.unless(ctx, err)
		}
		w.log.Info("consuming", "generation", s.conn.gen, "prefetch", prefetch)
		err = s.pump(ctx, deliveries, settled)
		if errors.Is(err, errSettled) {
			prefetch, settled = w.cfg.Prefetch, nil
			err = s.replaced(ctx, tag, deliveries)
			if errors.Is(err, errConsumerCancelled) {
				continue
			}
		}
		switch {
		case err == nil:
			s.unsubscribe(tag, deliveries)
			return nil
		case !errors.Is(err, errConsumerCancelled):
			return err
		}
		delay := retry.failed(time.Since(began))
		w.log.Warn("consumer cancelled", "next_try", delay)
		if sleep(ctx, delay) != nil {
			return nil
		}
		if err := w.client.declare(ctx, w.client.consuming, w.cfg.topology()); err != nil {
			return s.unless(ctx, err)
		}
	}
}

// replaced ends a consumer that another one will follow, and starts what it was
// given until then.
func (s *session) replaced(ctx context.Context, tag string, deliveries <-chan amqp.Delivery) error {
	_, err := call(ctx, s.worker.client, func() (struct{}, error) { return struct{}{}, s.ch.Cancel(tag, false) }, nil)
	if err != nil {
		return s.unless(ctx, err)
	}
	return s.pump(ctx, deliveries, nil)
}

// unless drops an error that only says that ctx has ended: the session is as
// good as before, and what was given out on it can still be settled.
func (s *session) unless(ctx context.Context, err error) error {
	if ctx.Err() != nil && s.ctx.Err() == nil {
		return nil
	}
	return err
}

// pump starts an attempt for each delivery, as slots allow. It returns nil when
// ctx has ended, and errSettled when settled is closed.
func (s *session) pump(ctx context.Context, deliveries <-chan amqp.Delivery, settled <-chan struct{}) error {
	w := s.worker
	for {
		select {
		case raw, ok := <-deliveries:
			if !ok {
				return s.whyClosed()
			}
			select {
			case w.slots <- struct{}{}:
				w.attempts.Go(func() { w.attempt(s, raw) })
			case <-s.ctx.Done():
				return context.Cause(s.ctx)
			case <-ctx.Done():
				s.acks.giveBack(raw.DeliveryTag)
				return nil
			}
		case <-settled:
			return errSettled
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// whyClosed tells a cancelled consumer from a closed channel.
func (s *session) whyClosed() error {
	if s.ch.IsClosed() {
		<-s.ctx.Done() // watch is about to say why
		return context.Cause(s.ctx)
	}
	return errConsumerCancelled
}

// unsubscribe stops consuming and gives back every delivery that was not
// started.
func (s *session) unsubscribe(tag string, deliveries <-chan amqp.Delivery) {
	ctx, cancel := context.WithTimeout(s.ctx, lastGrace)
	defer cancel()
	_, err := call(ctx, s.worker.client, func() (struct{}, error) { return struct{}{}, s.ch.Cancel(tag, false) }, nil)
	if err != nil {
		return // the channel is gone, or will be closed: both give back everything
	}
	returned := 0
	for raw := range deliveries {
		s.acks.giveBack(raw.DeliveryTag)
		returned++
	}
	s.worker.log.Info("consuming stopped", "given_back", returned)
}
