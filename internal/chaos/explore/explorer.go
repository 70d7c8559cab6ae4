package explore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// Setting configures an exploration.
type Setting struct {
	Classic bool // use classic queues instead of quorum queues
}

// place is the broker and the queue of an exploration.
type place struct {
	Setting
	url   string
	dial  testkit.DialFunc
	queue string
}

// An explorer repeats the life of a message on a separate queue, one message at a time, and causes a failure at a given
// moment.
type explorer struct {
	place
	way  Way
	life Life

	ch       *amqp.Channel  // on a separate connection without failures
	messages int            // published so far
	leaving  sync.WaitGroup // stopped programs
}

// explore passes a new explorer for p to its argument explore.
func (at place) explore(p *Passage, explore func(x *explorer) error) (err error) {
	conn, err := amqp.DialConfig(at.url, amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
		return at.dial(context.Background(), network, addr)
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	x := &explorer{place: at, way: p.Way, life: p.Life, ch: ch}
	defer func() {
		x.leaving.Wait()
		for _, q := range x.way.classic(x.queue) {
			_, deleted := ch.QueueDelete(q.Name, false, false, false)
			err = errors.Join(err, deleted)
		}
	}()
	return explore(x)
}

// record returns the frames of a life without a failure.
func (x *explorer) record() ([]testkit.Crossing, error) {
	p, err := x.begin()
	if err != nil {
		return nil, err
	}
	defer x.end(p)
	if err := x.warmUp(p); err != nil {
		return nil, err
	}
	p.tap.Record()
	if err := x.publish(); err != nil {
		return nil, err
	}
	if got, err := x.outcome(p); got != Intact || err != nil {
		return nil, fmt.Errorf("outcome without a failure must be intact: got %s: %w", got, err)
	}
	all := p.tap.Recorded()
	return all[:x.life.frames(all)], nil
}

// explore causes a failure immediately before a frame of the script, and returns the outcome of the message.
func (x *explorer) explore(script []testkit.Crossing, at int, b Breakage) (_ Outcome, err error) {
	p, err := x.begin()
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w (waiting for %s)\n%s", err, p.tap.Waiting(), &p.log)
		}
		x.end(p)
	}()
	if err := x.warmUp(p); err != nil {
		return 0, err
	}
	broken := p.tap.Cut(testkit.Cut{
		Script: script, At: at, Lines: b.lines, Unnoticed: b.late, Refuse: b.ends,
		Then: func() {
			if !b.late && !b.ends {
				p.notice(b.lines)
			}
		},
	})
	if err := x.publish(); err != nil {
		return 0, err
	}
	if err := await(func() error {
		select {
		case <-broken:
			return nil
		default:
			return errors.New("the cut has not happened")
		}
	}); err != nil {
		return 0, err
	}
	switch {
	case b.late: // the worker may have no more frames to send
		if err := await(p.idle); err != nil {
			return 0, err
		}
		p.tap.Notice()
	case b.ends:
		successor, err := x.begin()
		if err != nil {
			return 0, err
		}
		defer x.end(successor)
		return x.outcome(successor, p)
	}
	return x.outcome(p)
}

// warmUp processes a message, because some brokers treat the first message of a consumer differently.
func (x *explorer) warmUp(p *program) error {
	if err := x.send(warmUp); err != nil {
		return err
	}
	err := await(func() error {
		if accountOf(p).acked == 0 {
			return errors.New("the first message is not done")
		}
		return p.idle()
	})
	p.first = accountOf(p)
	return err
}

const warmUp = "warm-up"

func (x *explorer) publish() error {
	x.messages++
	return x.send(x.id())
}

func (x *explorer) send(id string) error {
	confirm, err := x.ch.PublishWithDeferredConfirm("", x.queue, true, false, amqp.Publishing{
		MessageId: id, Body: []byte(id), DeliveryMode: amqp.Persistent,
	})
	if err == nil && !confirm.Wait() {
		err = errors.New("the broker did not confirm the message")
	}
	return err
}

func (x *explorer) id() string { return fmt.Sprint("message-", x.messages) }

// outcome waits until p has settled all attempts and no message is in flight. Then it counts the copies of the message
// that are parked or done. The slice before contains the predecessors of p.
func (x *explorer) outcome(p *program, before ...*program) (Outcome, error) {
	failed := topology.FailedQueue(x.queue)
	parked := 0
	var seen account
	err := await(func() error {
		seen = accountOf(append(before, p)...)
		if err := p.idle(); err != nil {
			return err
		}
		if !p.tap.Quiet() {
			return errors.New("a message is being published")
		}
		q, err := x.ch.QueueDeclarePassive(failed, true, false, false, false, nil)
		switch parked = q.Messages; {
		case err != nil:
			return err
		case seen != accountOf(append(before, p)...):
			return errors.New("messages are still in flight")
		case parked != seen.copies():
			return fmt.Errorf("failed queue must have %d copies: got %d", seen.copies(), parked)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for range parked {
		d, _, err := x.ch.Get(failed, true)
		if err != nil || d.MessageId != x.id() || string(d.Body) != d.MessageId {
			return 0, fmt.Errorf("parked message must have id and body %q: got id %q, body %q (%v)", x.id(), d.MessageId, d.Body, err)
		}
	}
	if x.life.Name == Done.Name {
		return outcomeOf(seen.acked), nil
	}
	return outcomeOf(parked), nil
}

// account counts the events of a message and its copies.
type account struct{ attempts, published, returned, acked int }

func accountOf(programs ...*program) (a account) {
	for _, p := range programs {
		a.attempts += p.count(reprise.EventStarted) - p.first.attempts
		a.published += p.tap.Crossed(testkit.Crossing{Line: publishing, Direction: testkit.ToServer, Name: "basic.publish: body"})
		a.returned += p.tap.Crossed(testkit.Crossing{Line: publishing, Direction: testkit.ToClient, Name: "basic.return: body"})
		a.acked += p.tap.Acked() - p.first.acked
	}
	return a
}

// copies returns the number of copies at the broker.
func (a account) copies() int { return 1 + a.published - a.returned - a.acked }

// timeout is the maximum duration of each step.
const timeout = 2 * time.Minute

// await waits until condition returns nil. After the timeout, it returns the last error of condition.
func await(condition func() error) error {
	deadline := time.Now().Add(timeout)
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := condition()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pause)
	}
}
