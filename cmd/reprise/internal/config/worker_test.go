package config

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/reprisemq/reprise/topology"
)

func TestPriority(t *testing.T) {
	text := func(priority string) string {
		return fmt.Sprintf("broker: amqp://guest:guest@localhost/\nworkers:\n  - {queue: orders, exec: [echo], priority: %s}\n", priority)
	}
	for written, want := range map[string]int32{"10": 10, "-10": -10, "0": 0, "-2147483648": math.MinInt32, "2147483647": math.MaxInt32} {
		if got := mustParse(t, text(written)).Workers[0].Priority; got != want {
			t.Errorf("priority %s: got %d, want %d", written, got, want)
		}
	}
	for written, want := range map[string]string{
		"-2147483649":          "priority must be at least -2147483648: got -2147483649",
		"18446744073709551615": "priority must be at most 2147483647: got 18446744073709551615",
		"high":                 "priority must be an integer from -2147483648 to 2147483647",
	} {
		if _, err := Parse("dir/test.yaml", []byte(text(written)), environment); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("priority %s: got %v, want %s", written, err, want)
		}
	}
}

func TestPlainQueue(t *testing.T) {
	text := func(worker string) string {
		return fmt.Sprintf("broker: amqp://guest:guest@localhost/\nworkers:\n  - {queue: orders, exec: [echo]%s}\n", worker)
	}
	for written, want := range map[string]int{"": 0, ", plain: false": 0, ", plain: true": 1} {
		queues := mustParse(t, text(written)).Workers[0].Topology.Queues
		if len(queues) != want || want == 1 && (queues[0].Name != "orders" || len(queues[0].Args) != 0 || !queues[0].IfAbsent) {
			t.Errorf("%q: got %+v, want %d queues without arguments", written, queues, want)
		}
	}
	for written, want := range map[string]string{
		", plain: true, route: {dead-letter: {delay: 1m}}": "plain must not be combined with this route",
		", queue_type: classic, route: requeue":            "queue_type must not be combined with this route",
		", plain: true, queue_type: classic":               "plain: true must not be combined with queue_type",
		", queue_type: stream":                             "queue_type must be classic or quorum",
		", failed_queue: orders":                           "must not be the work queue",
		", failed_queue: orders.wait.0-1000":               "must not be a wait queue",
		", failed_queue: amq.dead":                         "must not start with amq.",
	} {
		if _, err := Parse("dir/test.yaml", []byte(text(written)), environment); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", written, err, want)
		}
	}
}

func TestQueueTypeAndFailedQueue(t *testing.T) {
	for written, want := range map[string]struct {
		declared topology.Queue // of the work queue
		failed   string
	}{
		"queue_type: quorum":                           {topology.Buckets{}.Topology("orders").Queues[0], "orders.failed"},
		"queue_type: classic":                          {classicQueue("orders.failed"), "orders.failed"},
		"queue_type: classic, failed_queue: dead":      {classicQueue("dead"), "dead"},
		"failed_queue: dead, route: levels":            {topology.ParkIn{Queue: "dead"}.Topology("orders").Queues[0], "dead"},
		"failed_queue: dead, plain: true":              {topology.Queue{Name: "orders", IfAbsent: true}, "dead"},
		"failed_queue: dead, route: {requeue: {}}":     {topology.ParkIn{Route: topology.Requeuing{}, Queue: "dead"}.Topology("orders").Queues[0], "dead"},
		"failed_queue: dead, route: {dead-letter: {}}": {topology.ParkIn{Route: topology.DeadLettering{Delay: topology.DefaultDeadLetteringDelay}, Queue: "dead"}.Topology("orders").Queues[2], "dead"},
	} {
		t.Run(written, func(t *testing.T) {
			w := mustParse(t, "broker: amqp://guest:guest@localhost/\nworkers:\n  - {queue: orders, exec: [echo], "+written+"}\n").Workers[0]
			route := w.Strategy.WithDefaults().Route
			var declared topology.Queue
			for _, q := range append(route.Topology("orders").Queues, w.Topology.Queues...) {
				if q.Name == "orders" {
					declared = q
				}
			}
			if diff := cmp.Diff(want.declared, declared, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("work queue:\n%s", diff)
			}
			if hop := route.Failed(topology.Delivery{Queue: "orders", RoutingKey: "orders"}); hop.Exchange != "" || hop.RoutingKey != want.failed {
				t.Errorf("parks in %q/%q, want queue %q", hop.Exchange, hop.RoutingKey, want.failed)
			}
			for _, q := range append(route.Topology("orders").Queues, w.Topology.Queues...) {
				if want.failed != "orders.failed" && q.Name == "orders.failed" {
					t.Error("the worker declares orders.failed")
				}
			}
		})
	}
}

func classicQueue(failed string) topology.Queue {
	return topology.Queue{Name: "orders", IfAbsent: true, Args: topology.Table{"x-queue-type": "classic", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": failed}}
}
