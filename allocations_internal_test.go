package reprise

import (
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/topology"
)

// Handling and retrying a message require few allocations: 3 and 21 with Go 1.26. These are the allocations of the library,
// without the AMQP client and goroutines. bench/README.md has the total.
func TestMessageAllocations(t *testing.T) {
	w := &Worker{cfg: WorkerConfig{Queue: "orders", Strategy: topology.Strategy{}.WithDefaults()}}
	in := amqpconn.Delivery{
		Message: amqpconn.Message{
			Headers: topology.Table{"tenant": "acme"}, ContentType: "application/json", MessageID: "order-00000001",
			Timestamp: time.Unix(1700000000, 0), Type: "order.placed", Body: []byte(`{"order":1,"customer":4711}`),
		},
		RoutingKey: "orders",
	}
	d := &delivery{Delivery: consume.Delivery{
		Delivery: in, At: topology.Delivery{Queue: "orders", RoutingKey: "orders", Headers: in.Headers}, Attempt: 1,
	}}
	check := func(what string, most float64, f func()) {
		t.Helper()
		if n := testing.AllocsPerRun(1000, f); n > most {
			t.Errorf("%s: got %v allocations, want at most %v", what, n, most)
		}
	}
	// Body and headers.
	check("message for the handler", 4, func() { d.message = w.message(d) })
	outcome := &result{text: "payment provider: 503 Service Unavailable"} // settle has allocated it
	// The wait queue and its declaration, the replacement, the headers (copied to be encoded) and the history in them.
	check("copy", 23, func() {
		c := w.newReplacement(d, outcome)
		c.failure.Room = 4096
		var err error
		if c.hop, err = w.cfg.Strategy.Route.Wait(d.At, time.Hour); err != nil {
			t.Error(err)
		}
		if err := c.write(c.carry(d, "guest"), w.cfg.Strategy.Marks.Retry); err != nil {
			t.Error(err)
		}
	})
}
