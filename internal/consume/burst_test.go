package consume

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Each burst ends one window after its first message and yields the newest message. A later
// message starts another burst.
func TestBurstYieldsNewestMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bursts{window: 10 * time.Second}
		arrive := func(key string, tag uint64) {
			d := &Delivery{arrived: time.Now()}
			d.Tag = tag
			b.add(key, d)
		}
		tags := func(all []*Delivery) (tags []uint64) {
			for _, d := range all {
				for _, other := range d.Burst {
					tags = append(tags, other.Tag)
				}
				tags = append(tags, d.Tag)
			}
			return tags
		}
		wait := func(want time.Duration, wantTags ...uint64) {
			t.Helper()
			began := time.Now()
			due := b.pop(<-b.due())
			if took := time.Since(began); took != want || !slices.Equal(tags(due), wantTags) {
				t.Errorf("due bursts: got %v after %v, want %v after %v", tags(due), took, wantTags, want)
			}
			for _, d := range due {
				if time.Since(d.arrived) < b.window || !d.gathered {
					t.Errorf("delivery %d: got age %v and gathered %t, want at least %v and true", d.Tag, time.Since(d.arrived), d.gathered, b.window)
				}
			}
		}
		if b.due() != nil {
			t.Error("due returned a channel without bursts")
		}
		arrive("a", 1)
		time.Sleep(time.Second)
		arrive("b", 2)
		arrive("a", 3)
		wait(9*time.Second, 1, 3)
		arrive("a", 4)
		wait(time.Second, 2)
		arrive("a", 5)
		arrive("c", 6)
		if got := tags(b.all()); !slices.Equal(got, []uint64{4, 5, 6}) || b.due() != nil {
			t.Errorf("all: got %v, want [4 5 6]", got)
		}
		arrive("a", 7)
		wait(10*time.Second, 7)
	})
}
