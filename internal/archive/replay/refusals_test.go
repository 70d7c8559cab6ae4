package replay

import (
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// Before a replay and a redrive, an operator sees which messages they would refuse, because the consumer would lose them.
func TestRefusalsAreKnownBefore(t *testing.T) {
	const why = "Celery: the worker would drop the task, because it expired"
	expired := topology.Table{"task": "shop.charge", "id": "1", "root_id": "1", "expires": "2020-01-01T00:00:00"}
	a := archiveAt(t, time.Now)
	_, err := a.Add(t.Context(), []failed.Message{
		{Queue: "celery", FailedQueue: "celery.dead", Content: failed.Content{Headers: expired}},
		{Queue: "celery", FailedQueue: "celery.dead", Content: failed.Content{Body: []byte("17")}},
	})
	archivetest.Must(t, err)
	plan := failed.Plan{Filter: failed.Filter{All: true}}
	all, more, err := Refusals(t.Context(), a, plan, 2)
	if err != nil || more || len(all) != 1 || all[0].Messages != 1 || !strings.HasPrefix(all[0].Why, why) {
		t.Errorf("got %+v, %t, %v", all, more, err)
	}
	if _, more, err := Refusals(t.Context(), a, plan, 1); err != nil || !more {
		t.Errorf("limit: got %t, %v", more, err)
	}
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := archivetest.NewWire(t, b.URL)
		from := w.Queue("celery", nil)
		w.Publish(from, expired, "x")
		testkit.Eventually(t, archivetest.Longest, func() bool { return w.Depth(from) == 1 })
		_, all, err := LookBeforeRedrive(t.Context(), w.Client, RedriveConfig{From: from, To: &failed.Target{RoutingKey: "celery"}})
		if err != nil || len(all) != 1 || !strings.HasPrefix(all[0].Lost, why) {
			t.Errorf("redrive: got %+v, %v", all, err)
		}
	})
}
