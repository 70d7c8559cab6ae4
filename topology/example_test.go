package topology_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reprisemq/reprise/topology"
)

// A delay selects one of the wait queues. The message expires there after the delay.
func ExampleBuckets() {
	for _, delay := range []time.Duration{0, 999 * time.Millisecond, time.Second, 1300 * time.Millisecond, 4 * time.Hour} {
		hop, err := topology.Buckets{}.Wait(topology.Delivery{Queue: "orders"}, delay)
		fmt.Println(delay, "→", hop.RoutingKey, "expires", hop.TTL, err)
	}
	// Output:
	// 0s → orders.wait.0-1000 expires 1ms <nil>
	// 999ms → orders.wait.0-1000 expires 999ms <nil>
	// 1s → orders.wait.1000-1250 expires 1s <nil>
	// 1.3s → orders.wait.1250-1562 expires 1.3s <nil>
	// 4h0m0s → orders.wait.11744152-14680190 expires 4h0m0s <nil>
}

// The message passes the wait queues of the binary digits of the delay, here 4 s + 2 s.
func ExampleLevels() {
	hop, err := topology.Levels{}.Wait(topology.Delivery{Queue: "orders"}, 6*time.Second)
	fmt.Println(hop.Delay, "in", hop.Stations, "queues, from", hop.Exchange, err)
	for _, name := range slices.Sorted(maps.Keys(hop.Headers)) {
		fmt.Println(name, hop.Headers[name])
	}
	for _, q := range hop.Topology.Queues {
		fmt.Println(q.Name, "delays by", q.Args["x-message-ttl"], "ms")
	}
	// Output:
	// 6s in 3 queues, from orders.level.3 <nil>
	// x-reprise-level-01 true
	// x-reprise-level-02 false
	// x-reprise-level-03 true
	// orders.level.0 delays by 1000 ms
	// orders.level.1 delays by 1000 ms
	// orders.level.2 delays by 2000 ms
	// orders.level.3 delays by 4000 ms
}

// A message for another exchange waits for 30 days.
func ExampleLevels_Schedule() {
	hop, err := topology.Levels{}.Schedule("invoices", "eu.reminder", 30*24*time.Hour)
	fmt.Println(hop.Exchange, hop.RoutingKey, hop.Delay, err)
	// Output:
	// exchange.invoices.level-22 eu.reminder 720h0m0s <nil>
}

// All messages wait in one queue, here for 1.5 s.
func ExampleMessageTTL() {
	hop, err := topology.MessageTTL{}.Wait(topology.Delivery{Queue: "orders"}, 1500*time.Millisecond)
	fmt.Println(hop.RoutingKey, "expires", hop.TTL, err)

	// An existing system can route copies to its wait queues through an exchange.
	route := topology.MessageTTL{
		WaitAddress:    topology.Address{Exchange: "common_dlx", Key: "{queue}_routing_key"},
		Infrastructure: topology.Topology{Exchanges: []topology.Exchange{{Name: "common_dlx", Kind: topology.Direct}} /* … */},
	}
	hop, err = route.Wait(topology.Delivery{Queue: "orders"}, 5*time.Second)
	fmt.Println(hop.Exchange, hop.RoutingKey, "expires", hop.TTL, err)
	// Output:
	// orders.wait expires 1.5s <nil>
	// common_dlx orders_routing_key expires 5s <nil>
}

// The broker moves a rejected message to the queue orders.retry, and from there back.
func ExampleDeadLettering() {
	route := topology.DeadLettering{Delay: 5 * time.Minute}
	hop, err := route.Wait(topology.Delivery{Queue: "orders"}, time.Second)
	fmt.Println(hop.Way, "and wait", hop.Delay, err)
	for _, q := range route.Topology("orders").Queues {
		fmt.Printf("%s → %v\n", q.Name, q.Args["x-dead-letter-routing-key"])
	}
	// Output:
	// DeadLetter and wait 5m0s <nil>
	// orders.retry → orders
	// orders.failed → <nil>
	// orders → orders.retry
}

