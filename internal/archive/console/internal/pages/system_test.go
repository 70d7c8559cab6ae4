package pages

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/internal/mgmtapi"
)

// The overview shows a work queue with order_by in one row, without the signs of the owners.
func TestFoldKeyed(t *testing.T) {
	n := func(n int64) mgmtapi.Field[int64] { return mgmtapi.Field[int64]{Value: n, Known: true} }
	rate := mgmtapi.Stats{PublishRate: mgmtapi.Field[float64]{Value: 1.5, Known: true}}
	got := foldKeyed(map[string]mgmtapi.Queue{
		"mails":                   {Name: "mails", Ready: n(7), Unacked: n(1), Consumers: n(1)},
		"orders.part.0-of-2":      {Ready: n(3), Unacked: n(1), Consumers: n(1), Stats: rate},
		"orders.part.1-of-2":      {Ready: n(4), Unacked: n(0), Consumers: n(1), Stats: rate},
		"orders.part.0-of-2.held": {Ready: n(0), Unacked: n(7), Consumers: n(2)},
		"orders.part.1-of-2.held": {Ready: n(5), Unacked: n(0), Consumers: n(2)},
		"orders.part.members":     {Ready: n(0), Unacked: n(0), Consumers: n(2)},
	})
	both := mgmtapi.Stats{PublishRate: mgmtapi.Field[float64]{Value: 3, Known: true}}
	want := map[string]mgmtapi.Queue{
		"mails":              {Name: "mails", Ready: n(7), Unacked: n(1), Consumers: n(1)},
		"orders":             {Name: "orders", Ready: n(7), Unacked: n(1), Consumers: n(2), Stats: both},
		"orders.part.*.held": {Name: "orders.part.*.held", Ready: n(5), Unacked: n(5)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
