package prommetrics_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/prommetrics"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func newMetrics(t testing.TB, cfg prommetrics.Config) *prommetrics.Metrics {
	t.Helper()
	m, err := prommetrics.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// registry returns a registry that contains only a collector.
func registry(t testing.TB, c prometheus.Collector) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(c); err != nil {
		t.Fatal(err)
	}
	return r
}

// value returns a function that returns v, or fails a test if err is not nil.
func value[V any](v V, err error) func(t testing.TB) V {
	return func(t testing.TB) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// samples returns the values of all metrics of a collector. The names omit the prefix. A histogram has two values, the count
// and the sum.
func samples(t testing.TB, c prometheus.Collector) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for _, family := range value(registry(t, c).Gather())(t) {
		name := strings.TrimPrefix(family.GetName(), "reprise_")
		for _, m := range family.GetMetric() {
			labels := labelled(m.GetLabel())
			switch family.GetType().String() {
			case "COUNTER":
				all[name+labels] = m.GetCounter().GetValue()
			case "GAUGE":
				all[name+labels] = m.GetGauge().GetValue()
			case "HISTOGRAM":
				all[name+"_count"+labels] = float64(m.GetHistogram().GetSampleCount())
				all[name+"_sum"+labels] = m.GetHistogram().GetSampleSum()
			default:
				t.Fatalf("%s has unexpected type %s", name, family.GetType())
			}
		}
	}
	return all
}

func labelled[L interface {
	GetName() string
	GetValue() string
}](labels []L) string {
	var pairs []string
	for _, l := range labels {
		pairs = append(pairs, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	if len(pairs) == 0 {
		return ""
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

// changed returns the changed samples with their new values.
func changed(before, after map[string]float64) map[string]float64 {
	diff := map[string]float64{}
	for name, value := range after {
		if was, known := before[name]; !known || was != value {
			diff[name] = value
		}
	}
	return diff
}

// described returns the collector's metrics with their types and labels.
func described(t testing.TB, c prometheus.Collector) map[string]metric {
	t.Helper()
	all := map[string]metric{}
	for _, family := range value(registry(t, c).Gather())(t) {
		m := metric{kind: strings.ToLower(family.GetType().String()), labels: map[string][]string{}}
		for _, sample := range family.GetMetric() {
			for _, l := range sample.GetLabel() {
				if !slices.Contains(m.labels[l.GetName()], l.GetValue()) {
					m.labels[l.GetName()] = append(m.labels[l.GetName()], l.GetValue())
				}
			}
		}
		all[family.GetName()] = m
	}
	return all
}

type metric struct {
	kind   string
	labels map[string][]string // values by label
}

func (m metric) String() string {
	return m.kind + " " + strings.Join(slices.Sorted(maps.Keys(m.labels)), ", ")
}
