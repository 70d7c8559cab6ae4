package cli

import (
	"os"
	"testing"
	"testing/synctest"
	"time"
)

func TestASignalThatComesTwiceAtOnceIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch := make(chan os.Signal, 2)
		s := heed(t.Context(), ch)
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
