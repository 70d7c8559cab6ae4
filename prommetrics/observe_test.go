package prommetrics_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/prommetrics"
)

var errTest = errors.New("test")

// Each event changes only the expected metrics.
func TestObserveChangesOnlyExpectedMetrics(t *testing.T) {
	const q = `{queue="orders"}`
	outcome := func(o string) string { return fmt.Sprintf(`{outcome=%q,queue="orders"}`, o) }
	result := func(r string) string { return fmt.Sprintf(`{queue="orders",result=%q}`, r) }
	// The virtual clock starts at began. The checks run a minute later.
	began := float64(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix())

	tests := []struct {
		name  string
		event reprise.Event
		want  map[string]float64
	}{
		{"a first attempt", reprise.Event{Kind: reprise.EventStarted, Attempt: 1, Age: 3 * time.Second}, map[string]float64{
			"attempts_running" + q: 1, "message_age_seconds_count" + q: 1, "message_age_seconds_sum" + q: 3,
		}},
		{"a first attempt, the message has no timestamp", reprise.Event{Kind: reprise.EventStarted, Attempt: 1}, map[string]float64{
			"attempts_running" + q: 1,
		}},
		{"a first attempt, the message's timestamp is that of a clock not set", reprise.Event{Kind: reprise.EventStarted, Attempt: 1, Age: 30 * 365 * 24 * time.Hour}, map[string]float64{
			"attempts_running" + q: 1,
		}},
		{"a later attempt, whose age is the retry's delay", reprise.Event{Kind: reprise.EventStarted, Attempt: 2, Age: time.Hour}, map[string]float64{
			"attempts_running" + q: 1,
		}},
		{"a handler that succeeds", reprise.Event{Kind: reprise.EventHandled, Attempt: 1, Took: 1500 * time.Millisecond}, map[string]float64{
			"attempts_running" + q:                          -1,
			"handler_duration_seconds_count" + result("ok"): 1, "handler_duration_seconds_sum" + result("ok"): 1.5,
		}},
		{"a handler that fails", reprise.Event{Kind: reprise.EventHandled, Attempt: 1, Took: time.Second, Err: errTest}, map[string]float64{
			"attempts_running" + q:                             -1,
			"handler_duration_seconds_count" + result("error"): 1, "handler_duration_seconds_sum" + result("error"): 1,
		}},
		{"done", reprise.Event{Kind: reprise.EventDone, Attempt: 3}, map[string]float64{
			"attempts_total" + outcome("done"):         1,
			"message_attempts_count" + outcome("done"): 1, "message_attempts_sum" + outcome("done"): 3,
			"last_success_timestamp_seconds" + q: began + 60,
		}},
		{"retried", reprise.Event{Kind: reprise.EventRetried, Attempt: 3, Delay: 90 * time.Second, Err: errTest}, map[string]float64{
			"attempts_total" + outcome("retried"): 1,
			"retry_delay_seconds_count" + q:       1, "retry_delay_seconds_sum" + q: 90,
		}},
		{"parked", reprise.Event{Kind: reprise.EventParked, Attempt: 10, Err: errTest}, map[string]float64{
			"attempts_total" + outcome("parked"):         1,
			"message_attempts_count" + outcome("parked"): 1, "message_attempts_sum" + outcome("parked"): 10,
		}},
		{"taken out of its queue to be archived", reprise.Event{Kind: reprise.EventDone, Attempt: 1, AsDelivered: true}, map[string]float64{
			"taken_total" + q: 1,
		}},
		{"not archived yet", reprise.Event{Kind: reprise.EventRequeued, Attempt: 1, AsDelivered: true}, map[string]float64{}},
		{"requeued", reprise.Event{Kind: reprise.EventRequeued, Attempt: 1}, map[string]float64{
			"attempts_total" + outcome("given_back"): 1,
		}},
		{"lost", reprise.Event{Kind: reprise.EventLost, Attempt: 1, Err: errTest}, map[string]float64{
			"attempts_total" + outcome("lost"): 1,
		}},
		{"dropped", reprise.Event{Kind: reprise.EventDropped, Attempt: 1, Err: errTest}, map[string]float64{
			"attempts_total" + outcome("dropped"): 1,
		}},
		{"debounced", reprise.Event{Kind: reprise.EventDebounced, Attempt: 1}, map[string]float64{
			"debounced_total" + q: 1,
		}},
		{"a copy that is tried again", reprise.Event{Kind: reprise.EventCopyFailed, Attempt: 1, Delay: time.Second, Err: errTest}, map[string]float64{
			"copies_failed_total" + q: 1,
		}},
		{"a copy that the broker refuses", reprise.Event{Kind: reprise.EventCopyRefused, Attempt: 1, Err: errTest}, map[string]float64{
			"copies_refused_total" + q: 1,
		}},
		{"a handler that takes nearly as long as the broker waits", reprise.Event{Kind: reprise.EventTimeoutNear, Attempt: 1, Took: 24 * time.Minute}, map[string]float64{
			"consumer_timeouts_near_total" + q: 1,
		}},
		{"an outcome that is not reported", reprise.Event{Kind: reprise.EventUnreported, Attempt: 1, Err: errTest}, map[string]float64{
			"outcomes_unreported_total" + q: 1,
		}},
		{"consuming, as before", reprise.Event{Kind: reprise.EventConsuming}, map[string]float64{}},
		{"interrupted", reprise.Event{Kind: reprise.EventInterrupted, Err: errTest, Delay: time.Second}, map[string]float64{
			"interruptions_total" + q: 1, "consuming" + q: 0,
		}},
		{"paused", reprise.Event{Kind: reprise.EventPaused, Delay: time.Minute}, map[string]float64{
			"pauses_total" + q: 1, "paused" + q: 1, "consuming" + q: 0,
		}},
		{"resumed, as before", reprise.Event{Kind: reprise.EventResumed}, map[string]float64{}},
		{"published", reprise.Event{Kind: reprise.EventPublished, Took: 250 * time.Millisecond}, map[string]float64{
			`published_total{result="ok"}`: 1, "publish_duration_seconds_count": 1, "publish_duration_seconds_sum": .25,
		}},
		{"not published", reprise.Event{Kind: reprise.EventPublished, Took: time.Minute, Err: fmt.Errorf("no: %w", reprise.ErrNacked)}, map[string]float64{
			`published_total{result="nacked"}`: 1,
		}},
		{"connected again", reprise.Event{Kind: reprise.EventConnected, Connection: "publish"}, map[string]float64{
			`reconnects_total{connection="publish"}`: 1,
		}},
		{"disconnected", reprise.Event{Kind: reprise.EventDisconnected, Connection: "consume", Err: errTest}, map[string]float64{
			`connection_up{connection="consume"}`: 0,
		}},
		{"blocked", reprise.Event{Kind: reprise.EventBlocked, Connection: "publish", Err: errTest}, map[string]float64{
			`connection_blocked{connection="publish"}`: 1,
		}},
		{"unblocked, as before", reprise.Event{Kind: reprise.EventUnblocked, Connection: "publish"}, map[string]float64{}},
	}

	tested := map[reprise.EventKind]bool{}
	for _, tc := range tests {
		tested[tc.event.Kind] = true
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMetrics(t, prommetrics.Config{})
				for _, connection := range []string{"publish", "consume"} {
					m.Observe(reprise.Event{Kind: reprise.EventConnected, Connection: connection})
				}
				m.Observe(reprise.Event{Kind: reprise.EventConsuming, Queue: "orders"})
				before := samples(t, m)
				time.Sleep(time.Minute)
				if tc.event.Connection == "" && tc.event.Kind != reprise.EventPublished {
					tc.event.Queue = "orders"
				}
				m.Observe(tc.event)
				if diff := cmp.Diff(tc.want, changed(before, samples(t, m))); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
			})
		})
	}
	for kind := reprise.EventKind(1); kind.String() != "unknown"; kind++ {
		if !tested[kind] {
			t.Errorf("event %s is not tested", kind)
		}
	}
}

