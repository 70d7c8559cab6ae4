package topologytest

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/topology"
)

// routes contains the routes that need no settings besides the name of a work queue.
var routes = []topology.Route{
	topology.Buckets{},
	topology.Buckets{Base: time.Minute, Growth: 1.01},
	topology.Levels{},
	topology.MessageTTL{},
	topology.MessageTTL{WaitAddress: topology.Address{Key: "{queue}_delay"}, FailedAddress: topology.Address{Key: "failed.{queue}"}},
	topology.GrowingTTL{},
	topology.Requeuing{},
	topology.DelayedRetry{},
	topology.DeadLettering{},
	topology.DeadLettering{Delay: time.Hour},
}

// If a work queue passes ValidateQueue, brokers accept all names and declarations of the route. The delay of a copy is never
// shorter than the requested delay (at most MaxDelay), except with GrowingTTL.
func TestRoutesAreAcceptedByBrokers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := topology.Strategy{Route: rapid.SampledFrom(routes).Draw(t, "route")}
		queue := strings.Repeat("q", rapid.OneOf(rapid.IntRange(1, 300), rapid.IntRange(200, 256)).Draw(t, "length"))
		d := topology.Delivery{Queue: queue, RoutingKey: "k"}
		delay := rapid.OneOf(delays(), rapid.Map(rapid.Int64(), func(n int64) time.Duration { return time.Duration(n) })).Draw(t, "delay")
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		if err := s.ValidateQueue(queue); err != nil {
			if len(queue) < 200 || len(err.Error()) > 400 {
				t.Fatal(err)
			}
			return
		}
		hop, err := s.Route.Wait(d, delay)
		if err != nil {
			t.Fatal(err)
		}
		failed := s.Route.Failed(d)
		all := s.Route.Topology(queue).Merge(hop.Topology, failed.Topology)
		if err := all.Validate(); err != nil {
			t.Fatal(err)
		}
		for _, h := range []topology.Hop{hop, failed} {
			switch {
			case h.Way != topology.Copy:
			case h.Exchange == "" && !declares(all, h.RoutingKey):
				t.Fatalf("queue %q is not declared", h.RoutingKey)
			case h.TTL < 0 || h.TTL%time.Millisecond != 0 || h.TTL > topology.MaxDelay:
				t.Fatalf("expiration must be whole milliseconds up to %s: got %s", topology.MaxDelay, h.TTL)
			}
		}
		if failed.Way != topology.Copy || failed.Delay != 0 || failed.TTL != 0 {
			t.Fatalf("Failed: got %+v, want a copy without a delay", failed)
		}
		_, fixed := s.Route.(topology.GrowingTTL) // GrowingTTL ignores the requested delay
		if hop.Way == topology.Copy && !fixed && hop.Delay < min(delay, topology.MaxDelay) {
			t.Fatalf("delay: got %s, want at least %s", hop.Delay, min(delay, topology.MaxDelay))
		}
	})
}

func declares(t topology.Topology, queue string) bool {
	for _, q := range t.Queues {
		if q.Name == queue {
			return true
		}
	}
	return false
}

