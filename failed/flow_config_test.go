package failed

import (
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
)

// Invalid configurations are refused with advice.
func TestConfigsOfTheFlow(t *testing.T) {
	for _, tc := range []struct {
		config interface{ Validate() error }
		want   []string // empty if the configuration is valid
	}{
		{IngestConfig{Queues: []string{"orders.failed"}}, nil},
		{IngestConfig{}, []string{"Queues is empty: name the failed queues"}},
		{IngestConfig{Queues: []string{"a", "", "a"}, Batch: -1, Lease: time.Millisecond}, []string{"Lease 1ms: use at least 1s", "an empty name", `has "a" twice`, "Batch -1: use 1 to 65535, or 0 for 100"}},
		{ReplayerConfig{}, nil},
		{ReplayerConfig{Batch: 1001, Poll: -1, Lease: time.Millisecond, Marks: []topology.Marks{nil}}, []string{"Batch 1001: use 1 to 1000", "Poll -1ns is negative", "Lease 1ms: use at least 1s", "Marks has a nil entry"}},
		{RedriveConfig{From: "orders.failed"}, nil},
		{RedriveConfig{To: &Target{}, Marks: []topology.Marks{nil}}, []string{"From is empty", "To is empty: name a routing key", "Marks has a nil entry"}},
	} {
		err := tc.config.Validate()
		if (err == nil) != (tc.want == nil) {
			t.Errorf("%+v: %v", tc.config, err)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %q", tc.config, err, want)
			}
		}
	}
	if _, err := NewIngest(nil, nil, IngestConfig{}); err == nil || !strings.Contains(err.Error(), "needs an Archive") {
		t.Error(err)
	}
	if _, err := NewIngest(nil, &Archive{}, IngestConfig{}); err == nil || !strings.Contains(err.Error(), "needs a Client") {
		t.Error(err)
	}
	if _, err := NewReplayer(nil, &Archive{}, ReplayerConfig{}); err == nil || !strings.Contains(err.Error(), "needs a Client") {
		t.Error(err)
	}
	if _, err := NewReplayer(&reprise.Client{}, nil, ReplayerConfig{}); err == nil || !strings.Contains(err.Error(), "needs an Archive") {
		t.Error(err)
	}
	if _, err := redriveFrom(t.Context(), nil, RedriveConfig{}); err == nil || !strings.Contains(err.Error(), "needs a Client") {
		t.Error(err)
	}
}
