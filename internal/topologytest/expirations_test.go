package topologytest

import (
	"maps"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/topology"
)

// waited returns the x-death header that RabbitMQ sets when a copy expires.
func waited(expiration string, count int64) []any {
	return []any{topology.Table{
		"count": count, "reason": "expired", "queue": "q.wait", "time": start, "exchange": "x.wait",
		"routing-keys": []any{"k"}, "original-expiration": expiration,
	}}
}

// workerCopy returns the headers of an expired copy that a worker published.
func workerCopy(attempts, waits int64, death []any) topology.Table {
	return topology.Table{"x-reprise-attempts": attempts, "x-reprise-queue": "q", "x-reprise-waits": waits, "x-death": death}
}

func TestExpirationsDetermineAttempts(t *testing.T) {
	const second = time.Second
	entry := func(changes topology.Table) []any {
		e := topology.Table{"count": int64(1), "reason": "expired", "queue": "q.wait", "original-expiration": "30000"}
		maps.Copy(e, changes)
		return []any{e}
	}
	for _, tc := range []struct {
		name     string
		headers  topology.Table
		attempts int
		next     time.Duration
	}{
		{"first delivery", nil, 0, 10 * second},
		{"waited once", topology.Table{"x-death": waited("10000", 1)}, 1, 30 * second},
		{"waited twice", topology.Table{"x-death": waited("30000", 1)}, 2, 90 * second},
		{"with randomness", topology.Table{"x-death": waited("33333", 1)}, 2, 99999 * time.Millisecond},
		{"shorter than the first", topology.Table{"x-death": waited("500", 1)}, 1, 1500 * time.Millisecond},
		// On RabbitMQ 3.10, if a program copies x-death, original-expiration keeps the first value.
		{"x-death was copied", topology.Table{"x-death": waited("10000", 3)}, 3, 90 * second},
		{"not the first entry", topology.Table{"x-death": append(entry(topology.Table{"queue": "other"}), entry(nil)...)}, 2, 90 * second},
		{"no expiration", topology.Table{"x-death": entry(topology.Table{"original-expiration": nil})}, 1, 30 * second},
		{"another reason", topology.Table{"x-death": entry(topology.Table{"reason": "maxlen"})}, 0, 10 * second},
		{"rejected", topology.Table{"x-death": entry(topology.Table{"reason": "rejected"})}, 2, 90 * second},
		// On RabbitMQ 3.10, if a program copies x-death, the header has one entry for each reason.
		{"rejected, then waited", topology.Table{"x-death": append(waited("90000", 1), entry(topology.Table{"reason": "rejected"})...)}, 3, 270 * second},
		{"waited twice, then rejected", topology.Table{"x-death": append(entry(topology.Table{"reason": "rejected", "original-expiration": "10000"}), waited("10000", 2)...)}, 3, 30 * second},
		{"no count", topology.Table{"x-death": entry(topology.Table{"count": "many"})}, 2, 90 * second},
		{"longer than the maximum", topology.Table{"x-death": entry(topology.Table{"original-expiration": "99999999999999"})}, 13, topology.DefaultGrowingTTLMax},
		{"countless", topology.Table{"x-death": entry(topology.Table{"count": int64(math.MaxInt64)})}, math.MaxInt32 - 1, 270 * second},
		{"negative", topology.Table{"x-death": entry(topology.Table{"original-expiration": "-1", "count": int64(-1)})}, 1, 30 * second},
		{"not an array", topology.Table{"x-death": "30000"}, 0, 10 * second},
		{"not tables", topology.Table{"x-death": []any{"30000", nil}}, 0, 10 * second},
		// A Reprise worker writes the number of attempts. Retries by other programs are added.
		{"worker", workerCopy(7, 10_000, waited("10000", 1)), 7, 30 * second},
		{"worker, then another program", workerCopy(2, 33_000, waited("95000", 1)), 3, 285 * second},
		{"worker, then another program with x-death", workerCopy(2, 33_000, waited("33000", 2)), 3, 297 * second},
		{"worker, rejected", workerCopy(2, 30_000, entry(topology.Table{"reason": "rejected"})), 2, 90 * second},
		{"worker, x-death lost", workerCopy(2, 33_000, nil), 2, 10 * second},
		{"worker, delay lost", topology.Table{"x-death": waited("90000", 1), "x-reprise-attempts": int64(1), "x-reprise-queue": "q"}, 3, 270 * second},
		{"a trail of another queue", topology.Table{"x-reprise-attempts": int64(7), "x-reprise-queue": "other"}, 0, 10 * second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := topology.Delivery{Queue: "q", Headers: tc.headers}
			route := topology.GrowingTTL{Jitter: -1}
			if h := route.Marks().Read(d); h.Attempts != tc.attempts || h.RetriesLeft != topology.Undecided {
				t.Errorf("got %d attempts and %d retries left, want %d attempts and the limits of the policy", h.Attempts, h.RetriesLeft, tc.attempts)
			}
			hop, err := route.Wait(d, time.Minute)
			if err != nil || hop.TTL != tc.next || hop.Delay != tc.next || hop.RoutingKey != "q.wait" {
				t.Errorf("next hop: got %+v, %v, want %s", hop, err, tc.next)
			}
		})
	}
}

