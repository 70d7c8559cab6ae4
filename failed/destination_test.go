package failed_test

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/failed"
)

// Whoever begins a replay can see what goes where: also the one message that somebody
// has sent into the failed queue, for it to go elsewhere.
func TestDestinations(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		of := func(queue, failedQueue string) failed.Arrival {
			return failed.Arrival{Message: failed.Message{Queue: queue, FailedQueue: failedQueue, Error: "down"}}
		}
		value(a.Add(t.Context(), []failed.Arrival{
			of("orders", "orders.failed"), of("refunds", "orders.failed"), of("orders", "orders.failed"), of("", "dead"), of("mails", "mails.failed"),
		}))(t)
		value(a.Discard(t.Context(), failed.Filter{Queue: "mails"}, "old", "me"))(t)
		back := func(queue, failedQueue string, n int64) failed.Destination {
			return failed.Destination{Target: failed.Target{RoutingKey: queue}, FailedQueue: failedQueue, Messages: n}
		}
		unknown := failed.Destination{FailedQueue: "dead", Messages: 1, Unknown: true}
		elsewhere := failed.Plan{To: &failed.Target{RoutingKey: "elsewhere"}}
		for name, tc := range map[string]struct {
			plan failed.Plan
			want []failed.Destination
		}{
			"all":       {failed.Plan{}, []failed.Destination{back("orders", "orders.failed", 2), unknown, back("refunds", "orders.failed", 1)}},
			"of one":    {failed.Plan{Filter: failed.Filter{Queue: "orders", Text: "down"}}, []failed.Destination{back("orders", "orders.failed", 2)}},
			"of none":   {failed.Plan{Filter: failed.Filter{Queue: "none"}}, nil},
			"elsewhere": {elsewhere, []failed.Destination{back("elsewhere", "orders.failed", 3), back("elsewhere", "dead", 1)}},
		} {
			if d := gocmp.Diff(tc.want, value(a.Destinations(t.Context(), tc.plan))(t)); d != "" {
				t.Errorf("%s: %s", name, d)
			}
		}
	})
}