// State metrics reflect the last event.
func TestStateMetricsReflectLastEvent(t *testing.T) {
	type event = reprise.Event
	for _, tc := range []struct {
		name   string
		events []event
		want   map[string]float64
	}{
		{"a connection failure ends a pause", []event{
			{Kind: reprise.EventConsuming, Queue: "q"}, {Kind: reprise.EventPaused, Queue: "q"}, {Kind: reprise.EventInterrupted, Queue: "q"}, {Kind: reprise.EventConsuming, Queue: "q"},
		}, map[string]float64{`consuming{queue="q"}`: 1, `paused{queue="q"}`: 0, `pauses_total{queue="q"}`: 1}},
		{"a shutdown does not count as an interruption", []event{
			{Kind: reprise.EventConsuming, Queue: "q"}, {Kind: reprise.EventPaused, Queue: "q"}, {Kind: reprise.EventInterrupted, Queue: "q", Err: reprise.ErrClosed},
		}, map[string]float64{`consuming{queue="q"}`: 0, `paused{queue="q"}`: 0, `interruptions_total{queue="q"}`: 0}},
		{"a pause does not count as an interruption", []event{
			{Kind: reprise.EventConsuming, Queue: "q"}, {Kind: reprise.EventPaused, Queue: "q"},
		}, map[string]float64{`consuming{queue="q"}`: 0, `paused{queue="q"}`: 1, `interruptions_total{queue="q"}`: 0}},
		{"two workers, one is interrupted", []event{
			{Kind: reprise.EventConsuming, Queue: "q", Worker: 1},
			{Kind: reprise.EventConsuming, Queue: "q", Worker: 2},
			{Kind: reprise.EventConsuming, Queue: "q", Worker: 1},
			{Kind: reprise.EventInterrupted, Queue: "q", Worker: 2},
			{Kind: reprise.EventInterrupted, Queue: "q", Worker: 2},
		}, map[string]float64{`consuming{queue="q"}`: 1, `paused{queue="q"}`: 0, `interruptions_total{queue="q"}`: 2}},
		{"two workers, one pauses and one stops", []event{
			{Kind: reprise.EventConsuming, Queue: "q", Worker: 1},
			{Kind: reprise.EventConsuming, Queue: "q", Worker: 2},
			{Kind: reprise.EventPaused, Queue: "q", Worker: 1},
			{Kind: reprise.EventInterrupted, Queue: "q", Worker: 2, Err: reprise.ErrClosed},
		}, map[string]float64{`consuming{queue="q"}`: 0, `paused{queue="q"}`: 1, `interruptions_total{queue="q"}`: 0}},
		{"a closed connection is not blocked", []event{
			{Kind: reprise.EventConnected, Connection: "publish"}, {Kind: reprise.EventBlocked, Connection: "publish"}, {Kind: reprise.EventDisconnected, Connection: "publish"},
		}, map[string]float64{`connection_up{connection="publish"}`: 0, `connection_blocked{connection="publish"}`: 0, `reconnects_total{connection="publish"}`: 0}},
		{"a new connection is not blocked", []event{
			{Kind: reprise.EventConnected, Connection: "publish"},
			{Kind: reprise.EventDisconnected, Connection: "publish"},
			{Kind: reprise.EventBlocked, Connection: "publish"}, // late event
			{Kind: reprise.EventConnected, Connection: "publish"},
		}, map[string]float64{`connection_up{connection="publish"}`: 1, `connection_blocked{connection="publish"}`: 0, `reconnects_total{connection="publish"}`: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMetrics(t, prommetrics.Config{})
			for _, e := range tc.events {
				m.Observe(e)
			}
			got := samples(t, m)
			for name, want := range tc.want {
				if value, found := got[name]; !found || value != want {
					t.Errorf("%s: got %v, want %v", name, value, want)
				}
			}
		})
	}
}

