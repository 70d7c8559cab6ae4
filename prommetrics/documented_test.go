package prommetrics_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/prommetrics"
)

// known returns all metrics of this package, with all values of their labels.
func known(t *testing.T) map[string]metric {
	t.Helper()
	m := newMetrics(t, prommetrics.Config{})
	m.Observe(reprise.Event{Kind: reprise.EventConsuming, Queue: "orders"})
	m.Observe(reprise.Event{Kind: reprise.EventConsuming, Queue: "orders.failed", AsDelivered: true})
	for _, store := range []string{"archive", "ledger", "duplicates", "outbox"} {
		m.Store(store, true)
	}
	m.Notified("sent")
	m.Result("orders", "sent")
	m.Outbox(time.Second, time.Now(), true)
	return described(t, m)
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The guide lists all metrics with their types and labels.
func TestGuideListsAllMetrics(t *testing.T) {
	want := map[string]string{}
	for name, m := range known(t) {
		want[name] = m.String()
	}
	line := regexp.MustCompile("(?m)^\\| `(reprise_\\w+)` \\| (\\w+) \\| ?([\\w, ]*)\\| ")
	got := map[string]string{}
	for _, m := range line.FindAllStringSubmatch(read(t, "../docs/observability.md"), -1) {
		labels := strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' || r == ' ' })
		slices.Sort(labels)
		got[m[1]] = m[2] + " " + strings.Join(labels, ", ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-exists +listed:\n%s", diff)
	}
}

// All metrics in the alerts and the dashboard exist. Together, the alerts and the dashboard use every metric of this
// package.
func TestExpressionsUseExistingMetrics(t *testing.T) {
	metrics := known(t)
	for name := range brokerMetrics(t) {
		metrics[name] = metric{kind: "broker"}
	}
	expressions := alerts(t)
	dashboard := dashboard(t)
	walk(dashboard, func(key string, value any) {
		if text, is := value.(string); is && (key == "expr" || key == "definition") {
			expressions = append(expressions, text)
		}
	})
	if len(expressions) < 30 {
		t.Fatalf("expressions: got %d, want at least 30", len(expressions))
	}
	used := map[string]bool{}
	for _, text := range expressions {
		for _, fault := range check(metrics, text, used) {
			t.Errorf("%s: %s", fault, text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		if strings.HasPrefix(name, "reprise_") && metrics[name].kind != "broker" && !used[name] {
			t.Errorf("no expression uses %s", name)
		}
	}
}

var (
	selector = regexp.MustCompile(`\b((?:reprise|rabbitmq)_\w+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	grouping = regexp.MustCompile(`\b(?:by|on) \(([\w, ]*)\)`)
)

// check reports metrics and labels that an expression uses, but that do not exist. It adds the used metrics to used.
func check(metrics map[string]metric, expression string, used map[string]bool) (faults []string) {
	labels := map[string]bool{"le": true}
	for _, s := range selector.FindAllStringSubmatch(expression, -1) {
		name := s[1]
		if base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, ""); metrics[base].kind == "histogram" {
			name = base
		}
		m, found := metrics[name]
		if !found {
			faults = append(faults, "unknown metric "+s[1])
			continue
		}
		used[name] = true
		for label := range m.labels {
			labels[label] = true
		}
		labels["queue"] = labels["queue"] || m.kind == "broker"
		for _, l := range matcher.FindAllStringSubmatch(s[2], -1) {
			if m.kind == "broker" || l[1] == "queue" {
				continue
			}
			values := m.labels[l[1]]
			for value := range strings.SplitSeq(l[3], "|") {
				if !slices.Contains(values, value) {
					faults = append(faults, fmt.Sprintf("%s has no %s=%q", name, l[1], value))
				}
			}
		}
	}
	for _, g := range grouping.FindAllStringSubmatch(expression, -1) {
		for label := range strings.SplitSeq(g[1], ", ") {
			if !labels[label] {
				faults = append(faults, "unknown label "+label)
			}
		}
	}
	return faults
}

func TestCheckFindsUnknownMetricsAndLabels(t *testing.T) {
	metrics := known(t)
	for expression, fault := range map[string]string{
		`rate(reprise_attempts_total{outcome="parked",queue=~"$queue"}[5m])`: "",
		`sum by (queue, le) (reprise_message_age_seconds_bucket)`:            "",
		`reprise_retries_total`:                                                               "unknown metric reprise_retries_total",
		`rate(reprise_attempts_total_bucket[5m])`:                                             "unknown metric reprise_attempts_total_bucket",
		`reprise_attempts_total{outcome=~"done|dead"}`:                                        `reprise_attempts_total has no outcome="dead"`,
		`reprise_attempts_total{result="ok"}`:                                                 `reprise_attempts_total has no result="ok"`,
		`sum by (connection) (reprise_paused)`:                                                "unknown label connection",
		`reprise_paused and on (queue) sum by (outcomes) (reprise_attempts_total{queue="q"})`: "unknown label outcomes",
	} {
		if got := strings.Join(check(metrics, expression, map[string]bool{}), "; "); got != fault {
			t.Errorf("%s: got %q, want %q", expression, got, fault)
		}
	}
}

// brokerMetrics returns the names of the metrics of the embedded broker. Most of these metrics have the same names in
// RabbitMQ.
func brokerMetrics(t *testing.T) map[string]bool {
	t.Helper()
	b, err := broker.New(broker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	w := httptest.NewRecorder()
	b.Metrics().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\w+) `).FindAllStringSubmatch(w.Body.String(), -1) {
		names[m[1]] = true
	}
	return names
}

func dashboard(t *testing.T) (d any) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, "../docs/grafana-dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func walk(v any, visit func(key string, value any)) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			visit(key, value)
			walk(value, visit)
		}
	case []any:
		for _, value := range v {
			walk(value, visit)
		}
	}
}

