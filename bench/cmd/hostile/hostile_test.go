package main

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/broker"
)

// embedded starts the broker of this repository as a target, and ends it with the test.
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

// The report about an attacker contains the reason of the broker.
func TestTheFateOfAttackers(t *testing.T) {
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
				t.Errorf("%s: %s, want …%s…", name, got, want)
			}
			if target.sent.Load() == 0 {
				t.Errorf("%s: nothing was sent", name)
			}
			want = ""
			target.closeAll()
		}
		if want != "" {
			t.Errorf("there is no attack %q", name)
		}
	}
}

func TestTheWitnessMeasures(t *testing.T) {
	w, err := newWitness(embedded(t).url)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	for range time.Tick(10 * time.Millisecond) { // until enough was measured
		w.mu.Lock()
		n := w.taken.TotalCount()
		w.mu.Unlock()
		if n >= 20 {
			break
		}
	}
	if l := w.next(); l.taken.TotalCount() < 20 || l.at(50) == "–" {
		t.Errorf("%d latencies, p50 %s", l.taken.TotalCount(), l.at(50))
	}
	if got := w.troubles(false); got != "" {
		t.Error(got)
	}
}
