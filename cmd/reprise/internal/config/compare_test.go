package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A change of a worker, or of what it refers to, changes only the source of this worker. Comments, the notation and the other
// keys do not.
func TestSourceOfWorkers(t *testing.T) {
	const text = `
metrics: 127.0.0.1:9090
exchanges: {shop: topic}
workers:
  - queue: orders
    exec: [x, "${N}"]
    bind: [{exchange: shop, key: a}]
    backoff: &slow {fixed: 5m}
  - {queue: mail, http: 'http://h/${file:secret}', backoff: *slow}
  - {queue: plain, exec: [y]}
`
	dir := t.TempDir()
	parse := func(text, n, secret string) *Config {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "secret"), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Parse(filepath.Join(dir, "x.yaml"), []byte(text), with(map[string]string{"N": n}))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	before := parse(text, "1", "s")
	for name, test := range map[string]struct {
		old, new  string // in the text
		n, secret string
		workers   string
		keys      string
	}{
		"nothing":    {"", "", "1", "s", "", ""},
		"comments":   {"workers:", "# a comment\nworkers:   # another", "1", "s", "", ""},
		"notation":   {"{queue: plain, exec: [y]}", "queue: 'plain'\n    exec:\n      - y", "1", "s", "", ""},
		"variable":   {"", "", "2", "s", "orders", ""},
		"file":       {"", "", "1", "t", "mail", ""},
		"alias":      {"5m", "6m", "1", "s", "orders,mail", ""},
		"exchange":   {"topic", "direct", "1", "s", "orders", ""},
		"type":       {"[y]", "['y', '']", "1", "s", "plain", ""},
		"setting":    {"9090", "9091", "1", "s", "", "metrics"},
		"no setting": {"metrics: 127.0.0.1:9090", "", "1", "s", "", "metrics"},
		"new":        {"metrics:", "announce: false\nmetrics:", "1", "s", "", "announce"},
	} {
		after := parse(strings.Replace(text, test.old, test.new, 1), test.n, test.secret)
		var changed []string
		for i, w := range after.Workers {
			if w.Source != before.Workers[i].Source {
				changed = append(changed, w.Queue)
			}
		}
		if got := strings.Join(changed, ","); got != test.workers {
			t.Errorf("%s: workers %q changed, want %q", name, got, test.workers)
		}
		if got := after.Changed(before); strings.Join(got, ",") != test.keys || !slices.Equal(got, before.Changed(after)) {
			t.Errorf("%s: keys %q changed, want %q", name, got, test.keys)
		}
	}
}
