package stats

import (
	"sync"
	"testing"
)

// The totals never decrease and contain each event of a channel exactly once, while other channels join and leave.
func TestTotalsNeverDecrease(t *testing.T) {
	const channels, messages = 8, 1000
	var totals Totals
	stop := make(chan struct{})
	var looking, counting sync.WaitGroup
	looking.Go(func() {
		last := uint64(0)
		for {
			counts := totals.Counts()
			if now := counts.Of(Publish); now < last {
				t.Errorf("total decreased from %d to %d", last, now)
			} else {
				last = now
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for range channels {
		counting.Go(func() {
			for range 10 {
				var c Counter
				totals.Join(&c)
				for range messages / 10 {
					c.Add(Publish, 1)
					c.AddFrom(true, Ack, 2)
				}
				totals.Leave(&c)
				totals.Leave(&c) // has no effect
			}
		})
	}
	counting.Wait()
	close(stop)
	looking.Wait()
	split := totals.Split()
	sum := split.Sum()
	if sum.Of(Publish) != channels*messages || split.Quorum.Of(Ack) != 2*channels*messages || split.Classic.Of(Ack) != 0 {
		t.Errorf("unexpected totals: %+v", split)
	}
}

func TestDead(t *testing.T) {
	var d Dead
	d.Add(Expired, true, AtLeastOnce)
	if d.Of(Expired, true, AtLeastOnce) != 1 || d.Of(Expired, false, AtLeastOnce) != 0 || d.Of(Rejected, true, AtLeastOnce) != 0 {
		t.Errorf("unexpected counts: %v", &d)
	}
	(*Dead)(nil).Add(Expired, true, Disabled)
}
