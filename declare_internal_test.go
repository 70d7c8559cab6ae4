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
