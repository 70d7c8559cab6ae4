package ordered

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// The rates of keys that are whole again are dropped, which does not change when attempts may begin.
func TestRatesDropWholeKeys(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	dropping := rates{Rate: Rate{Every: 100 * time.Millisecond, Burst: 10}}
	keeping := map[string]time.Time{}
	now := time.UnixMilli(1000)
	for range 100_000 {
		now = now.Add(time.Duration(random.IntN(2000)) * time.Microsecond)
		key := fmt.Sprint(random.IntN(50_000))
		if random.IntN(2) == 0 {
			key = fmt.Sprint("often ", random.IntN(10))
		}
		next := keeping[key].Add(-9 * dropping.Every)
		if dropping.next(key).After(now) != next.After(now) {
			t.Fatalf("%s may begin at %s, want %s, now %s", key, dropping.next(key), next, now)
		}
		if next.After(now) {
			continue
		}
		dropping.take(now, key)
		if keeping[key].Before(now) {
			keeping[key] = now
		}
		keeping[key] = keeping[key].Add(dropping.Every)
		if n := len(dropping.newer) + len(dropping.older); n > 3000 { // about 1000 attempts in the time of a burst
			t.Fatalf("%d keys in memory", n)
		}
	}
	if len(keeping) < 20_000 {
		t.Errorf("used %d keys, want many", len(keeping))
	}
}
