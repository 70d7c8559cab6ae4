package main

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/broker"
)

// embedded starts the embedded broker as a target, and stops it at the end of the test.
func embedded(t *testing.T) *target {
	t.Helper()
	b, err := broker.New(broker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- b.Serve(l) }()
	t.Cleanup(func() {
		if err := b.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		<-served
	})
	address := l.Addr().String()
	return &target{address: address, url: "amqp://guest:guest@" + address, most: 1 << 30, began: time.Now()}
}

// The outcome contains the broker's reason for closing the connection or channel.
func TestAttackReturnsReasonOfBroker(t *testing.T) {
	for name, want := range map[string]string{
		"3,183 basic.consume with tables of 120 KB": "506 RESOURCE_ERROR",
		"a transaction, never committed":            "506 RESOURCE_ERROR",
		"queues with tables of 120 KB":              "406 PRECONDITION_FAILED",
	} {
		for _, a := range attacks {
			if a.name != name {
				continue
			}
			target := embedded(t)
			got := a.run(t.Context(), target)
			if !strings.Contains(got, want) {
				t.Errorf("%s: got %s, want %q", name, got, want)
			}
			if target.sent.Load() == 0 {
				t.Errorf("%s: no bytes sent", name)
			}
			want = ""
			target.closeAll()
		}
		if want != "" {
			t.Errorf("attack %q not found", name)
		}
	}
}

func TestMonitorMeasuresLatencies(t *testing.T) {
	w, err := newMonitor(embedded(t).url)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	for range time.Tick(10 * time.Millisecond) { // until the monitor has measured 20 latencies
		w.mu.Lock()
		n := w.taken.TotalCount()
		w.mu.Unlock()
		if n >= 20 {
			break
		}
	}
	if l := w.next(); l.taken.TotalCount() < 20 || l.at(50) == "–" {
		t.Errorf("latencies: got %d with p50 %s, want at least 20 with a p50", l.taken.TotalCount(), l.at(50))
	}
	if got := w.troubles(false); got != "" {
		t.Errorf("troubles: got %q, want none", got)
	}
}
