package sift

import (
	"strings"
	"testing"

	"github.com/reprisemq/reprise/topology"
)

func TestCostOf(t *testing.T) {
	queue := func(args topology.Table) *topology.Queue { return &topology.Queue{Args: args} }
	quorum := func(limit int64) *topology.Queue {
		return queue(topology.Table{"x-queue-type": "quorum", "x-delivery-limit": limit})
	}
	for _, tc := range []struct {
		version string
		q       *topology.Queue
		counts  bool
		text    string
	}{
		{"4.3.6", nil, false, "return to their places"},
		{"4.3.6", quorum(5), false, "return to their places"},
		{"", nil, false, "return to their places"},
		{"4.0.5", nil, true, "if this is a quorum queue"},
		{"3.10.8", queue(nil), false, "return to their places"},
		{"4.0.5", queue(topology.Table{"x-queue-type": "quorum"}), true, "after 20 of which"},
		{"4.0.5", quorum(7), true, "after 7 of which"},
		{"4.0.5", quorum(-1), true, "counts as a failed delivery of each message"},
		{"3.10.8", queue(topology.Table{"x-queue-type": "quorum"}), true, "return to the end of the queue"},
		{"3.10.8", quorum(7), true, "after 7 of which"},
	} {
		if got := CostOf(tc.version, tc.q); got.Counts != tc.counts || !strings.Contains(got.Text, tc.text) {
			t.Errorf("version %q, queue %v: got %+v, want counts %v and %q", tc.version, tc.q, got, tc.counts, tc.text)
		}
	}
}
