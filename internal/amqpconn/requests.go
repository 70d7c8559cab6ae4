package amqpconn

import (
	"context"
	"sync"
	"time"
)

// The client cannot cancel a request. A request waits until the broker has answered or the connection has closed.
// Answers do not carry a number, and the client passes an answer to any waiting request. Therefore a channel makes one
// request at a time, each on a separate goroutine, and an abandoned request keeps its channel.

// maxUnanswered is the maximum number of a connection's requests without an answer in time. Each of them keeps its
// channel open, and a connection has a limit of channels, 2047 with RabbitMQ's defaults. At the maximum the client
// replaces the connection, while other requests still get a channel. It does not replace the connection earlier,
// because each message that was delivered on the connection would lose one of its permitted deliveries.
const maxUnanswered = 128

// ask makes a request. It returns when the broker has answered, or after the end of the connection.
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

// insist is ask for a request whose answer does not depend on a queue. Without an answer in time, the broker does not
// read, and insist ends the connection, because only another connection helps.
func (c *Conn) insist(request func() error) error {
	answered := c.expect(func() { c.GiveUp(c.Timeout()) })
	err := request()
	if late := answered(); late && err != nil {
		err = ErrSilent
	}
	return err
}

// expect calls late unless the caller calls answered within the Timeout. Time in which the broker has blocked the
// connection does not count. answered reports whether late was called.
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

// call runs a request on a goroutine. If ctx is canceled first, call returns, and the request continues, at the latest
// until its connection closes. If that request succeeds, the goroutine calls discard, if not nil, to clean up.
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

// request makes a request on the channel after all earlier requests. Without an answer in time, the channel is no
// longer usable, and request cancels its Context.
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
