package proc_test

import (
	"context"
	"net"
	"testing"

	"github.com/reprisemq/reprise/bench/internal/proc"
)

func TestStartAtWaitsForTheAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "amqp://" + l.Addr().String() + "/"
	s, err := proc.StartAt(t.Context(), t.Output(), url, "sleep", "60")
	if err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if s.URL != url {
		t.Errorf("URL: got %q, want %q", s.URL, url)
	}
	l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := proc.StartAt(ctx, t.Output(), url, "sleep", "60"); err == nil {
		t.Error("start of a program that does not listen: got no error")
	}
}
