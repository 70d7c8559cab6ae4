package reprisetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
)

// end ends everything but workers and clients, which end before.
func (b *Broker) end(t TB) {
	b.Heal()
	if b.overtime.Load() {
		t.Errorf("reprisetest: the test took longer than %s of virtual time (Config.Limit)", b.config.Limit)
	}
	if t.Failed() {
		b.still()
		t.Logf("reprisetest: what happened (times since the beginning):\n%s\nmessages:\n%s", &b.events, b.inventory())
	}
	if err := b.shutdown(); err != nil {
		t.Errorf("reprisetest: the end of the broker: %v", err)
	}
	if b.virtual {
		b.watchdog.Stop()
		// Time stops with the test: what is about to end gets a chance to.
		time.Sleep(time.Minute)
	}
}

// giveUp ends all that keeps the clock going, so that a test which waits for ever
// is found out. One that hangs does not keep the others going.
func (b *Broker) giveUp() {
	b.overtime.Store(true)
	b.mu.Lock()
	workers, clients := b.workers, b.clients
	b.mu.Unlock()
	together(workers, func(ctx context.Context, w *Worker) { _ = w.end(ctx) })
	together(clients, func(ctx context.Context, c *reprise.Client) { _ = c.Close(ctx) })
	_ = b.shutdown()
	b.stir()
}

// together ends all at once, each within closePatience.
func together[T any](all []T, end func(context.Context, T)) {
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	var wg sync.WaitGroup
	for _, x := range all {
		wg.Go(func() { end(ctx, x) })
	}
	wg.Wait()
}

// shutdownPatience is how long the broker may take to end.
const shutdownPatience = 10 * time.Second

// shutdown ends the test's own client and the broker.
func (b *Broker) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownPatience)
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
