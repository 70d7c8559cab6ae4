package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// signals are the wishes of whoever runs the program: the first SIGINT or
// SIGTERM ends ctx, a later one closes again.
type signals struct {
	ctx   context.Context
	again <-chan struct{}

	stop context.CancelFunc
	ch   chan os.Signal
	wg   sync.WaitGroup
}

// echo is how long signals are one and the same. A Ctrl-C comes twice if whatever has
// started this program (timeout, npm, another supervisor) passes on what the terminal
// has sent to all.
const echo = 250 * time.Millisecond

func notify(parent context.Context) *signals {
	s := heed(parent, make(chan os.Signal, 2))
	signal.Notify(s.ch, os.Interrupt, syscall.SIGTERM)
	return s
}

// heed is notify with signals that come from ch.
func heed(parent context.Context, ch chan os.Signal) *signals {
	ctx, cancel := context.WithCancel(parent)
	again := make(chan struct{})
	s := &signals{ctx: ctx, again: again, stop: cancel, ch: ch}
	s.wg.Go(func() {
		if _, ok := <-ch; !ok {
			return
		}
		first := time.Now()
		cancel()
		for range ch {
			if time.Since(first) > echo {
				close(again)
				return
			}
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
