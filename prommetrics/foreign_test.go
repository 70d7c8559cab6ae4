package prommetrics_test

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit/hostile"
	"github.com/reprisemq/reprise/prommetrics"
)

// Names and errors of any content leave the page of metrics readable for Prometheus, and each name has one series, with
// the events of its queue.
func TestMetricsOfForeignNamesAreReadable(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newMetrics(t, prommetrics.Config{})
		done, consuming := map[string]float64{}, map[string]float64{}
		text := rapid.OneOf(hostile.Text, rapid.SampledFrom([]string{"\xff", "\xfe", "a\nb 1", `a"} 1`})) // also names that share a series
		for i, name := range rapid.SliceOfNDistinct(text, 1, 6, rapid.ID[string]).Draw(rt, "names") {
			err := errors.New(hostile.Text.Draw(rt, "error"))
			for kind := reprise.EventStarted; kind <= reprise.EventUnblocked; kind++ {
				if kind != reprise.EventDone && kind != reprise.EventInterrupted && kind != reprise.EventConsuming {
					m.Observe(reprise.Event{Kind: kind, Queue: name, Connection: name, Worker: i, Attempt: 1, Err: err, AsDelivered: rapid.Bool().Draw(rt, "as delivered")})
				}
			}
			m.Observe(reprise.Event{Kind: reprise.EventConsuming, Queue: name, Worker: i})
			m.Observe(reprise.Event{Kind: reprise.EventDone, Queue: name, Worker: i, Attempt: 1})
			m.Store(name, true)
			done[strings.ToValidUTF8(name, "\uFFFD")]++
			consuming[strings.ToValidUTF8(name, "\uFFFD")]++
		}
		families := scrape(t, m)
		for name, want := range map[string]map[string]float64{"reprise_attempts_total": done, "reprise_consuming": consuming} {
			got := map[string]float64{}
			for _, metric := range families[name].GetMetric() {
				labels := map[string]string{}
				for _, l := range metric.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				if outcome := labels["outcome"]; outcome != "" && outcome != "done" {
					continue
				}
				got[labels["queue"]] += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
			}
			for queue, n := range want {
				if got[queue] != n {
					rt.Errorf("%s of queue %q: got %v, want %v", name, queue, got[queue], n)
				}
			}
		}
	})
}

// scrape serves the metrics, and parses them as Prometheus does.
func scrape(t *testing.T, m *prommetrics.Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if w.Code != 200 || err != nil {
		t.Fatalf("metrics: got status %d, error %v", w.Code, err)
	}
	return families
}
