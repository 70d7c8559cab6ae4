package topology_test

import (
	"fmt"
	"testing"

	"github.com/reprisemq/reprise/topology"
)

func TestCountDownKeepsLast100Texts(t *testing.T) {
	var before []any
	for n := range 8192 { // the maximum of the AMQP client
		before = append(before, fmt.Sprint(n))
	}
	m := topology.CountDown{Header: "n", Errors: "e", Default: 4}
	f := topology.Failure{AttemptError: topology.AttemptError{Error: "last"}}
	for name, out := range map[string]topology.Table{
		"retry": m.Retry(topology.Table{"e": before}, f), "park": m.Park(topology.Table{"e": before}, f),
	} {
		texts := out["e"].([]any)
		if len(texts) != 100 || texts[0] != "8093" || texts[98] != "8191" || texts[99] != "last" {
			t.Errorf("%s: got %d texts, from %v to %v, want 100, from 8093 to last", name, len(texts), texts[0], texts[len(texts)-1])
		}
	}
}
