package reprise

import (
	"testing"
	"time"
	"unsafe"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/topology"
)

// Handling and retrying a message require few allocations: 3 and 25 with Go 1.26. These are the allocations of the library,
// without the AMQP client and goroutines. bench/README.md has the total.
func TestMessageAllocations(t *testing.T) {
	w := &Worker{cfg: WorkerConfig{Queue: "orders"}.withDefaults()}
	w.planner = newPlanner(&w.cfg, "host", func() string { return "guest" })
	in := amqpconn.Delivery{
		Message: amqpconn.Message{
			Headers: topology.Table{"tenant": "acme"}, ContentType: "application/json", MessageID: "order-00000001",
			Timestamp: time.Unix(1700000000, 0), Type: "order.placed", Body: []byte(`{"order":1,"customer":4711}`),
		},
		RoutingKey: "orders",
	}
	d := &delivery{id: in.MessageID, Delivery: consume.Delivery{
		Delivery: in, FrameSize: 131072, History: topology.History{RetriesLeft: topology.Undecided}, Queue: "orders", Marked: in.Headers, Attempt: 1,
	}}
	if n := unsafe.Sizeof(*d); n > 1152 { // the next size class of Go is 1,280
		t.Errorf("delivery: got %d bytes, want at most 1152", n)
	}
	check := func(what string, most float64, f func()) {
		t.Helper()
		if n := testing.AllocsPerRun(1000, f); n > most {
			t.Errorf("%s: got %v allocations, want at most %v", what, n, most)
		}
	}
	// Body and headers.
	check("message for the handler", 4, func() { d.message = w.message(d) })
	check("context for the handler", 0, func() { d.context(t.Context()) })
	// The wait queue and its declaration, the replacement, the headers (copied to be encoded) and the history in them.
	d.result = result{verdict: verdict{outcome: failed}, text: "payment provider: 503 Service Unavailable"}
	check("plan of a retry", 27, func() {
		if p := w.planner.plan(d, false, time.Unix(1800000000, 0)); !p.copied || p.event != EventRetried {
			t.Errorf("got %+v, want a retry with a copy", p)
		}
	})
	d.result = result{}
	check("plan of a success", 0, func() { w.planner.plan(d, false, time.Time{}) })
}
