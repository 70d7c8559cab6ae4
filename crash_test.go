package reprise_test

import (
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/chaos/explore"
)

// What breaks at every moment, in every way to settle a message, and what becomes
// of it, is in chaos, and docs/guarantees.md has the tables. This test makes sure
// that they could say something else: a worker that acknowledges before its copy is
// confirmed does not get away with it.
func TestWhoAcksTooEarlyIsFoundOut(t *testing.T) {
	for _, life := range []explore.Life{explore.Retry, explore.Park} {
		p := &explore.Passage{Way: explore.PublishThenAck, Life: life}
		explore.Embedded(t, explore.Setting{Prepare: (*reprise.Worker).AckTooEarly}, []*explore.Passage{p})
		if !p.Has(explore.Lost) {
			t.Errorf("%s: nothing is lost\n%s", p, p.Table())
		}
	}
}
