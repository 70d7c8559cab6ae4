package brokertest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/disk"
)

// A data directory that the version before wrote is opened with all messages, and then belongs to this version.
func TestADirectoryInTheFirstFormat(t *testing.T) {
	dir := t.TempDir() + "/data"
	must(t, os.CopyFS(dir, os.DirFS("testdata/format-1")))
	for _, when := range []string{"the first time", "again"} {
		life(t, broker.Config{Store: disk.Dir(dir)}, func(b *broker.Broker) {
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

// The file FORMAT of an older version does not hide damage.
func TestAnOldFormatHidesNoDamage(t *testing.T) {
	config := inData(t)
	life(t, config, func(b *broker.Broker) {
		ch := channel(t, dial(t, b))
		must(t, declare(ch, "orders", nil))
		publishMany(t, ch, "orders", 100)
	})
	format := filepath.Join(dirOf(config), "FORMAT")
	must(t, os.WriteFile(format, []byte("reprise 1\n"), 0o600))
	logs, err := filepath.Glob(filepath.Join(dirOf(config), "pebble", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("logs: %v, %v", logs, err)
	}
	log := logs[len(logs)-1]
	whole, err := os.ReadFile(log)
	must(t, err)
	must(t, os.WriteFile(log, whole[:len(whole)/2], 0o600))
	if b, err := broker.New(config); err == nil {
		_ = b.Shutdown(t.Context())
		t.Fatal("it starts with half of a log")
	}
	must(t, os.WriteFile(log, whole, 0o600))
	life(t, config, func(b *broker.Broker) {
		if n := ready(b, "orders"); n != 100 {
			t.Errorf("%d messages, want 100", n)
		}
	})
	if text, err := os.ReadFile(format); err != nil || string(text) != "reprise 2\n" {
		t.Errorf("the format is %q, %v", text, err)
	}
}
