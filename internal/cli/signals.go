package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// signals are the wishes of whoever runs the program: the first SIGINT or
// SIGTERM ends ctx, the second closes again.
type signals struct {
	ctx   context.Context
	again <-chan struct{}

	stop context.CancelFunc
	ch   chan os.Signal
	wg   sync.WaitGroup
}

func notify(parent context.Context) *signals {
	ctx, cancel := context.WithCancel(parent)
	again := make(chan struct{})
	s := &signals{ctx: ctx, again: again, stop: cancel, ch: make(chan os.Signal, 2)}
	signal.Notify(s.ch, os.Interrupt, syscall.SIGTERM)
	s.wg.Go(func() {
		if _, ok := <-s.ch; !ok {
			return
		}
		cancel()
		if _, ok := <-s.ch; ok {
			close(again)
		}
	})
	return s
}

// release gives the signals back to the system.
func (s *signals) release() {
	signal.Stop(s.ch)
	close(s.ch)
	s.wg.Wait()
	s.stop()
}

// until returns a context that ends when a channel is closed.
func until(closed <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
