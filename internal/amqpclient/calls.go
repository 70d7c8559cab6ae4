package amqpclient

import (
	"errors"
	"slices"
	"sync"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Content is a message as the broker sent it.
type Content struct {
	Properties []byte // encoded; valid only during the call of a Handler
	Body       []byte
}

// calls are the requests of a channel that wait for their answers. The broker answers the requests of a channel in order.
type calls struct {
	order sync.Mutex // held while a request is written, so that requests are written in the order of waiting

	mu      sync.Mutex // not held while writing, because the goroutine that reads needs it
	waiting []*call
	err     error // the channel is closed
}

type call struct {
	request amqpwire.MethodID
	taken   func(amqpwire.Method, *Content) // may be nil; called before answered is closed
	answer  amqpwire.Method
	done    chan struct{}
	err     error
}

// call sends a request, and waits until the broker has answered or the channel has closed.
func (c *calls) call(m amqpwire.Method, send func(amqpwire.Method) error) (amqpwire.Method, error) {
	return c.take(m, send, nil)
}

// take is like call, and passes the answer to taken on the goroutine that reads.
func (c *calls) take(m amqpwire.Method, send func(amqpwire.Method) error, taken func(amqpwire.Method, *Content)) (amqpwire.Method, error) {
	one := &call{request: m.ID(), taken: taken, done: make(chan struct{})}
	if err := c.write(one, m, send); err != nil {
		return nil, err
	}
	<-one.done
	return one.answer, one.err
}

// write sends a request. If the connection closes during the write, it returns nil: the broker may have received the request, and
// the end of the channel, which follows, has the reason.
func (c *calls) write(one *call, m amqpwire.Method, send func(amqpwire.Method) error) error {
	c.order.Lock()
	defer c.order.Unlock()
	c.mu.Lock()
	err := c.err
	if err == nil {
		c.waiting = append(c.waiting, one)
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if err = send(m); errors.Is(err, ErrEncode) || errors.Is(err, ErrClosed) { // nothing was written
		c.mu.Lock()
		c.waiting = slices.DeleteFunc(c.waiting, func(other *call) bool { return other == one })
		c.mu.Unlock()
		return err
	}
	return nil
}

// answer passes an answer to the oldest request, and reports whether it is the answer to that request.
func (c *calls) answer(m amqpwire.Method, content *Content) bool {
	c.mu.Lock()
	if len(c.waiting) == 0 || !answers(c.waiting[0].request, m.ID()) {
		c.mu.Unlock()
		return false
	}
	one := c.waiting[0]
	c.waiting = c.waiting[1:]
	c.mu.Unlock()
	if one.taken != nil {
		one.taken(m, content)
	}
	one.answer = m
	close(one.done)
	return true
}

// answers reports whether a method is an answer to a request. The method number of an answer is that of the request plus 1,
// with two exceptions.
func answers(request, answer amqpwire.MethodID) bool {
	switch answer {
	case amqpwire.IDBasicGetEmpty:
		return request == amqpwire.IDBasicGet
	case amqpwire.IDExchangeUnbindOk:
		return request == amqpwire.IDExchangeUnbind
	}
	return answer == request+1
}

// end ends all requests with an error.
func (c *calls) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	for _, one := range c.waiting {
		one.err = c.err
		close(one.done)
	}
	c.waiting = nil
}
