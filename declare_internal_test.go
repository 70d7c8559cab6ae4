package reprise

import (
	"testing"

	"github.com/reprisemq/reprise/topology"
)

// Messages contain arbitrary routing keys, so the number of keys is unlimited.
func TestDeclarerKeyOmitsRoutingKeyOfExchange(t *testing.T) {
	for _, tc := range []struct {
		a, b topology.Hop
		same bool
	}{
		{topology.Hop{Exchange: "x", RoutingKey: "a"}, topology.Hop{Exchange: "x", RoutingKey: "b"}, true},
		{topology.Hop{Exchange: "x", RoutingKey: "a"}, topology.Hop{Exchange: "y", RoutingKey: "a"}, false},
		{topology.Hop{RoutingKey: "a"}, topology.Hop{RoutingKey: "b"}, false},
		{topology.Hop{RoutingKey: "x"}, topology.Hop{Exchange: "x"}, false},
	} {
		if same := keyOf(tc.a) == keyOf(tc.b); same != tc.same {
			t.Errorf("%+v and %+v: got equal keys %t, want %t", tc.a, tc.b, same, tc.same)
		}
	}
}

// The keys of a connection are removed when a newer connection replaces it, so that the memory does not grow indefinitely.
func TestOnConnectionForgetsKeysOfOldConnection(t *testing.T) {
	var o onConnection[string]
	o.note(1, "a")
	o.note(1, "b")
	o.forget("b")
	if !o.knows(1, "a") || o.knows(1, "b") || o.knows(2, "a") {
		t.Errorf("keys on the first connection: got %v, want only a", o.seen)
	}
	o.note(2, "c")
	o.note(1, "d") // from a goroutine that still uses the old connection
	if !o.knows(2, "c") || o.knows(2, "a") || o.knows(2, "d") || o.knows(1, "d") || len(o.seen) != 1 {
		t.Errorf("keys on the second connection: got %v, want only c", o.seen)
	}
}

// A connection may last for months, and each message may add a new key.
func TestOnConnectionLimitsKeys(t *testing.T) {
	var o onConnection[int]
	for i := range 3 * maxKnown {
		o.note(1, i)
		if !o.knows(1, i) {
			t.Fatalf("key %d was forgotten immediately", i)
		}
	}
	if n := len(o.seen); n > maxKnown {
		t.Errorf("number of keys: got %d, want at most %d", n, maxKnown)
	}
}
