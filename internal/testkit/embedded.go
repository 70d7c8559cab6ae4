package testkit

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/reprisemq/reprise/broker"
)

// Embedded starts an embedded broker in memory, on a free loopback port. It stops the broker at the end of t.
func Embedded(t testing.TB) Target {
	t.Helper()
	_, target := serve(t, broker.Config{})
	return target
}

// serve starts a broker and stops it at the end of t.
func serve(t testing.TB, config broker.Config) (*broker.Broker, Target) {
	t.Helper()
	b, err := broker.New(config)
	if err != nil {
		t.Fatalf("cannot create embedded broker: %v", err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("cannot start embedded broker: %v", err)
	}
	served := make(chan error, 1)
	go func() { served <- b.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := b.Shutdown(ctx); err != nil {
			t.Errorf("cannot shut down embedded broker: %v", err)
		}
		<-served
	})
	return b, Target{
		Name:    "embedded",
		URL:     "amqp://guest:guest@" + ln.Addr().String() + "/",
		Version: "4.3",
	}
}
