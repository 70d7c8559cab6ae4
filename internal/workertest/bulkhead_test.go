package workertest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
)

// After the first timely confirm, a destination leaves its bulkhead, even if other messages in the bulkhead are waiting.
func TestDestinationLeavesBulkheadWhileInUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, m := dialEmbeddedWithGate(t)
		if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: "q"}}}); err != nil {
			t.Fatal(err)
		}
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "q"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the channel for copies may still be opening
		before := m.channels()
		m.mute("q")
		var all sync.WaitGroup
		unconfirmed := func() {
			all.Go(func() {
				if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "q"}); !errors.Is(err, reprise.ErrUnconfirmed) {
					t.Errorf("Publish to an unconfirming queue: got %v, want ErrUnconfirmed", err)
				}
			})
		}
		unconfirmed()
		time.Sleep(reprise.DefaultConfirmTimeout / 2)
		unconfirmed()
		time.Sleep(time.Second)
		if n := m.channels(); n <= before {
			t.Fatalf("got %d channels, want more than %d: unconfirming queue has no separate channel", n, before)
		}
		m.unmute("q")
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "q"}); err != nil {
			t.Error(err)
		}
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "q"}); err != nil {
			t.Error(err)
		}
		all.Wait()
		time.Sleep(10 * time.Minute)
		if n := m.channels(); n != before {
			t.Errorf("got %d channels, want %d: confirming queue has a separate channel", n, before)
		}
	})
}

// Many queues that do not confirm do not exhaust the channels of the connection. They all recover when they confirm
// again.
func TestBulkheadsDoNotExhaustChannels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 12
		c, m := dialEmbeddedWithGate(t, fmt.Sprint("channel_max=", most))
		names := declareQueues(t, c, 40)
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, queue := range names {
			m.mute(queue)
			all.Go(func() {
				for ctx.Err() == nil {
					_ = c.Publish(ctx, &reprise.Message{RoutingKey: queue})
					time.Sleep(time.Second)
				}
			})
		}
		for range 60 {
			time.Sleep(time.Minute)
			if _, err := c.Depth(t.Context(), names[0]); err != nil {
				t.Fatal(err)
			}
			if n := m.channels(); n > 2+most/2 {
				t.Fatalf("got %d open channels, want at most %d", n, 2+most/2)
			}
		}
		m.release(t)
		time.Sleep(10 * time.Minute)
		stop()
		all.Wait()
		for _, queue := range names {
			if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: queue}); err != nil {
				t.Errorf("cannot publish to queue %s: %v", queue, err)
			}
		}
	})
}

// RabbitMQ processes the messages of a channel in order. A queue that does not confirm delays the other queues on its
// channel only briefly, even if it delays more queues than the connection has channels.
func TestStuckQueueDelaysOtherQueuesOnlyBriefly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, m := dialEmbeddedWithGate(t)
		names := declareQueues(t, c, 201)
		stuck, others := names[0], names[1:]
		m.inOrder = true
		m.mute(stuck)
		ctx, stop := context.WithCancel(t.Context())
		var all, round sync.WaitGroup
		all.Go(func() {
			for ctx.Err() == nil {
				_ = c.Publish(ctx, &reprise.Message{RoutingKey: stuck})
			}
		})
		synctest.Wait() // the message is the first on the channel
		var heldUp atomic.Int32
		for n := 0; n == 0 || heldUp.Load() > 0; n++ {
			began := time.Now()
			heldUp.Store(0)
			for _, queue := range others {
				round.Go(func() {
					if c.Publish(ctx, &reprise.Message{RoutingKey: queue}) != nil || time.Since(began) > 0 {
						heldUp.Add(1)
					}
				})
			}
			round.Wait()
			if n == 0 && heldUp.Load() == 0 || n == 50 {
				t.Errorf("blocked queues in round %d: got %d, want at least 1 in round 0, and 0 before round 50", n, heldUp.Load())
				break
			}
		}
		m.release(t)
		stop()
		all.Wait()
	})
}

func declareQueues(t *testing.T, c client, n int) (names []string) {
	t.Helper()
	var all topology.Topology
	for i := range n {
		names = append(names, fmt.Sprint("q", i))
		all.Queues = append(all.Queues, topology.Queue{Name: names[i]})
	}
	if err := c.Declare(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	return names
}

// Copies for many queues that do not confirm wait as long as necessary, and each copy is stored once.
func TestCopiesToManyUnconfirmingQueues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, m := dialEmbeddedWithGate(t)
		const queues, each = 20, 18
		for i := range queues {
			name := fmt.Sprint("q", i)
			h := newScript(func(*reprise.Delivery) error { return reprise.Park(errScripted) })
			start(t, c, reprise.WorkerConfig{Queue: name, Handler: h})
			m.mute(name + ".failed")
		}
		for n := range each {
			for i := range queues {
				if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: fmt.Sprint("q", i), MessageID: fmt.Sprint(n)}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
		}
		if n := m.channels(); n > 2+128 {
			t.Errorf("open channels: got %d, want at most 130", n)
		}
		m.release(t)
		c.log.wait(t, "parked", queues*each)
		for i := range queues {
			if n, err := c.Depth(t.Context(), fmt.Sprint("q", i, ".failed")); err != nil || n != each {
				t.Errorf("failed queue: got %d copies, %v; want %d", n, err, each)
			}
		}
	})
}