// If delays do not grow, an expiration of any length shows only that there was at least one attempt.
func TestConstantExpirationsShowOneAttempt(t *testing.T) {
	e := topology.Expirations{Factor: 1}
	for _, expiration := range []string{"9000", "10000", "10001", "86400000"} {
		for headers, want := range map[string]int{"": 1, "worker": 8} {
			d := topology.Delivery{Queue: "q", Headers: topology.Table{"x-death": waited(expiration, 1)}}
			if headers != "" {
				d.Headers = workerCopy(8, 10_000, waited(expiration, 1))
			}
			if h := e.Read(d); h.Attempts != want {
				t.Errorf("%s after %s: got %d attempts, want %d", headers, expiration, h.Attempts, want)
			}
		}
	}
}

func TestExpirationsDetermineFirstFailure(t *testing.T) {
	h := topology.Expirations{}.Read(topology.Delivery{Queue: "q", Headers: topology.Table{"x-death": waited("10000", 2)}})
	if want := start.Add(-10 * time.Second); !h.FirstFailed.Equal(want) {
		t.Errorf("first failure: got %v, want %v", h.FirstFailed, want)
	}
}

// The delay grows with each retry. The route computes it only from the headers of the message.
func TestGrowingTTLGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		random := rapid.Float64Range(0, math.Nextafter(1, 0))
		first := time.Duration(rapid.Int64Range(1, 60_000).Draw(t, "first")) * time.Millisecond
		route := topology.GrowingTTL{
			First: first, Factor: rapid.Float64Range(1.5, 5).Draw(t, "factor"), Jitter: 0.05,
			Max:  rapid.SampledFrom([]time.Duration{0, time.Hour, topology.MaxDelay}).Draw(t, "max"),
			Rand: func() float64 { return random.Draw(t, "random") },
		}
		if err := route.Validate(); err != nil {
			t.Fatal(err)
		}
		most := route.Max
		if most == 0 {
			most = topology.DefaultGrowingTTLMax
		}
		var headers topology.Table
		last := time.Duration(0)
		for attempt := 1; attempt <= 20; attempt++ {
			d := topology.Delivery{Queue: "q", RoutingKey: "k", Headers: headers}
			h := route.Marks().Read(d)
			if h.Attempts != attempt-1 {
				t.Fatalf("attempts before attempt %d: got %d, want %d", attempt, h.Attempts, attempt-1)
			}
			hop, err := route.Wait(d, 0)
			if err != nil {
				t.Fatal(err)
			}
			want := float64(first)
			if attempt > 1 {
				want = min(float64(last)*route.Factor, float64(most))
			}
			spread := want*0.05 + float64(time.Millisecond)
			if attempt == 1 && hop.TTL != first || math.Abs(float64(hop.TTL)-want) > spread || hop.TTL > most || hop.TTL%time.Millisecond != 0 {
				t.Fatalf("attempt %d: got delay %s after %s, want about %s", attempt, hop.TTL, last, time.Duration(want))
			}
			last = hop.TTL
			headers = route.Marks().Retry(headers, topology.Failure{AttemptError: topology.AttemptError{Attempt: attempt, Time: start}, History: h, Queue: "q"})
			maps.Copy(headers, hop.Headers)
			headers["x-death"] = waited(strconv.FormatInt(hop.TTL.Milliseconds(), 10), 1)
		}
	})
}

// If other programs do not count attempts, Expirations derives the number from the expiration. A random deviation of up to
// 10% does not change the number.
func TestExpirationsTolerateRandomness(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := 10_000.0
		for attempts := 1; attempts <= 6; attempts++ {
			x := waited(strconv.Itoa(int(ms)), 1)
			if h := (topology.Expirations{}).Read(topology.Delivery{Queue: "q", Headers: topology.Table{"x-death": x}}); h.Attempts != attempts {
				t.Fatalf("expiration of %.0f: got %d attempts, want %d", ms, h.Attempts, attempts)
			}
			ms *= 3 * rapid.Float64Range(0.91, 1.1).Draw(t, "randomness")
		}
	})
}