// alerts returns the expressions of the alerts in docs/observability.md. The YAML block there must be a complete rule file.
func alerts(t *testing.T) (expressions []string) {
	t.Helper()
	_, text, found := strings.Cut(read(t, "../docs/observability.md"), "```yaml\n")
	text, _, closed := strings.Cut(text, "```")
	if !found || !closed {
		t.Fatal("alerts not found in docs/observability.md")
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct{ Alert, Expr, For string }
		}
	}
	if err := yaml.UnmarshalWithOptions([]byte(text), &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			if rule.Alert == "" || rule.Expr == "" {
				t.Errorf("rule must have a name and an expression: got %+v", rule)
			}
			expressions = append(expressions, rule.Expr)
		}
	}
	return expressions
}

// The panels of the dashboard have different IDs and do not overlap, and an import prompts for the data source.
func TestDashboardPanelsDoNotOverlap(t *testing.T) {
	ids, sources := map[float64]bool{}, map[string]bool{}
	walk(dashboard(t), func(key string, value any) {
		panel, is := value.(map[string]any)
		switch {
		case is && key == "datasource":
			sources[fmt.Sprint(panel["type"], " ", panel["uid"])] = true
		case key == "panels":
			free := map[[2]float64]bool{}
			for _, p := range value.([]any) {
				panel := p.(map[string]any)
				id := panel["id"].(float64)
				if ids[id] {
					t.Errorf("panel ids must differ: got %v twice", id)
				}
				ids[id] = true
				at := panel["gridPos"].(map[string]any)
				for x := at["x"].(float64); x < at["x"].(float64)+at["w"].(float64); x++ {
					for y := at["y"].(float64); y < at["y"].(float64)+at["h"].(float64); y++ {
						if x >= 24 || free[[2]float64{x, y}] {
							t.Fatalf("panel %v overlaps another panel or exceeds the grid", panel["title"])
						}
						free[[2]float64{x, y}] = true
					}
				}
			}
		}
	})
	want := map[string]bool{"prometheus ${datasource}": true, "grafana -- Grafana --": true}
	if diff := cmp.Diff(want, sources); diff != "" || len(ids) < 20 {
		t.Errorf("got %d panels; data sources, -want +got:\n%s", len(ids), diff)
	}
}
