package content

import (
	"testing"

	"github.com/reprisemq/reprise/topology"
)

// Bytes that are text are readable, as strings are.
func TestHeadersShowTextOfBytes(t *testing.T) {
	got := Headers(topology.Table{"x-reprise-checkpoint": []byte("page 4"), "mac": []byte{0xff, 1}, "name": "Ada"}, 0)
	if want := "\nheaders\n  mac: {\"bytes\":\"/wE=\"}\n  name: Ada\n  x-reprise-checkpoint: page 4\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
