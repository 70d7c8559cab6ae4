package reprisetest

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// Run calls test with a broker, in a bubble of testing/synctest. Before Run returns, it stops the broker and the
// workers and clients that b has started. Call t.Parallel before Run, because the t that test receives does not
// support the methods Run, Parallel and Deadline.
func Run(t *testing.T, test func(t *testing.T, b *Broker)) {
	t.Helper()
	Config{}.Run(t, test)
}

// New starts a broker that shuts down when t ends. In a bubble that the test has created, time is virtual. Outside a
// bubble, time is real, so use short backoffs.
func New(t TB) *Broker {
	t.Helper()
	return Config{}.New(t)
}

// Listen starts a broker for clients outside the process of the test. The broker listens at [Broker.URL], on a free
// loopback port, and shuts down when t ends. Time is real.
func Listen(t TB) *Broker {
	t.Helper()
	return Config{}.Listen(t)
}

// Run is like the function [Run], but uses c.
func (c Config) Run(t *testing.T, test func(t *testing.T, b *Broker)) {
	t.Helper()
	var began atomic.Pointer[Broker]
	defer func() {
		// A bubble that cannot end panics. Without recover, the panic would also terminate all other tests.
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

// New is like the function [New], but uses c.
func (c Config) New(t TB) *Broker {
	t.Helper()
	b := c.start(t)
	t.Cleanup(func() { b.end(t) })
	return b
}

// Listen is like the function [Listen], but uses c.
func (c Config) Listen(t TB) *Broker {
	t.Helper()
	if inBubble() {
		t.Fatalf("reprisetest: Listen must not be called in a bubble, because the network blocks its clock (use New, or call Listen outside the bubble)")
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
