// Package serve has what commands share that run until a signal stops them: signals, listeners, HTTP servers and the log.
package serve

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

// Signals handles the signals of the process. The first SIGINT or SIGTERM cancels Ctx. The first SIGHUP also cancels
// Ctx, unless the command ignores SIGHUP. The second signal closes the channel Again.
type Signals struct {
	Ctx   context.Context
	Again <-chan struct{}

	stop   context.CancelFunc
	ch     chan os.Signal
	wg     sync.WaitGroup
	server atomic.Pointer[slog.Logger]   // log of a command that ignores SIGHUP
	hangup atomic.Pointer[chan struct{}] // of a command that handles SIGHUP
}

// duplicateWindow is the time after the first signal during which further signals count as the same signal. A Ctrl-C
// arrives twice if a parent process (timeout, npm, a supervisor) forwards the signal that the terminal has already sent
// to the whole process group.
const duplicateWindow = 250 * time.Millisecond

// Catch handles the signals of the process until Release is called.
func Catch(parent context.Context) *Signals {
	s := handleSignals(parent, make(chan os.Signal, 2))
	signal.Notify(s.ch, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signal.Notify(s.ch, syscall.SIGHUP)
	}
	return s
}

// Serve makes a command continue if its terminal closes or the reader of its log exits. Commands that run until they
// are stopped call it.
func (s *Signals) Serve(log *slog.Logger) {
	s.server.Store(log)
	// SIGPIPE is caught and not ignored, because child processes would inherit the ignored signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

// Hangup returns a channel that receives a value after a SIGHUP. The command then does not ignore SIGHUP. A SIGHUP that
// arrives before the last one has been received has no effect.
func (s *Signals) Hangup() <-chan struct{} {
	ch := make(chan struct{}, 1)
	s.hangup.Store(&ch)
	return ch
}

// isHangup reports whether a signal is a SIGHUP that does not stop the command. If the command ignores SIGHUP, isHangup
// logs the signal.
func (s *Signals) isHangup(got os.Signal) bool {
	log := s.server.Load()
	if got != syscall.SIGHUP || log == nil {
		return false
	}
	if ch := s.hangup.Load(); ch != nil {
		select {
		case *ch <- struct{}{}:
		default:
		}
		return true
	}
	go log.Warn("SIGHUP is ignored: settings are read at the start only, restart to change them") // a blocked log must not delay Ctrl-C
	return true
}

// handleSignals handles the signals from ch until release is called.
func handleSignals(parent context.Context, ch chan os.Signal) *Signals {
	ctx, cancel := context.WithCancel(parent)
	again := make(chan struct{})
	s := &Signals{Ctx: ctx, Again: again, stop: cancel, ch: ch}
	s.wg.Go(func() {
		var first time.Time
		for got := range ch {
			switch {
			case s.isHangup(got):
			case first.IsZero():
				first = time.Now()
				cancel()
			case time.Since(first) > duplicateWindow:
				close(again)
				return
			}
		}
	})
	return s
}

// Release restores the default handling of the signals.
func (s *Signals) Release() {
	signal.Stop(s.ch)
	close(s.ch)
	s.wg.Wait()
	s.stop()
}

// Until returns a context that is canceled when a channel is closed.
func Until(closed <-chan struct{}) (context.Context, context.CancelFunc) {
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

// Unless returns nil if a signal has stopped the command, and otherwise err.
func (s *Signals) Unless(err error) error {
	if s.Ctx.Err() != nil {
		return nil
	}
	return err
}
