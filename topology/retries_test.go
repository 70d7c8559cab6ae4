package topology_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/topology"
)

func TestStrategyWaitingIn(t *testing.T) {
	for name, test := range map[string]struct {
		s    topology.Strategy
		d    topology.Delivery
		want string
	}{
		"default":       {topology.Strategy{}, topology.Delivery{Queue: "orders"}, "orders.wait.3078660-3848325"},
		"levels":        {topology.Strategy{Route: topology.Levels{}}, topology.Delivery{Queue: "orders"}, ""},
		"requeued":      {topology.Strategy{Route: topology.Requeuing{}}, topology.Delivery{Queue: "orders"}, ""},
		"delayed retry": {topology.Strategy{Route: topology.DelayedRetry{}}, topology.Delivery{Queue: "orders"}, "orders"},
		"cover art":     {(preset.CoverArt{}).Strategy(), topology.Delivery{Queue: "cover-art-archive.index", RoutingKey: "index"}, "cover-art-archive.retry"},
		"staking":       {(preset.Staking{}).Strategy(), topology.Delivery{Queue: "active_staking_queue", RoutingKey: "active_staking_queue"}, "active_staking_queue_delay"},
		"work/retry":    {(preset.WorkRetry{}).Strategy(), topology.Delivery{Queue: "WorkQueue"}, "RetryQueue"},
		"CDN":           {(preset.CDNPurge{}).Strategy(), topology.Delivery{Queue: "cdn-purge", RoutingKey: "url"}, "cdn-purge.wait"},
	} {
		hop, err := test.s.WithDefaults().Route.Wait(test.d, time.Hour)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := test.s.WaitingIn(test.d, hop); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// A report is unchanged after it is encoded and decoded. ReadRetryReport rejects values that a database or the console does
// not support.
func TestReadRetryReport(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r := topology.RetryReport{Queue: "orders", Retries: []topology.Retry{{MessageID: "1", Wait: "w", Attempt: 1, Failed: at, Due: at.Add(time.Hour), Error: strings.Repeat("ä", 4096)}}}
	body, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, ok := topology.ReadRetryReport(body)
	if !ok || len(got.Retries) != 1 || got.Retries[0].MessageID != "1" || len(got.Retries[0].Error) > 4096 || !got.Retries[0].Due.Equal(at.Add(time.Hour)) {
		t.Errorf("decoded report: got %+v, %t, want message 1 with an error of at most 4096 bytes", got, ok)
	}
	bad := got
	bad.Version = 1
	bad.Retries = append(bad.Retries, topology.Retry{MessageID: "2", Failed: at, Due: at}, topology.Retry{Attempt: 1})
	body, err = json.Marshal(bad)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := topology.ReadRetryReport(body); !ok || len(got.Retries) != 1 {
		t.Errorf("report with invalid retries: got %+v, %t, want one retry", got, ok)
	}
	for _, body := range []string{"", "{}", `{"v":2,"queue":"q"}`, `{"v":1}`, `{"v":1,"queue":"q","missing":-1}`, `{"v":1,"queue":"` + strings.Repeat("q", 256) + `"}`} {
		if _, ok := topology.ReadRetryReport([]byte(body)); ok {
			t.Errorf("ReadRetryReport accepted %s", body)
		}
	}
	for i := 0; !r.Full(); i++ {
		if i > 100 {
			t.Fatal("report with more than 100 retries is not full")
		}
		r.Retries = append(r.Retries, r.Retries[0])
	}
}
