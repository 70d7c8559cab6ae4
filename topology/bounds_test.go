package topology_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/topology"
)

func TestCountDownKeepsTheLastHundredTexts(t *testing.T) {
	var before []any
	for n := range 8192 { // the maximum that the AMQP client reads
		before = append(before, fmt.Sprint(n))
	}
	m := topology.CountDown{Header: "n", Errors: "e", Default: 4}
	f := topology.Failure{AttemptError: topology.AttemptError{Error: "last"}}
	for name, out := range map[string]topology.Table{
		"retry": m.Retry(topology.Table{"e": before}, f), "park": m.Park(topology.Table{"e": before}, f),
	} {
		texts := out["e"].([]any)
		if len(texts) != 100 || texts[0] != "8093" || texts[98] != "8191" || texts[99] != "last" {
			t.Errorf("%s: %d texts, from %v to %v", name, len(texts), texts[0], texts[len(texts)-1])
		}
	}
}

func TestTrailCutsWhatNoHostIsCalled(t *testing.T) {
	h := topology.Trail{}.Read(topology.Delivery{Headers: topology.Table{
		topology.HeaderErrors: []any{topology.Table{"host": strings.Repeat("h", 100_000)}},
	}})
	out := topology.Trail{}.Retry(nil, topology.Failure{History: h})
	host, _ := out[topology.HeaderErrors].([]any)[0].(topology.Table)["host"].(string)
	if len(host) > 255 || !strings.HasPrefix(host, "hhh") {
		t.Errorf("a host of %d bytes was kept", len(host))
	}
}
