package mgmtapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/topology"
)

// A policy can set an alternate exchange. If the user may not read policies, the result must indicate that the alternate
// exchange is unknown.
func TestTopologyIncludesAlternateExchangeOfPolicy(t *testing.T) {
	for name, tc := range map[string]struct {
		status    int
		alternate string // of the exchange with the policy
		unknown   bool
	}{
		"may read policies":     {http.StatusOK, "last", false},
		"may not read policies": {http.StatusUnauthorized, "", true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer := map[string]string{
				"/api/exchanges/shop": `[{"name":"","type":"direct"},{"name":"first","type":"topic","internal":false,"arguments":{}},
					{"name":"second","type":"direct","policy":"p","arguments":{}},
					{"name":"third","type":"direct","policy":"p","arguments":{"alternate-exchange":"own"}}]`,
				"/api/bindings/shop": `[{"source":"","destination":"orders","destination_type":"queue","routing_key":"orders"},
					{"source":"first","destination":"orders","destination_type":"queue","routing_key":"k","arguments":{"n":1}},
					{"source":"first","destination":"second","destination_type":"exchange","routing_key":"#","arguments":{}}]`,
				"/api/policies/shop": `[{"name":"p","definition":{"alternate-exchange":"last"}}]`,
			}[r.URL.Path]
			if strings.HasPrefix(r.URL.Path, "/api/policies") {
				w.WriteHeader(tc.status)
			}
			_, _ = w.Write([]byte(answer))
		}))
		defer server.Close()
		got, err := mgmtapi.API{URL: server.URL, VHost: "shop"}.Topology(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		alternate, _ := got.Exchanges[1].Args["alternate-exchange"].(string)
		if !tc.unknown && alternate != tc.alternate {
			t.Errorf("%s: alternate exchange: got %q, want %q", name, alternate, tc.alternate)
		}
		if queues, err := got.Reach("second", "k"); err == nil {
			t.Errorf("%s: Reach with an unknown exchange: got %q, want an error", name, queues)
		}
		got.Exchanges[1].Args = topology.Table{}
		want := topology.Topology{
			Exchanges: []topology.Exchange{
				{Name: "first", Kind: "topic", Args: topology.Table{}},
				{Name: "second", Kind: "direct", Args: topology.Table{}},
				{Name: "third", Kind: "direct", Args: topology.Table{"alternate-exchange": "own"}},
			},
			Bindings: []topology.Binding{
				{Exchange: "first", Queue: "orders", RoutingKey: "k", Args: topology.Table{"n": int64(1)}},
				{Exchange: "first", ToExchange: "second", RoutingKey: "#", Args: topology.Table{}},
			},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}
