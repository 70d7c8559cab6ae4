package cli

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestASignalThatComesTwiceAtOnceIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch := make(chan os.Signal, 2)
		s := handleSignals(t.Context(), ch)
		ended := func() bool {
			synctest.Wait()
			select {
			case <-s.again:
				return true
			default:
				return false
			}
		}
		ch <- os.Interrupt
		ch <- os.Interrupt
		if ended() {
			t.Error("it was taken for a second one")
		}
		if s.ctx.Err() == nil {
			t.Error("it was not taken for a first one")
		}
		time.Sleep(time.Second)
		ch <- os.Interrupt
		if !ended() {
			t.Error("a later one was not taken for a second one")
		}
		s.release()
	})
}

func TestSIGHUPEndsACommandUnlessItServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, serves := range []bool{false, true} {
			ch := make(chan os.Signal, 2)
			s := handleSignals(t.Context(), ch)
			var log bytes.Buffer
			if serves {
				s.server.Store(slog.New(slog.NewTextHandler(&log, nil)))
			}
			ch <- syscall.SIGHUP
			synctest.Wait()
			if stopped := s.ctx.Err() != nil; stopped == serves {
				t.Errorf("serves: %t, stopped: %t", serves, stopped)
			}
			if logged := strings.Contains(log.String(), "SIGHUP is ignored"); logged != serves {
				t.Errorf("serves: %t, log: %s", serves, log.String())
			}
			s.release()
		}
	})
}
