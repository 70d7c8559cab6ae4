package clock

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// For any timers, and any moves of the clock mixed with real time, each timer fires once, in order, and at its own time.
func TestTimersFireInOrder(t *testing.T) {
	rapid.Check(t, func(draw *rapid.T) {
		seconds := rapid.SliceOfN(rapid.IntRange(0, 1000), 1, 30).Draw(draw, "delays")
		stopped := rapid.SliceOfN(rapid.Bool(), len(seconds), len(seconds)).Draw(draw, "stopped")
		steps := rapid.SliceOf(rapid.IntRange(-300, 300)).Draw(draw, "steps")
		var mu sync.Mutex // equal timers fire at the same time
		var fired, want []time.Duration
		synctest.Test(t, func(*testing.T) {
			c := New()
			start := c.Now()
			for i, n := range seconds {
				d := time.Duration(n) * time.Second
				timer := c.AfterFunc(d+time.Hour, func() {
					mu.Lock()
					defer mu.Unlock()
					fired = append(fired, c.Now().Sub(start))
				})
				timer.Reset(d)
				if stopped[i] {
					timer.Stop()
				} else {
					want = append(want, d)
				}
			}
			for _, s := range steps {
				if s < 0 {
					time.Sleep(time.Duration(-s) * time.Second)
				} else {
					c.Advance(time.Duration(s) * time.Second)
				}
				synctest.Wait()
			}
			c.Advance(time.Hour)
		})
		slices.Sort(want)
		if !slices.Equal(fired, want) {
			draw.Errorf("fired at %v, want %v", fired, want)
		}
	})
}

// A timer that the function of another timer starts fires in the same move, if it is due then.
func TestAdvanceRunsTimersOfTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		start, hops := c.Now(), 0
		var hop func()
		hop = func() {
			hops++
			c.AfterFunc(time.Minute, hop)
		}
		c.AfterFunc(time.Minute, hop)
		c.Advance(time.Hour)
		if hops != 60 || c.Now().Sub(start) != time.Hour {
			t.Errorf("got %d hops after %s, want 60 after an hour", hops, c.Now().Sub(start))
		}
	})
}

func TestRealTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *Clock
		start, fired := time.Now(), time.Duration(0)
		timer := c.AfterFunc(time.Hour, func() { fired = time.Since(start) })
		timer.Reset(time.Minute)
		c.AfterFunc(time.Second, func() { t.Error("a stopped timer fired") }).Stop()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if fired != time.Minute || !c.Now().Equal(time.Now()) {
			t.Errorf("fired after %s, want 1m", fired)
		}
	})
}
