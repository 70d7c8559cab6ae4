package explore

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
)

// Embedded explores passages on embedded brokers, in virtual time, and records their scripts.
func Embedded(t *testing.T, s Setting, passages []*Passage) {
	t.Helper()
	for _, p := range passages {
		inBubble(t, s, p, p.record)
		for n := range Breakages {
			inBubble(t, s, p, func(x *explorer) error { return p.survey(x, n) })
		}
	}
}

// inBubble calls explore in virtual time, with an explorer that uses a new broker.
func inBubble(t *testing.T, s Setting, p *Passage, explore func(x *explorer) error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, err := broker.New(broker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := b.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		at := place{Setting: s, url: "amqp://guest:guest@broker/", dial: b.DialContext, queue: "work"}
		if err := at.explore(p, explore); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	})
}

// Server explores passages on a shared broker. It follows the scripts in like, which contains the same passages in the
// same order.
func Server(t *testing.T, url string, s Setting, passages, like []*Passage) {
	t.Helper()
	var wg sync.WaitGroup
	turns := make(chan struct{}, 8) // limits the concurrent explorers, which mostly wait
	for i, p := range passages {
		p.follow(like[i].Script)
		for n := range Breakages {
			at := place{Setting: s, url: url, dial: (&net.Dialer{}).DialContext, queue: testkit.Name(t, "work")}
			wg.Go(func() {
				turns <- struct{}{}
				defer func() { <-turns }()
				if err := at.explore(p, func(x *explorer) error { return p.survey(x, n) }); err != nil {
					t.Errorf("%s: %v", p, err)
				}
			})
		}
	}
	wg.Wait()
}
