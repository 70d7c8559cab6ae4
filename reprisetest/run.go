package reprisetest

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// Run calls test with a broker, both in a bubble of testing/synctest, and ends
// all that it started before it returns. Call t.Parallel before Run: the t that
// test is given has no Run, Parallel and Deadline of its own.
func Run(t *testing.T, test func(t *testing.T, b *Broker)) {
	t.Helper()
	Config{}.Run(t, test)
}

// New starts a broker that ends with t. In a bubble that the test has made
// itself, time is virtual; elsewhere it is real, and back-offs had better be
// short.
func New(t TB) *Broker {
	t.Helper()
	return Config{}.New(t)
}

// Listen is New for clients that are not in the process of the test: the broker
// listens at [Broker.URL], on a loopback port that is free. Time is real.
func Listen(t TB) *Broker {
	t.Helper()
	return Config{}.Listen(t)
}

// Run is the function [Run] with a Config.
func (c Config) Run(t *testing.T, test func(t *testing.T, b *Broker)) {
	t.Helper()
	var began atomic.Pointer[Broker]
	defer func() {
		// A bubble that cannot end panics, which would end all other tests, too.
		if stuck := recover(); stuck != nil {
			reportStuck(t, began.Load(), stuck)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		b := c.New(t)
		began.Store(b)
		test(t, b)
	})
}

// New is the function [New] with a Config.
func (c Config) New(t TB) *Broker {
	t.Helper()
	b := c.start(t)
	t.Cleanup(func() { b.end(t) })
	return b
}

// Listen is the function [Listen] with a Config.
func (c Config) Listen(t TB) *Broker {
	t.Helper()
	if inBubble() {
		t.Fatalf("reprisetest: Listen in a bubble: its clock would stand still while anybody waits for the network; use New, or Listen outside of it")
	}
	b := c.start(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("reprisetest: %v", errors.Join(err, b.shutdown()))
	}
	b.host = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- b.server.Serve(listener{l, b}) }()
	t.Cleanup(func() {
		b.end(t)
		<-served
	})
	return b
}
