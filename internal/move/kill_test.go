package move_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/move"
	"github.com/reprisemq/reprise/internal/testkit"
)

var every = flag.Int("move.every", 0, "kill moves at every n-th frame; 0: at a few of them")

// point is a place at which a move is killed: before the nth frame to or from a broker.
type point struct {
	side      string // source, target
	direction testkit.Direction
	n         int
}

func (at point) String() string { return fmt.Sprintf("%s, frame %d %s", at.side, at.n, at.direction) }

// run runs a move, and kills it at a point: from then on, nothing reaches the brokers, or nothing reaches the move. It returns the
// numbers of frames at each place.
func (p pair) run(t *testing.T, at point) (result move.Result, counts map[point]int, err error) {
	t.Helper()
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	proxies := map[string]*testkit.Proxy{"source": testkit.NewProxy(t, p.from.url), "target": testkit.NewProxy(t, p.to.url)}
	var cut <-chan struct{}
	if at.n > 0 && at.direction == testkit.ToServer {
		cut = proxies[at.side].CutAfterFrame(at.direction, at.n)
	} else if at.n > 0 {
		cut = proxies[at.side].CutBeforeFrame(at.direction, at.n)
	}
	end := func() {
		for _, proxy := range proxies {
			proxy.Refuse()
			proxy.Cut()
		}
		kill()
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-cut:
			end()
		case <-ctx.Done():
		}
	})
	m, hangUp, err := p.begin(ctx, t, proxies["source"].URL(), proxies["target"].URL(), move.Config{Batch: 8, Settle: time.Millisecond})
	if err == nil {
		result, err = m.Run(ctx)
		hangUp()
	}
	counts = map[point]int{}
	for side, proxy := range proxies {
		for _, direction := range []testkit.Direction{testkit.ToServer, testkit.ToClient} {
			counts[point{side: side, direction: direction}] = proxy.Frames(direction)
		}
	}
	end()
	watching.Wait()
	return result, counts, err
}

// A move that is killed at any frame continues, loses no message, and reports the maximum number of duplicates.
func TestKilledMoveContinues(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p pair) {
		for place, n := range p.killed(t, point{}) {
			step := *every
			if step == 0 {
				step = max(1, n/4)
				if p.to.IsRabbitMQ {
					step = max(1, n/2)
				}
			}
			for place.n = step; place.n <= n; place.n += step {
				if p.killed(t, place); t.Failed() {
					t.Fatalf("killed at %v of %d", place, n)
				}
			}
		}
	})
}

// killed kills a move at a point, and continues it.
func (p pair) killed(t *testing.T, at point) map[point]int {
	t.Helper()
	const messages = 30
	p.from.queue(t, "orders", nil)
	p.from.queue(t, "wait", amqp.Table{"x-queue-type": "quorum", "x-message-ttl": time.Hour.Milliseconds(), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders"})
	p.from.bound(t, "shop", "fanout", "orders", "")
	p.from.publish(t, "shop", "any", texts("a", messages)...)
	p.from.publish(t, "", "wait", texts("b", messages)...)
	result, counts, err := p.run(t, at)
	if err != nil && at.n == 0 {
		t.Fatal(err)
	}
	for again := 0; err != nil && again < 3; again++ {
		before := err
		if result, _, err = p.run(t, point{}); err != nil && !errors.Is(err, move.ErrRunning) {
			t.Errorf("cannot continue: %v (killed: %v)", err, before)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	got := append(bodies(p.to.take(t, "orders")), bodies(p.to.take(t, "wait"))...)
	all := slices.Compact(slices.Sorted(slices.Values(got)))
	if len(all) != 2*messages {
		t.Errorf("got %d different messages, want %d", len(all), 2*messages)
	}
	if n := int64(len(got) - len(all)); n > result.Duplicates {
		t.Errorf("got %d duplicates, want at most %d", n, result.Duplicates)
	}
	if at.n == 0 && result.Duplicates != 0 {
		t.Errorf("got %+v", result)
	}
	if left := append(p.from.take(t, "orders"), p.from.take(t, "wait")...); len(left) > 0 {
		t.Errorf("%d messages are left", len(left))
	}
	return counts
}
