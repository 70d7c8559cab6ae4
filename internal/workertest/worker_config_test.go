package workertest

import (
	"context"
	"strings"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
)

func TestWorkerConfigRejectsPriorityWithSingleActiveConsumer(t *testing.T) {
	t.Parallel()
	queue := func(name string, single any) topology.Topology {
		return topology.Topology{Queues: []topology.Queue{{Name: name, Args: topology.Table{"x-queue-type": "quorum", "x-single-active-consumer": single}}}}
	}
	for name, tc := range map[string]struct {
		priority int32
		topology topology.Topology
		want     string
	}{
		"higher":         {priority: 5, topology: queue("q", true), want: "Priority must be 0 on a queue with x-single-active-consumer: got 5 "},
		"lower":          {priority: -1, topology: queue("q", true), want: "Priority must be 0 on a queue with x-single-active-consumer: got -1 "},
		"none":           {topology: queue("q", true)},
		"another queue":  {priority: 5, topology: queue("other", true)},
		"disabled":       {priority: 5, topology: queue("q", false)},
		"no declaration": {priority: 5},
	} {
		t.Run(name, func(t *testing.T) {
			h := reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return nil })
			err := reprise.WorkerConfig{Queue: "q", Handler: h, Priority: tc.priority, Topology: tc.topology}.Validate()
			if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
