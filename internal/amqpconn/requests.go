package amqpconn

import (
	"context"
	"sync"
	"time"
)

// The client cannot cancel a request. A request waits until the broker has answered or the connection has closed.
// Answers do not carry a number, and the client passes an answer to any waiting request. Therefore a channel makes one
// request at a time, each on a separate goroutine, and an abandoned request occupies its channel until the answer
// arrives.

// maxUnanswered is the maximum number of overdue requests of a connection. Each of them keeps its channel open, and the
// broker limits the number of channels of a connection (RabbitMQ: 2047 by default). At the maximum (or at a quarter of
// the channel limit, if that is lower), ask closes the connection, so that the Link replaces it while other requests can
// still open a channel. ask does not close the connection earlier, because a lost connection counts towards the delivery
// limit of each message that was delivered on it.
const maxUnanswered = 128

// ask makes a request. It returns when the broker has answered, or after the connection has closed.
func (c *Conn) ask(request func() error) error {
	limit := min(maxUnanswered, max(1, int32(c.ChannelMax())/4))
	answered := c.expect(func() {
		if c.unanswered.Add(1) >= limit {
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

// askConnection is like ask, for a request whose answer does not depend on a queue. If the answer is late, the broker
// does not read, so askConnection closes the connection.
func (c *Conn) askConnection(request func() error) error {
	answered := c.expect(func() { c.GiveUp(c.Timeout()) })
	err := request()
	if late := answered(); late && err != nil {
		err = ErrSilent
	}
	return err
}

// expect calls late() after c.Timeout(), unless the caller calls answered first. When the broker unblocks the
// connection, the timeout starts again. answered reports whether late was called.
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

// call runs a request on a goroutine. If ctx is canceled first, call returns, and the request continues, at most until
// its connection closes. If the abandoned request succeeds, the goroutine calls discard to clean up, unless discard is nil.
func call(ctx context.Context, tasks *Tasks, request func() error, discard func()) error {
	result := make(chan error)
	abandoned := make(chan struct{})
	err := tasks.Go(func() {
		err := request()
		select {
		case result <- err:
		case <-abandoned:
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
		close(abandoned)
		return context.Cause(ctx)
	}
}

// request makes a request on the channel after all earlier requests. If the answer is late, the channel is no longer usable,
// and request cancels its Context.
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