// Alerts use the time since the last success. Without an initial value, the last success of a new worker would appear to
// have been in 1970.
func TestLastSuccessStartsAtConsuming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name = `last_success_timestamp_seconds{queue="q"}`
		m := newMetrics(t, prommetrics.Config{})
		now := func() float64 { return float64(time.Now().Unix()) }
		consuming := reprise.Event{Kind: reprise.EventConsuming, Queue: "q"}

		began := now()
		m.Observe(consuming)
		time.Sleep(time.Hour)
		m.Observe(consuming) // again, after a pause or a lost connection
		if got := samples(t, m)[name]; got != began {
			t.Errorf("before the first success: got %v, want %v", got, began)
		}
		m.Observe(reprise.Event{Kind: reprise.EventDone, Queue: "q", Attempt: 1})
		done := now()
		time.Sleep(time.Hour)
		m.Observe(consuming)
		m.Observe(reprise.Event{Kind: reprise.EventParked, Queue: "q", Attempt: 1})
		if got := samples(t, m)[name]; got != done {
			t.Errorf("after a success: got %v, want %v", got, done)
		}
	})
}

func TestObserveIsSafeForConcurrentUse(t *testing.T) {
	const workers, messages = 8, 200
	m := newMetrics(t, prommetrics.Config{})
	var wg sync.WaitGroup
	for n := range workers {
		queue := fmt.Sprint("queue ", n%2)
		wg.Go(func() {
			for range messages {
				m.Observe(reprise.Event{Kind: reprise.EventStarted, Queue: queue, Attempt: 1})
				m.Observe(reprise.Event{Kind: reprise.EventHandled, Queue: queue, Attempt: 1, Took: time.Second})
				m.Observe(reprise.Event{Kind: reprise.EventDone, Queue: queue, Attempt: 1})
				m.Observe(reprise.Event{Kind: reprise.EventPublished, Took: time.Millisecond})
			}
		})
	}
	for range 10 {
		samples(t, m)
	}
	wg.Wait()
	got := samples(t, m)
	want := map[string]float64{`published_total{result="ok"}`: workers * messages}
	for _, queue := range []string{"queue 0", "queue 1"} {
		want[fmt.Sprintf(`attempts_total{outcome="done",queue=%q}`, queue)] = workers * messages / 2
		want[fmt.Sprintf(`attempts_running{queue=%q}`, queue)] = 0
		want[fmt.Sprintf(`handler_duration_seconds_sum{queue=%q,result="ok"}`, queue)] = workers * messages / 2
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s: got %v, want %v", name, got[name], value)
		}
	}
}