// The queues that routes declare do not drop messages. Each of them is a quorum queue that either dead-letters at least once
// or is the last queue of the route.
func TestRoutesDeclareQueuesThatKeepMessages(t *testing.T) {
	for _, r := range routes {
		hop, err := r.Wait(topology.Delivery{Queue: "q"}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		all := r.Topology("q").Merge(hop.Topology, r.Failed(topology.Delivery{Queue: "q"}).Topology)
		for _, q := range all.Queues {
			_, deadLetters := q.Args["x-dead-letter-exchange"]
			switch {
			case q.Args["x-queue-type"] != "quorum":
				t.Errorf("%T: queue %q is not a quorum queue", r, q.Name)
			case q.Args["x-expires"] != nil || q.Args["x-max-length"] != nil:
				t.Errorf("%T: queue %q expires or drops messages: %v", r, q.Name, q.Args)
			case deadLetters && (q.Args["x-dead-letter-strategy"] != "at-least-once" || q.Args["x-overflow"] != "reject-publish"):
				t.Errorf("%T: queue %q loses dead letters: %v", r, q.Name, q.Args)
			case !deadLetters && q.Args["x-delivery-limit"] != int64(math.MaxInt32):
				t.Errorf("%T: x-delivery-limit of queue %q must be %d: got %v", r, q.Name, math.MaxInt32, q.Args)
			}
		}
	}
}

func TestMessageTTLOfAnExistingSystem(t *testing.T) {
	infrastructure := topology.Topology{
		Exchanges: []topology.Exchange{{Name: "purge", Kind: topology.Direct}, {Name: "purge.wait", Kind: topology.Direct}},
		Queues: []topology.Queue{
			{Name: "purge"}, {Name: "purge.wait", Args: topology.Table{"x-dead-letter-exchange": "purge"}},
		},
		Bindings: []topology.Binding{
			{Exchange: "purge", Queue: "purge", RoutingKey: "path"},
			{Exchange: "purge", Queue: "purge", RoutingKey: "tag"},
			{Exchange: "purge.wait", Queue: "purge.wait", RoutingKey: "path"},
			{Exchange: "purge.wait", Queue: "purge.wait", RoutingKey: "tag"},
		},
	}
	m := topology.MessageTTL{
		WaitAddress:    topology.Address{Exchange: "purge.wait", Key: "{key}"},
		FailedAddress:  topology.Address{Key: "failed.{queue}"},
		WorkExchange:   "purge",
		Infrastructure: infrastructure,
	}
	if err := (topology.Strategy{Route: m}).Validate(); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"tag": "tag", "path": "path", "purge": "path" /* published through the default exchange */} {
		d := topology.Delivery{Queue: "purge", RoutingKey: key}
		hop, err := m.Wait(d, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		wanted := topology.Hop{Exchange: "purge.wait", RoutingKey: want, TTL: 10 * time.Second, Delay: 10 * time.Second, Topology: infrastructure}
		if diff := cmp.Diff(wanted, hop); diff != "" {
			t.Errorf("key %s: %s", key, diff)
		}
		if hop := m.Failed(d); hop.Exchange != "" || hop.RoutingKey != "failed.purge" {
			t.Errorf("Failed: got exchange %q, routing key %q, want \"\" and \"failed.purge\"", hop.Exchange, hop.RoutingKey)
		}
	}
	if diff := cmp.Diff(infrastructure, m.Topology("purge")); diff != "" {
		t.Error(diff)
	}
}

func TestValidateRejectsUnreachableAddresses(t *testing.T) {
	for _, a := range []topology.Address{
		{Exchange: "x", Key: "{queue}"}, {Exchange: "x"}, {Key: "wait"}, {Key: "{queue}"}, {Key: "{key}"}, {Key: "{queue}.{key}"},
	} {
		for _, r := range []topology.Route{
			topology.MessageTTL{WaitAddress: a}, topology.MessageTTL{FailedAddress: a}, topology.DeadLettering{FailedAddress: a},
		} {
			if err := (topology.Strategy{Route: r}).Validate(); err == nil || !strings.Contains(err.Error(), "must have no exchange and the key of another queue") {
				t.Errorf("%+v: got %v, want an error about the exchange and the key", r, err)
			}
		}
	}
}

func TestDeadLetteringOfAnExistingSystem(t *testing.T) {
	r := topology.DeadLettering{
		Delay:         5 * time.Minute,
		FailedAddress: topology.Address{Exchange: "FailedExchange", Key: "{key}"},
		WorkExchange:  "WorkExchange",
		Infrastructure: topology.Topology{
			Exchanges: []topology.Exchange{
				{Name: "WorkExchange", Kind: topology.Direct}, {Name: "RetryExchange", Kind: topology.Direct}, {Name: "FailedExchange", Kind: topology.Fanout},
			},
			Queues: []topology.Queue{
				{Name: "WorkQueue", Args: topology.Table{"x-dead-letter-exchange": "RetryExchange"}},
				{Name: "RetryQueue", Args: topology.Table{"x-dead-letter-exchange": "WorkExchange", "x-message-ttl": 300000}},
				{Name: "FailedQueue"},
			},
			Bindings: []topology.Binding{
				{Exchange: "WorkExchange", Queue: "WorkQueue", RoutingKey: "work"},
				{Exchange: "RetryExchange", Queue: "RetryQueue", RoutingKey: "work"},
				{Exchange: "FailedExchange", Queue: "FailedQueue"},
			},
		},
	}
	s := topology.Strategy{Route: r}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := s.ValidateQueue("WorkQueue"); err != nil {
		t.Fatal(err)
	}
	// A rejected message is lost if its queue does not have a dead-letter exchange.
	if err := s.ValidateQueue("FailedQueue"); err == nil || !strings.Contains(err.Error(), "must have x-dead-letter-exchange") {
		t.Error(err)
	}
	hop, err := r.Wait(topology.Delivery{Queue: "WorkQueue"}, time.Second)
	if diff := cmp.Diff(topology.Hop{Way: topology.DeadLetter, Delay: 5 * time.Minute}, hop); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if hop := r.Failed(topology.Delivery{Queue: "WorkQueue", RoutingKey: "WorkQueue"}); hop.Exchange != "FailedExchange" || hop.RoutingKey != "work" {
		t.Errorf("Failed: got %+v, want FailedExchange with the key work", hop)
	}
	for _, delay := range []time.Duration{-1, time.Microsecond, topology.MaxDelay + time.Millisecond} {
		if (topology.DeadLettering{Delay: delay}).Validate() == nil {
			t.Errorf("Validate accepted a delay of %s", delay)
		}
	}
}

func TestIsWaitQueue(t *testing.T) {
	for name, is := range map[string]bool{
		"orders.wait.1000-1250": true, "orders.level.0": true, "orders.level.28": true,
		"orders": false, "orders.wait": false, "orders.retry": false, "orders.failed": false, "level.1.orders": false, "orders.level.x": false,
		"orders.level-1": false, "exchange.orders": false,
	} {
		if amqpvalue.IsWaitQueue(name) != is {
			t.Errorf("IsWaitQueue(%s): got %t, want %t", name, !is, is)
		}
	}
	for exchange, key := range map[string]string{"": "orders", "shop": "order.new", "amq.topic": "order.new"} {
		hop, err := topology.Levels{}.Schedule(exchange, key, topology.MaxSchedule)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range hop.Topology.Queues {
			if !amqpvalue.IsWaitQueue(q.Name) {
				t.Errorf("IsWaitQueue(%s): got false, want true", q.Name)
			}
		}
	}
}

func TestWayString(t *testing.T) {
	if s := fmt.Sprint(topology.Copy, topology.Requeue, topology.DeadLetter, topology.Way(7)); s != "Copy Requeue DeadLetter Way(7)" {
		t.Errorf("got %q, want Copy Requeue DeadLetter Way(7)", s)
	}
}
