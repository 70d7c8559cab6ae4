package topology_test

import (
	"strings"
	"testing"

	"github.com/reprisemq/reprise/topology"
)

func TestTrailTruncatesHost(t *testing.T) {
	h := topology.Trail{}.Read(topology.Delivery{Headers: topology.Table{
		topology.HeaderErrors: []any{topology.Table{"host": strings.Repeat("h", 100_000)}},
	}})
	out := topology.Trail{}.Retry(nil, topology.Failure{History: h})
	host, _ := out[topology.HeaderErrors].([]any)[0].(topology.Table)["host"].(string)
	if len(host) > 255 || !strings.HasPrefix(host, "hhh") {
		t.Errorf("host has %d bytes, want at most 255", len(host))
	}
}
