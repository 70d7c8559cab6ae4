package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The file of the workers in deploy/kubernetes is valid, and listens on the port of the probes.
func TestKubernetesFile(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "..", "deploy", "kubernetes", "worker")
	read := func(name string) []byte {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	cfg, err := Parse("/etc/reprise/reprise.yaml", read("reprise.yaml"), func(name string) (string, bool) {
		return "secret", name == "BROKER_PASSWORD"
	})
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(cfg.Metrics, "0.0.0.0:")
	if want := "{name: metrics, containerPort: " + port + "}"; port == "" || !strings.Contains(string(read("worker.yaml")), want) {
		t.Errorf("metrics at %q, but %q not found in worker.yaml", cfg.Metrics, want)
	}
}
