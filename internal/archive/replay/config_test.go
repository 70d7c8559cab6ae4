package replay

import (
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/ingest"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/topology"
)

// Invalid configurations are refused with advice.
func TestConfigsRejectInvalidFields(t *testing.T) {
	for _, tc := range []struct {
		config interface{ Validate() error }
		want   []string // empty if the configuration is valid
	}{
		{ingest.Config{Queues: []string{"orders.failed"}}, nil},
		{ingest.Config{}, []string{"Queues must not be empty"}},
		{ingest.Config{Queues: []string{"a", "", "a"}, Batch: -1, Lease: time.Millisecond}, []string{"Lease must be at least 1s: got 1ms", "an empty name", `must not contain "a" twice`, "Batch must be between 0 and 65535: got -1 (0 means 100)"}},
		{Config{}, nil},
		{Config{Batch: 1001, Poll: -1, Lease: time.Millisecond, Marks: []topology.Marks{nil}}, []string{"Batch must be between 0 and 1000: got 1001", "Poll must not be negative: got -1ns", "Lease must be at least 1s: got 1ms", "Marks must not contain nil"}},
		{RedriveConfig{From: "orders.failed"}, nil},
		{RedriveConfig{To: &failed.Target{}, Marks: []topology.Marks{nil}}, []string{"From must not be empty", "To must have a routing key", "Marks must not contain nil"}},
	} {
		err := tc.config.Validate()
		if (err == nil) != (tc.want == nil) {
			t.Errorf("%+v: got error %v, want %v", tc.config, err, tc.want)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: got error %v, want %q", tc.config, err, want)
			}
		}
	}
	if _, err := ingest.New(nil, nil, ingest.Config{}); err == nil || !strings.Contains(err.Error(), "archive must not be nil") {
		t.Error(err)
	}
	if _, err := ingest.New(nil, &store.Archive{}, ingest.Config{}); err == nil || !strings.Contains(err.Error(), "client must not be nil") {
		t.Error(err)
	}
	if _, err := New(nil, &store.Archive{}, Config{}); err == nil || !strings.Contains(err.Error(), "client must not be nil") {
		t.Error(err)
	}
	if _, err := New(&reprise.Client{}, nil, Config{}); err == nil || !strings.Contains(err.Error(), "archive must not be nil") {
		t.Error(err)
	}
	if _, err := redriveFrom(t.Context(), nil, RedriveConfig{}); err == nil || !strings.Contains(err.Error(), "client must not be nil") {
		t.Error(err)
	}
}
