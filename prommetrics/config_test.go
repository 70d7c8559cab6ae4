package prommetrics_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/prommetrics"
)

func TestBucketsThatCannotBe(t *testing.T) {
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
			t.Errorf("%s: there are metrics all the same", tc.want)
		}
	}
}

func TestBuckets(t *testing.T) {
	bounds := func(config prommetrics.Config, name string) (bounds []float64) {
		t.Helper()
		m := newMetrics(t, config)
		m.Observe(reprise.Event{Kind: reprise.EventConsuming, Queue: "q"})
		for _, family := range gather(t, m) {
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
		t.Errorf("the default buckets for delays are %v", got)
	}
	mine := []float64{10, 20}
	config := prommetrics.Config{RetryDelay: mine}
	if got := bounds(config, retryDelay); !slices.Equal(got, mine) {
		t.Errorf("the buckets are %v, want %v", got, mine)
	}
	if got := bounds(config, "reprise_message_age_seconds"); len(got) == 0 || slices.Equal(got, mine) {
		t.Errorf("the buckets for ages are %v", got)
	}
}

func TestNativeHistograms(t *testing.T) {
	for _, native := range []bool{false, true} {
		m := newMetrics(t, prommetrics.Config{NativeHistograms: native})
		m.Observe(reprise.Event{Kind: reprise.EventRetried, Queue: "q", Attempt: 1, Delay: time.Minute})
		n := 0
		for _, family := range gather(t, m) {
			if family.GetType() != dto.MetricType_HISTOGRAM {
				continue
			}
			n++
			for _, h := range family.GetMetric() {
				if got := h.GetHistogram().Schema != nil; got != native {
					t.Errorf("%s is native: %v, want %v", family.GetName(), got, native)
				}
				if len(h.GetHistogram().GetBucket()) == 0 {
					t.Errorf("%s has no buckets of its own", family.GetName())
				}
			}
		}
		if n != 5 {
			t.Errorf("%d histograms", n)
		}
	}
}

// Two clients of one process share a registry.
func TestSeveralClients(t *testing.T) {
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
		t.Errorf("%d connections, %v", n, err)
	}
}

// A queue name may contain any bytes that AMQP permits.
func TestNamesThatAreNoText(t *testing.T) {
	m := newMetrics(t, prommetrics.Config{})
	m.Observe(reprise.Event{Kind: reprise.EventConsuming, Queue: "caf\xe9"})
	if got := samples(t, m)[`consuming{queue="caf�"}`]; got != 1 {
		t.Errorf("%v", samples(t, m))
	}
}

func TestLint(t *testing.T) {
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

func TestUnregister(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := newMetrics(t, prommetrics.Config{})
	registry.MustRegister(m)
	if !registry.Unregister(m) {
		t.Fatal("it was not registered")
	}
	m.Observe(reprise.Event{Kind: reprise.EventPublished})
	if err := registry.Register(m); err != nil {
		t.Errorf("again: %v", err)
	}
}
