package store_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

func TestGroups(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		c := newClock() // 12:00
		a := db.archive(t, c.use)
		add := func(queue, text string, ago time.Duration) {
			value(a.Ingest(t.Context(), []failed.Arrived{{Message: failed.Message{
				FailedQueue: queue + ".failed", Error: text, FirstFailed: c.now().Add(-ago - time.Hour), LastFailed: c.now().Add(-ago),
			}}}))(t)
		}
		add("a", "order 1: down", 50*time.Hour)
		add("a", "order 2: down", 0)
		add("a", "order 3: down", 25*time.Hour)
		add("b", "order 4: down", time.Hour)
		add("b", "100% refused", 2*time.Hour)
		groups, next, err := a.Groups(t.Context(), store.GroupFilter{}, store.Page{})
		check(t, err)
		if len(groups) != 3 || next != "" {
			t.Fatalf("got %d groups and cursor %q, want 3 and none", len(groups), next)
		}
		g := groups[0]
		if g.Queue != "a" || g.Text != "order *: down" || g.Example != "order 3: down" || g.Counts != (store.Counts{Failed: 3}) ||
			!g.First.Equal(c.now().Add(-51*time.Hour)) || !g.Last.Equal(c.now()) {
			t.Errorf("got group %+v, want 3 failed messages of queue a with text \"order *: down\"", g)
		}
		if n := len(g.Hours); n != 24 || g.Hours[23].N != 1 || !g.Hours[23].Start.Equal(c.now()) {
			t.Errorf("got %d hours: %v, want 24, the last with 1 failure", n, g.Hours)
		}
		if n := len(g.Days); n != 30 || g.Days[29].N != 1 || g.Days[28].N != 1 || g.Days[27].N != 1 ||
			!g.Days[29].Start.Equal(c.now().Truncate(24*time.Hour)) {
			t.Errorf("got %d days: %v, want 30, the last three with 1 failure each", n, g.Days)
		}
		value(a.Discard(t.Context(), failed.Filter{Queue: "b", Text: "down"}, "known", "me"))(t)
		for f, want := range map[store.GroupFilter]string{
			{}:                           "a order *: down, b order *: down, b *% refused",
			{Queue: "b"}:                 "b order *: down, b *% refused",
			{Text: "der"}:                "a order *: down, b order *: down",
			{Text: "%"}:                  "b *% refused",
			{State: failed.Discarded}:    "b order *: down",
			{State: failed.Failed}:       "a order *: down, b *% refused",
			{MostFailed: true}:           "a order *: down, b *% refused, b order *: down",
			{Queue: "c"}:                 "",
			{Queue: "a", Text: "refuse"}: "",
		} {
			var got []string
			groups, _, err := a.Groups(t.Context(), f, store.Page{})
			check(t, err)
			for _, g := range groups {
				got = append(got, string(g.Queue)+" "+g.Text)
			}
			if got := strings.Join(got, ", "); got != want {
				t.Errorf("%+v: got %s, want %s", f, got, want)
			}
		}
		one := value(a.Group(t.Context(), g.ID))(t)
		if one.Text != g.Text || one.Counts != g.Counts {
			t.Errorf("Group: got %+v, want %+v", one, g)
		}
		if _, err := a.Group(t.Context(), 99); !errors.Is(err, failed.ErrNotFound) {
			t.Errorf("unknown group: got error %v, want ErrNotFound", err)
		}
		queues := value(a.Queues(t.Context()))(t)
		if len(queues) != 2 || queues[0].Queue != "a" || !queues[0].Newest.Equal(c.now()) || !queues[0].Oldest.Equal(c.now().Add(-50*time.Hour)) {
			t.Errorf("got queues %+v, want 2, the first a", queues)
		}
	})
}

func TestPurgeIsRecorded(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		c := newClock()
		var log strings.Builder
		a := db.archive(t, func(cfg *store.Config) {
			cfg.Clock, cfg.Retention = c.now, time.Hour
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		add := func(n int, queue string) {
			arrivals := make([]failed.Arrived, n)
			for i := range arrivals {
				arrivals[i].FailedQueue = queue + ".failed"
			}
			value(a.Ingest(t.Context(), arrivals))(t)
		}
		add(1200, "old") // more than one transaction
		add(3, "sent")
		value(a.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{Queue: "sent"}}, "me"))(t)
		value(a.Discard(t.Context(), failed.Filter{IDs: []failed.ID{1, 2}}, "so", "me"))(t)
		c.pass(2 * time.Hour)
		add(2, "new")
		if _, err := a.Purge(t.Context(), ""); !errors.Is(err, failed.ErrInvalid) {
			t.Errorf("purge without an actor: got error %v, want ErrInvalid", err)
		}
		if n := value(a.Purge(t.Context(), "anna"))(t); n != 1200 {
			t.Errorf("purged %d messages, want 1200", n)
		}
		if n := value(a.Purge(t.Context(), "policy:retention"))(t); n != 0 {
			t.Errorf("second purge: got %d messages, want 0", n)
		}
		acts, _, err := a.Acts(t.Context(), store.ActFilter{}, store.Page{})
		check(t, err)
		if len(acts) != 3 || acts[0].Verb != "purge" || acts[0].Actor != "anna" || acts[0].Details["messages"] != 1200.0 {
			t.Errorf("got acts %+v, want 3 acts, the last a purge of 1200 messages by anna", acts)
		}
		states, _ := acts[0].Details["queues"].(map[string]any)["old"].(map[string]any)
		if states["failed"] != 1198.0 || states["discarded"] != 2.0 {
			t.Errorf("numbers by state: got %v, want 1198 failed, 2 discarded", acts[0].Details)
		}
		if strings.Count(log.String(), "msg=purged") != 1 || !strings.Contains(log.String(), "by=anna messages=1200") {
			t.Errorf("got log %s, want one purge of 1200 messages by anna", log.String())
		}
		if n := value(a.Count(t.Context(), failed.Filter{}))(t); n.N != 5 {
			t.Errorf("got %d messages after the purge, want 5", n.N)
		}
		list := first(a.List(t.Context(), failed.Filter{Queue: "old", Text: "anything"}, store.Page{}))(t)
		if len(list) > 0 {
			t.Errorf("search finds purged messages: %v", ids(list))
		}
	})
}
