package ordered_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/ordered"
)

// checkRate checks that a process starts at most a burst and one attempt of a key per Every.
func (m *model) checkRate(k *progress, p *process) {
	r, all := m.cfg.Rate, append(k.starts[p.name], m.now)
	k.starts[p.name] = all
	for i, at := range all {
		if n := len(all) - i; r.Every > 0 && n > r.Burst+int(m.now.Sub(at)/r.Every) {
			m.fatalf("%s: %d attempts began within %s: %+v", p.name, n, m.now.Sub(at), r)
		}
	}
}

// TestModelWithRate also checks the rate of each key, and that a key is not parked because of its rate.
func TestModelWithRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		live(t, func(cfg *ordered.Config) {
			cfg.Window = rapid.IntRange(0, 4).Draw(t, "Window")
			cfg.Rate.Every = time.Duration(rapid.IntRange(1, 3).Draw(t, "Every")) * 2 * time.Second
			cfg.Rate.Burst = rapid.IntRange(1, 3).Draw(t, "Burst")
		})
	})
}
