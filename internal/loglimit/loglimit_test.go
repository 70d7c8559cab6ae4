package loglimit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/internal/loglimit"
)

func TestLimit(t *testing.T) {
	for _, burst := range []int{0, 1, 3} {
		synctest.Test(t, func(t *testing.T) {
			l := loglimit.Limit{Burst: burst}
			events, logged, omitted := 0, 0, 0
			for range 10 * 60 { // 10 min
				for range 20 {
					events++
					if n, due := l.Due(); due {
						logged, omitted = logged+1, omitted+n
					}
				}
				time.Sleep(time.Second)
			}
			if want := 10 * max(1, burst); logged != want {
				t.Errorf("burst %d: logged %d of %d events, want %d", burst, logged, events, want)
			}
			time.Sleep(time.Minute)
			if n, due := l.Due(); !due || logged+omitted+n != events {
				t.Errorf("burst %d: the log states %d events, want %d", burst, logged+omitted+n, events)
			}
			if n, due := l.Due(); due != (burst > 1) || n != 0 {
				t.Errorf("burst %d: second event in a minute: got %d, %v, want 0, %v", burst, n, due, burst > 1)
			}
		})
	}
}
