package cli

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// signals are the wishes of whoever runs the program: the first SIGINT, SIGTERM or
// SIGHUP ends ctx, a later one closes again.
type signals struct {
	ctx   context.Context
	again <-chan struct{}

	stop   context.CancelFunc
	ch     chan os.Signal
	wg     sync.WaitGroup
	server atomic.Pointer[slog.Logger] // of a command that SIGHUP does not end
}

// echo is how long signals are one and the same. A Ctrl-C comes twice if whatever has
// started this program (timeout, npm, another supervisor) passes on what the terminal
// has sent to all.
const echo = 250 * time.Millisecond

func notify(parent context.Context) *signals {
	s := heed(parent, make(chan os.Signal, 2))
	signal.Notify(s.ch, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signal.Notify(s.ch, syscall.SIGHUP)
	}
	return s
}

// serve is for a command that runs until it is told to end. The end of its terminal
// does not end the command, and neither does the end of the program that reads its log.
func (s *signals) serve(log *slog.Logger) {
	s.server.Store(log)
	// SIGPIPE is caught, not ignored: the programs that the command runs would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

// isHangup reports whether a signal is a SIGHUP that ends nothing.
func (s *signals) isHangup(got os.Signal) bool {
	log := s.server.Load()
	if got != syscall.SIGHUP || log == nil {
		return false
	}
	go log.Warn("SIGHUP is ignored: settings are read at the start only, restart to change them") // a log that is stuck must not keep Ctrl-C from being heard
	return true
}

// heed is notify with signals that come from ch.
func heed(parent context.Context, ch chan os.Signal) *signals {
	ctx, cancel := context.WithCancel(parent)
	again := make(chan struct{})
	s := &signals{ctx: ctx, again: again, stop: cancel, ch: ch}
	s.wg.Go(func() {
		var first time.Time
		for got := range ch {
			switch {
			case s.isHangup(got):
			case first.IsZero():
				first = time.Now()
				cancel()
			case time.Since(first) > echo:
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
