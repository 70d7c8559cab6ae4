package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// A purge removes a message when it is older than its retention, and not a millisecond earlier.
func TestRetentionIsExact(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		for _, c := range []struct {
			name string
			use  func(*store.Config)
		}{
			{"Retention", func(c *store.Config) { c.Retention = time.Hour }},
			{"Rules", func(c *store.Config) { c.Rules = []store.RetentionRule{{Queue: "q", Retention: time.Hour}} }},
		} {
			clock := newClock()
			a := db.archive(t, clock.use, c.use)
			value(a.Add(ctx, []failed.Message{{Queue: "q", FailedQueue: "q.failed"}}))(t)
			var got []int64
			for _, step := range []time.Duration{time.Hour - time.Minute, time.Minute - time.Millisecond, time.Millisecond, time.Millisecond} {
				clock.pass(step)
				got = append(got, value(a.WouldPurge(ctx))(t), value(a.Purge(ctx, "test"))(t))
			}
			// 59 min; 1 ms before the hour; the hour; 1 ms later
			if want := "[0 0 0 0 0 0 1 1]"; fmt.Sprint(got) != want {
				t.Errorf("%s: got would and did purge %v, want %s", c.name, got, want)
			}
		}
	})
}
