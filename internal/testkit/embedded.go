package testkit

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/reprisemq/reprise/broker"
)

// Embedded starts a broker of our own in this process, in memory, on a loopback
// port that is free. It is stopped when t ends.
func Embedded(t testing.TB) Target {
	t.Helper()
	_, addr, stop := serve(t, broker.Config{}, "127.0.0.1:0")
	t.Cleanup(stop)
	return embedded(addr)
}

func embedded(addr string) Target {
	return Target{
		Name:    "embedded",
		URL:     "amqp://guest:guest@" + addr + "/",
		Version: "4.3",
	}
}

// serve starts a broker, and returns where it listens and how to stop it.
func serve(t testing.TB, config broker.Config, listen string) (b *broker.Broker, addr string, stop func()) {
	t.Helper()
	b, err := broker.New(config)
	if err != nil {
		t.Fatalf("embedded broker: %v", err)
	}
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		t.Fatalf("embedded broker: %v", err)
	}
	served := make(chan error, 1)
	go func() { served <- b.Serve(ln) }()
	return b, ln.Addr().String(), func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := b.Shutdown(ctx); err != nil {
			t.Errorf("embedded broker: shutdown: %v", err)
		}
		<-served
	}
}
