package reprisetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
)

// end shuts down the broker, and logs the events of a failed test. The workers and clients have already stopped.
func (b *Broker) end(t TB) {
	b.Heal()
	if b.limitExceeded.Load() {
		t.Errorf("reprisetest: test timed out after %s of virtual time (Config.Limit)", b.config.Limit)
	}
	if t.Failed() {
		b.waitIdle()
		t.Logf("reprisetest: events (times since the start):\n%s\nmessages:\n%s", &b.events, b.inventory())
	}
	if err := b.shutdown(); err != nil {
		t.Errorf("reprisetest: cannot shut down the broker: %v", err)
	}
	if b.virtual {
		b.watchdog.Stop()
		// The clock of the bubble stops with the test, so give goroutines time to return.
		time.Sleep(time.Minute)
	}
}

// giveUp stops everything that advances the clock, so that a test that waits forever becomes a deadlock, which synctest
// detects. A worker or client that does not stop does not delay the others.
func (b *Broker) giveUp() {
	b.limitExceeded.Store(true)
	b.mu.Lock()
	workers, clients := b.workers, b.clients
	b.mu.Unlock()
	endAll(workers, func(ctx context.Context, w *Worker) { _ = w.end(ctx) })
	endAll(clients, func(ctx context.Context, c *reprise.Client) { _ = c.Close(ctx) })
	_ = b.shutdown()
	b.notify()
}

// endAll calls end for all values concurrently, with the timeout closeTimeout.
func endAll[T any](all []T, end func(context.Context, T)) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, x := range all {
		wg.Go(func() { end(ctx, x) })
	}
	wg.Wait()
}

// shutdownTimeout limits the shutdown of the broker.
const shutdownTimeout = 10 * time.Second

// shutdown closes the test's own client and shuts down the broker.
func (b *Broker) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	b.turn <- struct{}{}
	own := b.own
	<-b.turn
	var err error
	if own != nil {
		err = own.Close(ctx)
	}
	return errors.Join(err, b.server.Shutdown(ctx))
}
