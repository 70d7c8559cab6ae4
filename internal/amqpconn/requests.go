package amqpconn

import (
	"context"
	"sync"
	"time"
)

// The client cannot give up a request: it waits until the broker has answered, or the
// connection has ended. Answers carry no number, and the client gives an answer to whoever
// waits. Therefore requests of a channel are made one at a time, on goroutines of their
// own, and a request that nobody waits for any more keeps its channel.

// maxUnanswered bounds the requests of a connection that the broker has not answered in
// time. Each keeps its channel open, and a connection has a limit of channels, 2047 with
// RabbitMQ's defaults. At the bound the connection is replaced, while others still get a
// channel. It is not replaced sooner, since that costs every message that was delivered on
// it one of its permitted deliveries.
const maxUnanswered = 128

// ask makes a request. It returns when the broker has answered, or the connection has ended.
func (c *Conn) ask(request func() error) error {
	most := min(maxUnanswered, max(1, int32(c.ChannelMax())/4))
	answered := c.expect(func() {
		if c.unanswered.Add(1) >= most {
			c.GiveUp(c.Timeout())
		}
	})
	defer func() {
		if late := answered(); late {
			c.unanswered.Add(-1)
		}
	}()
	return request()
}

// insist is ask for a request that no queue can keep the broker from answering. Without an
// answer, the broker does not read, and this connection ends: only another one helps.
func (c *Conn) insist(request func() error) error {
	answered := c.expect(func() { c.GiveUp(c.Timeout()) })
	err := request()
	if late := answered(); late && err != nil {
		err = ErrSilent
	}
	return err
}

// expect calls late unless answered is called within the Timeout, of which the time in which
// the broker has blocked the connection is no part. answered reports whether late was called.
func (c *Conn) expect(late func()) (answered func() bool) {
	var mu sync.Mutex
	var done, called bool
	var timer *time.Timer
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(c.Timeout(), func() {
		mu.Lock()
		left := c.leftToRead(c.Timeout())
		call := !done && left <= 0
		called = call
		if !done && left > 0 {
			timer.Reset(left)
		}
		mu.Unlock()
		if call {
			late()
		}
	})
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		done = true
		timer.Stop()
		return called
	}
}

// call runs a request on a goroutine. If ctx ends first, call returns and leaves the request
// to end by itself, at the latest with its connection; discard, if not nil, then cleans up.
func call(ctx context.Context, tasks *Tasks, request func() error, discard func()) error {
	result := make(chan error)
	gaveUp := make(chan struct{})
	err := tasks.Go(func() {
		err := request()
		select {
		case result <- err:
		case <-gaveUp:
			if err == nil && discard != nil {
				discard()
			}
		}
	})
	if err != nil {
		return err
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		close(gaveUp)
		return context.Cause(ctx)
	}
}

// request makes a request on the channel when those before it are answered. If there is no
// answer in time, the channel is of no more use, and its Context ends.
func (ch *Channel) request(ctx context.Context, request func() error, discard func()) error {
	select {
	case ch.turn <- struct{}{}:
	case <-ch.ctx.Done():
		return context.Cause(ch.ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return call(ctx, ch.conn.tasks, func() error {
		defer func() { <-ch.turn }()
		silent := time.AfterFunc(ch.conn.Timeout(), func() {
			ch.end(ErrSilent)
			cancel(ErrSilent)
		})
		defer silent.Stop()
		return translated(ch.conn.ask(request))
	}, discard)
}
