package topology_test

import (
	"testing"

	"github.com/reprisemq/reprise/topology"
)

func TestTopologyForChecksVersion(t *testing.T) {
	for _, tc := range []struct {
		needs, version string
		supported      bool
	}{
		{"", "", true},
		{"", "unknown", true},
		{"4.3.3", "4.3.3", true},
		{"4.3.3", "4.3.10", true},
		{"4.3.3", "4.3.2", false},
		{"4.3.3", "3.13.7", false},
		{"4.3.3", "10.0.0", true},
		{"4.3.3", "4.4.0-rc.1", true},
		{"4.3.3", "4.3.6+1.gabc", true},
		{"4.3.3", "4.3", false},
		{"4.3.3", "", false},
		{"4.3.3", "nightly", false},
		{"3.10", "3.10.8", true},
		{"3.10", "3.9.29", false},
	} {
		if err := (topology.Topology{Needs: tc.needs}).For(tc.version); (err == nil) != tc.supported {
			t.Errorf("Needs %q, version %q: got error %v, want supported %t", tc.needs, tc.version, err, tc.supported)
		}
	}
}

func TestMergeKeepsNewerNeeds(t *testing.T) {
	a, b := topology.Topology{Needs: "4.3.3"}, topology.Topology{Needs: "4.10"}
	for _, m := range []topology.Topology{a.Merge(b), b.Merge(a), topology.Topology{}.Merge(b), b.Merge(topology.Topology{})} {
		if m.Needs != "4.10" {
			t.Errorf("Needs: got %q, want 4.10", m.Needs)
		}
	}
	if err := (topology.Topology{Needs: "new"}).Validate(); err == nil {
		t.Error("Validate accepted an invalid version")
	}
}
