package reprisetest_test

import (
	"testing"
	"time"

	"github.com/reprisemq/reprise/reprisetest"
)

// The benchmark measures a whole test: the start of a broker and a worker, a message that fails and is
// retried after four hours, and the shutdown.
func BenchmarkFourHours(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		reprisetest.Run(new(testing.T), func(t *testing.T, broker *reprisetest.Broker) {
			w := broker.Work(t, retrying(4*time.Hour))
			broker.Publish(t, order("1"))
			broker.Drain(t)
			if got := w.Attempts().Delays(); len(got) != 1 || got[0] != 4*time.Hour {
				b.Errorf("delays: got %v, want [4h0m0s]", got)
			}
		})
	}
}
