package load_test

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/bench/internal/nullbroker"
	"github.com/reprisemq/reprise/bench/load"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// embedded starts the embedded broker and stops it at the end of the test.
func embedded(t *testing.T) (url string) {
	t.Helper()
	b, err := broker.New(broker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t)
	served := make(chan error, 1)
	go func() { served <- b.Serve(l) }()
	t.Cleanup(func() {
		if err := b.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		<-served
	})
	return "amqp://guest:guest@" + l.Addr().String()
}

// null starts a null broker and stops it at the end of the test.
func null(t *testing.T) (url string) {
	t.Helper()
	s, l := nullbroker.New(), listen(t)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = l.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return "amqp://guest:guest@" + l.Addr().String()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var ways = map[string]load.Options{
	"plain":               {Count: 5000, Ack: load.AckAuto, Transient: true},
	"confirmed and acked": {Count: 5000, Body: 1024, Confirms: 100, Prefetch: 200},
	"acked together":      {Count: 5000, Body: 100, Confirms: 100, Prefetch: 200, Ack: load.AckMultiple},
	"large bodies":        {Count: 20, Body: 300_000, Confirms: 2},
	"many of everything":  {Count: 5003, Publishers: 3, Consumers: 4, Queues: 7, Confirms: 10},
	"more than queues":    {Count: 5003, Publishers: 5, Consumers: 3, Queues: 2, Confirms: 10},
	"one connection":      {Count: 5000, Publishers: 2, Consumers: 2, Queues: 2, Connections: 1, Confirms: 50, Prefetch: 10},
	"paced":               {Count: 500, Rate: 20_000, Confirms: 10},
	"warmed up":           {Count: 500, WarmUp: time.Millisecond},
}

func TestRunDeliversAllMessages(t *testing.T) {
	for name, start := range map[string]func(*testing.T) string{"embedded": embedded, "null": null} {
		t.Run(name, func(t *testing.T) {
			url := start(t)
			for name, o := range ways {
				t.Run(name, func(t *testing.T) {
					o.URL = url
					r, err := load.Run(t.Context(), o, nil)
					if err != nil {
						t.Fatal(err)
					}
					confirmed := o.Count
					if o.Confirms == 0 {
						confirmed = 0
					}
					if r.Published != o.Count || r.Delivered != o.Count || r.Confirmed != confirmed {
						t.Errorf("%d messages: got %d published, %d delivered, %d confirmed",
							o.Count, r.Published, r.Delivered, r.Confirmed)
					}
					if l := r.Latency; l.P50 <= 0 || l.P50 > l.P90 || l.P90 > l.P99 || l.P99 > l.P999 || l.P999 > l.Max {
						t.Errorf("percentiles do not ascend: %+v", l)
					}
				})
			}
		})
	}
}

func TestRunEndsAfterDuration(t *testing.T) {
	r, err := load.Run(t.Context(), load.Options{URL: embedded(t), Duration: 20 * time.Millisecond, Confirms: 10}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Published == 0 || r.Delivered != r.Published || r.Confirmed != r.Published {
		t.Errorf("got %d published, %d delivered, %d confirmed, want all published messages delivered and confirmed",
			r.Published, r.Delivered, r.Confirmed)
	}
}

func TestRunConsumesExpiredMessagesFromSecondQueue(t *testing.T) {
	r, err := load.Run(t.Context(), load.Options{
		URL: embedded(t), Count: 100, TTL: 20 * time.Millisecond, Confirms: 100, Late: time.Hour,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Delivered != 100 || r.Lateness == nil || r.Lateness.Late != 0 || r.Lateness.Early != 0 {
		t.Errorf("got %d delivered, lateness %+v, want 100 delivered, none late or early", r.Delivered, r.Lateness)
	}
	if r.Latency.P50 < 20_000 {
		t.Errorf("latency with a TTL of 20 ms: got %.0f µs, want at least 20000 µs", r.Latency.P50)
	}
}

func TestRunKeepsMessages(t *testing.T) {
	url := embedded(t)
	if _, err := load.Run(t.Context(), load.Options{
		URL: url, Queue: "kept", Consumers: -1, Count: 123, Confirms: 10, Keep: true,
	}, nil); err != nil {
		t.Fatal(err)
	}
	n, err := load.Depth(url, "kept-0")
	if err != nil || n != 123 {
		t.Errorf("depth: got %d, %v, want 123", n, err)
	}
}

func TestRunReportsEventsInOrder(t *testing.T) {
	var events []load.Event
	_, err := load.Run(t.Context(), load.Options{URL: null(t), Count: 10}, func(e load.Event) { events = append(events, e) })
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != 3 || events[0] != load.Measuring || events[1] != load.Published || events[2] != load.Drained {
		t.Errorf("events: got %v, want measuring, published, drained", events)
	}
}

func TestRunReturnsErrorOfBroker(t *testing.T) {
	for name, o := range map[string]load.Options{
		"queue type": {URL: embedded(t), Count: 1, QueueType: "heap"},
		"argument":   {URL: embedded(t), Count: 1, Arguments: amqpwire.Table{{Name: "x-max-length", Value: "many"}}},
	} {
		if _, err := load.Run(t.Context(), o, nil); err == nil || !strings.Contains(err.Error(), "PRECONDITION_FAILED") {
			t.Errorf("%s: got %v, want PRECONDITION_FAILED", name, err)
		}
	}
}

func TestRunEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := load.Run(ctx, load.Options{URL: embedded(t), Duration: time.Hour, Confirms: 10}, func(load.Event) { cancel() })
	if err == nil {
		t.Error("canceled run returned no error")
	}
}

func TestRunRejectsInvalidOptions(t *testing.T) {
	for name, o := range map[string]load.Options{
		"neither count nor duration": {},
		"both":                       {Count: 1, Duration: 1},
		"no room for the stamp":      {Count: 1, Body: 15},
		"unknown ack":                {Count: 1, Ack: "sometimes"},
		"negative":                   {Count: 1, Rate: -1},
		"ttl below a millisecond":    {Count: 1, TTL: time.Microsecond},
		"prefetch too large":         {Count: 1, Prefetch: 65536},
	} {
		if _, err := load.Run(t.Context(), o, nil); err == nil {
			t.Errorf("%s: options accepted", name)
		}
	}
}

// Scripts depend on the field names.
func TestResultMarshalsToJSON(t *testing.T) {
	r := load.Result{
		Published: 1, Confirmed: 2, Delivered: 3, PublishedPerSecond: 4, ConfirmedPerSecond: 5, DeliveredPerSecond: 6,
		Seconds: 7, Latency: &load.Percentiles{P50: 8, P90: 9, P99: 10, P999: 11, Max: 12},
		Lateness: &load.Lateness{Percentiles: load.Percentiles{P50: 13}, Late: 14, Early: 15}, CPUSeconds: 16,
	}
	got, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"published":1,"confirmed":2,"delivered":3,"published_per_s":4,"confirmed_per_s":5,"delivered_per_s":6,` +
		`"seconds":7,"publish_to_deliver":{"p50_us":8,"p90_us":9,"p99_us":10,"p999_us":11,"max_us":12},` +
		`"lateness":{"p50_us":13,"p90_us":0,"p99_us":0,"p999_us":0,"max_us":0,"late":14,"early":15},"cpu_s":16}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
