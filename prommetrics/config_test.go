package prommetrics_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/prommetrics"
)

func TestNewRejectsInvalidBuckets(t *testing.T) {
	for _, tc := range []struct {
		config prommetrics.Config
		want   string
	}{
		{prommetrics.Config{HandlerDuration: []float64{1, 1}}, "Config.HandlerDuration must increase: got 1 after 1"},
		{prommetrics.Config{PublishDuration: []float64{2, 1}}, "Config.PublishDuration must increase: got 1 after 2"},
		{prommetrics.Config{MessageAge: []float64{1, math.NaN()}}, "Config.MessageAge must only have finite bounds: got NaN"},
		{prommetrics.Config{RetryDelay: []float64{1, math.Inf(1)}}, "Config.RetryDelay must only have finite bounds: got +Inf"},
		{prommetrics.Config{MessageAttempts: []float64{3, 2, 1}}, "Config.MessageAttempts must increase: got 1 after 2"},
	} {
		m, err := prommetrics.New(tc.config)
		for _, err := range []error{tc.config.Validate(), err} {
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		}
		if m != nil {
			t.Errorf("New returned metrics and the error %s", tc.want)
		}
	}
}

func TestNewUsesConfiguredBuckets(t *testing.T) {
	bounds := func(config prommetrics.Config, name string) (bounds []float64) {
		t.Helper()
		m := newMetrics(t, config)
		m.Observe(reprise.Event{Kind: reprise.EventConsuming, Queue: "q"})
		for _, family := range value(registry(t, m).Gather())(t) {
			if family.GetName() == name {
				for _, b := range family.GetMetric()[0].GetHistogram().GetBucket() {
					bounds = append(bounds, b.GetUpperBound())
				}
			}
		}
		return bounds
	}
	const retryDelay = "reprise_retry_delay_seconds"
	if got := bounds(prommetrics.Config{}, retryDelay); len(got) == 0 || got[0] != .1 || got[len(got)-1] != (7*24*time.Hour).Seconds() {
		t.Errorf("default buckets of delays: got %v, want 0.1 s to 7 days", got)
	}
	mine := []float64{10, 20}
	config := prommetrics.Config{RetryDelay: mine}
	if got := bounds(config, retryDelay); !slices.Equal(got, mine) {
		t.Errorf("buckets of delays: got %v, want %v", got, mine)
	}
	if got := bounds(config, "reprise_message_age_seconds"); len(got) == 0 || slices.Equal(got, mine) {
		t.Errorf("buckets of ages: got %v, want the default", got)
	}
}

func TestNewExportsNativeHistograms(t *testing.T) {
	for _, native := range []bool{false, true} {
		m := newMetrics(t, prommetrics.Config{NativeHistograms: native})
		m.Observe(reprise.Event{Kind: reprise.EventRetried, Queue: "q", Attempt: 1, Delay: time.Minute})
		n := 0
		for _, family := range value(registry(t, m).Gather())(t) {
			if family.GetType().String() != "HISTOGRAM" {
				continue
			}
			n++
			for _, h := range family.GetMetric() {
				if got := h.GetHistogram().Schema != nil; got != native {
					t.Errorf("%s: got native %v, want %v", family.GetName(), got, native)
				}
				if len(h.GetHistogram().GetBucket()) == 0 {
					t.Errorf("classic buckets of %s: got 0, want at least 1", family.GetName())
				}
			}
		}
		if n != 5 {
			t.Errorf("histograms: got %d, want 5", n)
		}
	}
}

// Two clients in one process can share a registry.
func TestMetricsOfSeveralClientsShareRegistry(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	for _, broker := range []string{"eu", "us"} {
		m := newMetrics(t, prommetrics.Config{})
		err := prometheus.WrapRegistererWith(prometheus.Labels{"broker": broker}, registry).Register(m)
		if err != nil {
			t.Fatal(err)
		}
		m.Observe(reprise.Event{Kind: reprise.EventConnected, Connection: "publish"})
	}
	if n, err := testutil.GatherAndCount(registry, "reprise_connection_up"); n != 4 || err != nil {
		t.Errorf("connections: got %d, %v, want 4", n, err)
	}
}

// A queue name may contain any bytes that AMQP permits.
func TestMetricsConvertQueueNamesToUTF8(t *testing.T) {
	m := newMetrics(t, prommetrics.Config{})
	m.Observe(reprise.Event{Kind: reprise.EventConsuming, Queue: "caf\xe9"})
	if got := samples(t, m)[`consuming{queue="caf�"}`]; got != 1 {
		t.Errorf("samples: got %v, want 1 for the converted queue name", samples(t, m))
	}
}

func TestMetricsPassLint(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(t, prommetrics.Config{})
	registry.MustRegister(m)
	m.Observe(reprise.Event{Kind: reprise.EventConsuming, Queue: "q"})
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestMetricsCanBeRegisteredAgain(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := newMetrics(t, prommetrics.Config{})
	registry.MustRegister(m)
	if !registry.Unregister(m) {
		t.Fatal("Unregister returned false")
	}
	m.Observe(reprise.Event{Kind: reprise.EventPublished})
	if err := registry.Register(m); err != nil {
		t.Errorf("cannot register again: %v", err)
	}
}