// Copies for queues that do not confirm wait on retired channels, which exist in addition to the new channels. However many
// such queues exist, enough channels remain for other messages when further queues stop confirming.
func TestUnconfirmedCopiesDoNotExhaustChannels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, m := dialEmbeddedWithGate(t)
		const queues, later = 70, 10
		healthy := declareQueues(t, c, queues+later+1)[queues+later]
		for i := range queues {
			name := fmt.Sprint("q", i)
			h := newScript(func(*reprise.Delivery) error { return reprise.Park(errScripted) })
			start(t, c, reprise.WorkerConfig{Queue: name, Handler: h})
			m.mute(name + ".failed")
		}
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		publish := func(i int) {
			all.Go(func() { _ = c.Publish(ctx, &reprise.Message{RoutingKey: fmt.Sprint("q", i)}) })
		}
		for range 15 { // one hour in total
			for i := range queues {
				publish(i)
			}
			time.Sleep(4 * time.Minute)
			if n := m.channels(); n > 2+64 {
				t.Errorf("open channels: got %d, want at most 66", n)
			}
		}
		for i := queues; i < queues+later; i++ {
			m.mute(fmt.Sprint("q", i))
			publish(i)
			time.Sleep(20 * time.Second) // the confirm is late
			began := time.Now()
			if err := c.Publish(ctx, &reprise.Message{RoutingKey: healthy}); err != nil || time.Since(began) > 0 {
				t.Errorf("Publish with %d further unconfirming queues and %d channels: got %v after %v, want nil immediately", i-queues+1, m.channels(), err, time.Since(began))
			}
		}
		m.release(t)
		stop()
		all.Wait()
	})
}

var publishSeeds = flag.Uint64("publish.seeds", 3, "the number of random scenarios in TestPublishReportsCorrectResult")

// The reported result of a message is correct despite late confirms, lost connections and deleted exchanges.
func TestPublishReportsCorrectResult(t *testing.T) {
	t.Parallel()
	seeds := *publishSeeds
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
				m := newConfirmGate()
				m.inOrder = seed%2 == 0 // simulates a queue without a majority, or a slow queue
				publishThroughFaults(t, dial(m.intercept), m, r, rand.New(rand.NewPCG(seed, 7)))
			})
		})
	}
}

func publishThroughFaults(t *testing.T, c client, m *confirmGate, r *raw, random *rand.Rand) {
	names := declareQueues(t, c, 6)
	exchanges := []string{"", "a", "b", "c"}
	declare := func(exchange string) {
		if err := r.ExchangeDeclare(exchange, "direct", true, false, false, false, nil); err != nil {
			t.Error(err)
		}
		for _, queue := range names {
			if err := r.QueueBind(queue, queue, exchange, false, nil); err != nil {
				t.Error(err)
			}
		}
	}
	for _, x := range exchanges[1:] {
		declare(x)
	}
	var mu sync.Mutex
	results := map[string]error{}
	var all sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for p := range 60 {
		r := rand.New(rand.NewPCG(random.Uint64(), 1))
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				id := fmt.Sprint(p, "-", n)
				within, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(100))*time.Second)
				m := &reprise.Message{MessageID: id, Exchange: exchanges[r.IntN(len(exchanges))], RoutingKey: names[r.IntN(len(names))]}
				if r.IntN(50) == 0 {
					m.Body = make([]byte, r.IntN(200<<10))
				}
				err := c.Publish(within, m)
				cancel()
				mu.Lock()
				results[id] = err
				mu.Unlock()
				time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
			}
		})
	}
	for range 60 {
		time.Sleep(time.Duration(random.IntN(15000)) * time.Millisecond)
		switch random.IntN(9) {
		case 8: // an exchange to which messages were published is deleted
			x := exchanges[1+random.IntN(3)]
			if err := r.ExchangeDelete(x, false, false); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
			declare(x)
		case 0, 1, 2:
			m.mute(names[random.IntN(len(names))])
		case 3, 4:
			m.release(t)
		case 5:
			m.cut()
		case 6:
			if random.IntN(3) == 0 {
				m.dropFrames()
			}
		}
	}
	m.release(t)
	if random.IntN(2) == 0 {
		stop()
		all.Wait()
		m.release(t)
		_ = c.Publish(t.Context(), &reprise.Message{RoutingKey: names[0]}) // detects a connection that does not respond
		time.Sleep(5 * time.Minute)
		for _, exchange := range exchanges {
			for _, queue := range names {
				if err := c.Publish(t.Context(), &reprise.Message{Exchange: exchange, RoutingKey: queue, MessageID: "last " + exchange + queue}); err != nil {
					t.Errorf("cannot publish after the recovery: %v", err)
				}
			}
		}
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	stop()
	all.Wait()

	stored := map[string]int{}
	for _, queue := range names {
		for range r.depth(queue) {
			stored[r.take(queue).MessageId]++
		}
	}
	for id, err := range results {
		switch n := stored[id]; {
		case n > 1:
			t.Errorf("stored copies of message %s: got %d, want at most 1", id, n)
		case err == nil && n != 1:
			t.Errorf("message %s was confirmed but not stored", id)
		case errors.Is(err, reprise.ErrNacked):
			t.Errorf("message %s: %v", id, err)
		case err != nil && n != 0 && !errors.Is(err, reprise.ErrUnconfirmed):
			t.Errorf("message %s was stored but reported as not sent: %v", id, err)
		}
	}
}