func TestObserveDoesNotAllocate(t *testing.T) {
	m := newMetrics(t, prommetrics.Config{})
	events := messageEvents()
	if n := testing.AllocsPerRun(100, func() {
		for _, e := range events {
			m.Observe(e)
		}
	}); n != 0 {
		t.Errorf("allocations for %[2]d events: got %[1]v, want 0", n, len(events))
	}
}

// messageEvents returns the events of a message that succeeds on the first attempt.
func messageEvents() []reprise.Event {
	return []reprise.Event{
		{Kind: reprise.EventStarted, Queue: "orders", MessageID: "id", Attempt: 1, Age: time.Second},
		{Kind: reprise.EventHandled, Queue: "orders", MessageID: "id", Attempt: 1, Took: time.Millisecond},
		{Kind: reprise.EventDone, Queue: "orders", MessageID: "id", Attempt: 1},
	}
}

// BenchmarkObserve measures the cost of a message that succeeds on the first attempt.
func BenchmarkObserve(b *testing.B) {
	m := newMetrics(b, prommetrics.Config{})
	events := messageEvents()
	b.ReportAllocs()
	for b.Loop() {
		for _, e := range events {
			m.Observe(e)
		}
	}
}

// BenchmarkObserveParallel measures the cost if all processors observe events of the same queue.
func BenchmarkObserveParallel(b *testing.B) {
	m := newMetrics(b, prommetrics.Config{})
	events := messageEvents()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			for _, e := range events {
				m.Observe(e)
			}
		}
	})
}
