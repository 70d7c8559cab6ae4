package broker_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/reprisemq/reprise/broker"
)

// A data directory that the version before wrote is opened with all messages, and then belongs to this version.
func TestADirectoryInTheFirstFormat(t *testing.T) {
	dir := t.TempDir() + "/data"
	must(t, os.CopyFS(dir, os.DirFS("testdata/format-1")))
	for _, when := range []string{"the first time", "again"} {
		life(t, broker.Config{DataDir: dir}, func(b *broker.Broker) {
			if n := ready(b, "orders"); n != 20 {
				t.Errorf("%s: %d messages", when, n)
			}
			m, ok, err := channel(t, dial(t, b)).Get("orders", false)
			if err != nil || !ok || string(m.Body) != "order 0" {
				t.Errorf("%s: got %q, %v, %v", when, m.Body, ok, err)
			}
		})
	}
	format, err := os.ReadFile(filepath.Join(dir, "FORMAT"))
	if err != nil || string(format) != "reprise 2\n" {
		t.Errorf("the format is %q, %v", format, err)
	}
}
