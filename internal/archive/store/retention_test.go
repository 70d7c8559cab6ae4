package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// Messages of a queue with a rule stay for the time in the rule. Other messages stay for Config.Retention, or
// indefinitely if it is 0.
func TestRetentionRules(t *testing.T) {
	const day = 24 * time.Hour
	const each = 600 // messages per queue and arrival time: a purge needs several transactions
	eachDatabase(t, func(t *testing.T, db database) {
		for _, c := range []struct {
			retention time.Duration
			want      map[string]int64
		}{
			{90 * day, map[string]int64{"long": 3 * each, "others": 2 * each, "short": each}},
			{0, map[string]int64{"long": 3 * each, "others": 3 * each, "short": each}},
		} {
			clock := newClock()
			a := db.archive(t, clock.use, func(cfg *store.Config) {
				cfg.Retention, cfg.Rules = c.retention, []store.RetentionRule{{Queue: "short", Retention: 30 * day}, {Queue: "long", Retention: 180 * day}}
			})
			for range 3 { // 100, 60 and 20 days before the purge
				var arrivals []failed.Arrived
				for i := range 3 * each {
					queue := []string{"long", "others", "short"}[i%3]
					arrivals = append(arrivals, failed.Arrived{Message: failed.Message{FailedQueue: queue + ".failed"}})
				}
				value(a.Ingest(ctx, arrivals))(t)
				clock.pass(40 * day)
			}
			clock.pass(-20 * day)
			would := value(a.WouldPurge(ctx))(t)
			n := value(a.Purge(ctx, "test"))(t)
			got := map[string]int64{}
			for _, q := range value(a.Queues(ctx))(t) {
				got[string(q.Queue)] = q.Counts.Failed
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) || would != n || n != 9*each-got["long"]-got["others"]-got["short"] {
				t.Errorf("retention %s: got %v, want %v; purged %d messages, WouldPurge %d", c.retention, got, c.want, n, would)
			}
			acts, _, err := a.Acts(ctx, store.ActFilter{}, store.Page{})
			check(t, err)
			if len(acts) != 1 || fmt.Sprint(acts[0].Details["rules"]) != "map[long:4320h0m0s short:720h0m0s]" || fmt.Sprint(acts[0].Details["messages"]) != fmt.Sprint(n) {
				t.Errorf("got acts %+v, want 1 act with the rules and %d messages", acts, n)
			}
			if n := value(a.Purge(ctx, "test"))(t); n != 0 {
				t.Errorf("second purge: got %d messages, want 0", n)
			}
		}
	})
}

func TestRetentionRuleValidation(t *testing.T) {
	for _, rules := range [][]store.RetentionRule{{{Queue: "q"}}, {{Queue: "q", Retention: -1}}} {
		if err := (store.Config{Dialect: store.SQLite, Rules: rules}).Validate(); !errors.Is(err, failed.ErrInvalid) {
			t.Errorf("rules %v: got error %v, want ErrInvalid", rules, err)
		}
	}
}
