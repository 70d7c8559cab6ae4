package topologytest

import (
	"time"

	"github.com/reprisemq/reprise/topology"
)

// ReturnKey returns the routing key with which w retries a message that the queue "work" delivered with the given key.
// It fails the test if w is not valid for the queue, or if w parks the message with a different key.
func ReturnKey(t interface{ Fatal(...any) }, w topology.WaitQueue, key string) string {
	if err := (topology.Strategy{Route: w}).ValidateQueue("work"); err != nil {
		t.Fatal(err)
	}
	d := topology.Delivery{Queue: "work", RoutingKey: key}
	hop, err := w.Wait(d, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if parked := w.Failed(d); parked.RoutingKey != hop.RoutingKey {
		t.Fatal("different routing keys: retry", hop.RoutingKey, "parked message", parked.RoutingKey)
	}
	return hop.RoutingKey
}