// RabbitMQ 4.3.3 and later delay a requeued message of a quorum queue, here by 5 s more after each attempt.
func ExampleDelayedRetry() {
	route := topology.DelayedRetry{Min: 5 * time.Second, Max: time.Minute}
	for _, before := range []int64{0, 1, 2, 40} {
		d := topology.Delivery{Queue: "orders", Redelivered: before > 0, Headers: topology.Table{"x-delivery-count": before}}
		hop, err := route.Wait(d, 0)
		fmt.Println("attempt", topology.Deliveries{}.Read(d).Attempts+1, "failed:", hop.Way, hop.Delay, err)
	}
	fmt.Println(route.Topology("orders").For("4.0.5"))
	// Output:
	// attempt 1 failed: Requeue 5s <nil>
	// attempt 2 failed: Requeue 10s <nil>
	// attempt 3 failed: Requeue 15s <nil>
	// attempt 41 failed: Requeue 1m0s <nil>
	// topology: broker must be RabbitMQ 4.3.3 or later: got "4.0.5" (earlier versions ignore arguments of this topology; use another route, such as Buckets)
}

// The delay is three times the previous delay, which the broker recorded in x-death.
func ExampleGrowingTTL() {
	route := topology.GrowingTTL{Jitter: -1}
	d := topology.Delivery{Queue: "purge"}
	hop, err := route.Wait(d, time.Hour) // the route ignores the delay of the policy
	fmt.Println(hop.RoutingKey, hop.TTL, err)

	d.Headers = topology.Table{"x-death": []any{
		topology.Table{"queue": "purge.wait", "reason": "expired", "count": int64(1), "original-expiration": "10000"},
	}}
	hop, err = route.Wait(d, time.Hour)
	fmt.Println(hop.RoutingKey, hop.TTL, err)
	// Output:
	// purge.wait 10s <nil>
	// purge.wait 30s <nil>
}

// The last delay of 87 s, which the broker recorded, shows the number of attempts.
func ExampleExpirations() {
	d := topology.Delivery{Queue: "purge", Headers: topology.Table{"x-death": []any{
		topology.Table{"queue": "purge.wait", "reason": "expired", "count": int64(1), "original-expiration": "87214"},
	}}}
	h := topology.Expirations{}.Read(d)
	fmt.Println(h.Attempts, "attempts before") // after 10 s, 30 s and about 90 s
	// Output: 3 attempts before
}

// Other programs have retried this message twice.
func ExampleCountUp() {
	marks := topology.CountUp{Header: "x-processing-attempts"}
	d := topology.Delivery{Queue: "orders", Headers: topology.Table{"x-processing-attempts": int64(2), "own": "kept"}}

	history := marks.Read(d)
	fmt.Println("attempts made:", history.Attempts)
	headers := marks.Retry(d.Headers, topology.Failure{
		AttemptError: topology.AttemptError{Attempt: history.Attempts + 1, Error: "down"}, History: history, Queue: "orders",
	})
	fmt.Printf("%T %[1]v, %v\n", headers["x-processing-attempts"], headers["own"])
	// Output:
	// attempts made: 2
	// int32 3, kept
}

// The broker has recorded three rejections by the work queue.
func ExampleDeaths() {
	d := topology.Delivery{Queue: "orders", RoutingKey: "orders", Headers: topology.Table{
		"x-death": []any{
			topology.Table{"queue": "orders.retry", "reason": "expired", "count": int64(3)},
			topology.Table{"queue": "orders", "reason": "rejected", "count": int64(3), "exchange": "shop", "routing-keys": []any{"order.new"}},
		},
	}}
	h := topology.Deaths{}.Read(d)
	fmt.Println(h.Attempts, "attempts before, published to", h.Exchange, h.RoutingKey)
	// Output:
	// 3 attempts before, published to shop order.new
}
