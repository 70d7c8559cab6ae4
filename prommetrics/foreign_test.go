package prommetrics_test

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
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
		server := httptest.NewServer(promhttp.HandlerFor(registry(t, m), promhttp.HandlerOpts{}))
		defer server.Close()
		if err := testutil.ScrapeAndCompare(server.URL, strings.NewReader(""), "no metric"); err != nil { // parses all metrics, and compares none
			rt.Errorf("Prometheus cannot read the metrics: %v", err)
		}
		got := samples(t, m)
		for format, want := range map[string]map[string]float64{
			`attempts_total{outcome="done",queue=%q}`: done, `consuming{queue=%q}`: consuming,
		} {
			for queue, n := range want {
				if sample := fmt.Sprintf(format, queue); got[sample] != n {
					rt.Errorf("%s: got %v, want %v", sample, got[sample], n)
				}
			}
		}
	})
}
