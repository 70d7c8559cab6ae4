package serve

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

func TestSignalsIgnoreDuplicates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch := make(chan os.Signal, 2)
		s := handleSignals(t.Context(), ch)
		ended := func() bool {
			synctest.Wait()
			select {
			case <-s.Again:
				return true
			default:
				return false
			}
		}
		ch <- os.Interrupt
		ch <- os.Interrupt
		if ended() {
			t.Error("duplicate signal was counted as the second signal")
		}
		if s.Ctx.Err() == nil {
			t.Error("first signal did not cancel the context")
		}
		time.Sleep(time.Second)
		ch <- os.Interrupt
		if !ended() {
			t.Error("second signal was ignored")
		}
		s.Release()
	})
}

func TestServingCommandIgnoresSIGHUP(t *testing.T) {
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
			if stopped := s.Ctx.Err() != nil; stopped == serves {
				t.Errorf("serves %t: got stopped %t", serves, stopped)
			}
			if logged := strings.Contains(log.String(), "SIGHUP is ignored"); logged != serves {
				t.Errorf("serves %t: got log %s", serves, log.String())
			}
			s.Release()
		}
	})
}