func TestExpirationsTolerateAnyHeader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := topology.Delivery{Queue: "q", Headers: topology.Table{"x-death": []any{topology.Table{
			"queue": "q.wait", "reason": "expired",
			"original-expiration": rapid.OneOf(
				rapid.Map(rapid.String(), func(s string) any { return s }),
				rapid.Map(rapid.Int64(), func(n int64) any { return strconv.FormatInt(n, 10) }),
				rapid.Map(rapid.Int64(), func(n int64) any { return n }),
			).Draw(t, "expiration"),
			"count": rapid.OneOf(rapid.Map(rapid.Int64(), func(n int64) any { return n }), rapid.Just[any](nil), rapid.Just[any]("x")).Draw(t, "count"),
		}}}}
		route := topology.GrowingTTL{Factor: rapid.SampledFrom([]float64{1, 1.1, 3, 1000}).Draw(t, "factor")}
		if h := route.Marks().Read(d); h.Attempts < 1 || h.Attempts >= math.MaxInt32 {
			t.Fatalf("attempts: got %d, want 1 to %d", h.Attempts, math.MaxInt32-1)
		}
		if hop, err := route.Wait(d, 0); err != nil || hop.TTL < time.Millisecond || hop.TTL > topology.MaxDelay {
			t.Fatalf("Wait: got %s, %v, want 1ms to %s", hop.TTL, err, topology.MaxDelay)
		}
	})
}

func TestGrowingTTLOfAnExistingSystem(t *testing.T) {
	system := topology.Topology{
		Exchanges: []topology.Exchange{{Name: "x", Kind: topology.Topic}, {Name: "w", Kind: topology.Fanout}},
		Queues:    []topology.Queue{{Name: "q"}, {Name: "later"}},
		Bindings:  []topology.Binding{{Exchange: "x", Queue: "q", RoutingKey: "purge.*"}, {Exchange: "w", Queue: "later"}},
	}
	g := topology.GrowingTTL{
		MessageTTL: topology.MessageTTL{
			WaitAddress: topology.Address{Exchange: "w", Key: "{key}"}, WorkExchange: "x", Infrastructure: system,
		},
	}
	if err := g.Validate(); err == nil {
		t.Error("Validate accepted a route without the name of its wait queue")
	}
	g.WaitQueue = "later"
	if err := g.Validate(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(system, g.Topology("q")); diff != "" {
		t.Error(diff)
	}
	d := topology.Delivery{Queue: "q", RoutingKey: "purge.url", Headers: topology.Table{
		"x-death": []any{topology.Table{"queue": "later", "reason": "expired", "original-expiration": "10000"}},
	}}
	if hop, err := g.Wait(d, 0); err != nil || hop.Exchange != "w" || hop.RoutingKey != "purge.url" || hop.TTL < 27*time.Second || hop.TTL > 33*time.Second {
		t.Errorf("Wait: got %+v, %v, want exchange w, key purge.url and 27s to 33s", hop, err)
	}
	if err := g.ValidateQueue("elsewhere"); err == nil {
		t.Error("ValidateQueue accepted a work queue that no exchange reaches")
	}
}

func TestGrowingTTLValidate(t *testing.T) {
	for _, g := range []topology.GrowingTTL{
		{},
		{First: time.Millisecond, Factor: 1, Jitter: -1, Max: time.Millisecond},
		{First: time.Hour, Max: topology.MaxDelay, Jitter: 0.99},
	} {
		if err := (topology.Strategy{Route: g}).Validate(); err != nil {
			t.Errorf("%+v: %v", g, err)
		}
	}
	for _, g := range []topology.GrowingTTL{
		{First: -1},
		{First: time.Microsecond},
		{First: topology.MaxDelay + time.Millisecond},
		{Factor: 0.9},
		{Factor: math.NaN()},
		{Factor: math.Inf(1)},
		{Max: time.Second},
		{Max: time.Hour + 1},
		{Jitter: 1},
		{Jitter: math.NaN()},
		{MessageTTL: topology.MessageTTL{WaitAddress: topology.Address{Exchange: "w"}}},
	} {
		if err := (topology.Strategy{Route: g}).Validate(); err == nil {
			t.Errorf("Validate accepted %+v", g)
		}
	}
}
