package protocol_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/topology"
)

func TestStatusSizeIsLimited(t *testing.T) {
	long := strings.Repeat("é\x00\"<", 500)
	s := protocol.WorkerStatus{
		ID: "0123456789ab", Queue: strings.Repeat("q", 255), Client: long, Host: long, PID: math.MaxInt, Program: long, Reprise: long,
		Started: time.Now(), Sent: time.Now(), Concurrency: math.MaxInt, State: protocol.WorkerPaused, Trouble: long, Running: math.MaxInt,
	}
	for range 3 {
		s.Pauses = append(s.Pauses, protocol.Pause{Of: protocol.PauseOfWorker, By: long, Reason: long, At: time.Now(), Until: time.Now()})
	}
	progress := protocol.NewProgress(1./3, long, time.Now())
	for range 100 {
		s.Handling = append(s.Handling, protocol.Handling{MessageID: long, Attempt: math.MaxInt, Since: time.Now(), Progress: &progress})
	}
	s.Keys = &protocol.Keys{Partitions: math.MaxInt, Owned: math.MaxInt, Blocked: math.MaxInt, Behind: math.MaxInt}
	for range 100 {
		s.Keys.Oldest = append(s.Keys.Oldest, protocol.BlockedKey{Key: long, Since: time.Now(), Next: time.Now(), Attempts: math.MaxInt, Behind: math.MaxInt, Error: long})
	}
	for i := range s.Took.Buckets {
		s.Took.Buckets[i] = math.MaxUint64
	}
	s.Counts = protocol.Counts{Succeeded: math.MaxUint64, Failed: math.MaxUint64, Retried: math.MaxUint64, Parked: math.MaxUint64}
	body, err := s.Encode()
	if err != nil || len(body) > protocol.MaxStatus {
		t.Fatalf("size of the status: got %d bytes and error %v, want at most %d", len(body), err, protocol.MaxStatus)
	}
	read, ok := protocol.ReadWorkerStatus(body)
	if !ok || read.Queue != s.Queue || read.Running != s.Running || read.Counts != s.Counts || len(read.Pauses) != 3 {
		t.Errorf("decoded status: got %t, %+v, want the encoded status with 3 pauses", ok, read)
	}
	for n := range body {
		if _, ok := protocol.ReadWorkerStatus(body[:n]); ok {
			t.Fatalf("ReadWorkerStatus accepted the first %d bytes", n)
		}
	}
}

// Operators act on keys that they read in a status, so a status marks keys that it cannot contain. Long errors do not displace keys.
func TestStatusContainsBlockedKeys(t *testing.T) {
	s := protocol.WorkerStatus{ID: "id", Queue: "orders", State: protocol.WorkerConsuming, Keys: &protocol.Keys{Blocked: 10}}
	exact := strings.Repeat("x", 100)
	keys := []string{exact, "", "Büro", strings.Repeat("x", 300), "a\tb", "a\xffb", "7", "8", "9", "10"}
	for _, key := range keys {
		s.Keys.Oldest = append(s.Keys.Oldest, protocol.BlockedKey{Key: key, Since: time.Now(), Next: time.Now(), Attempts: 10, Behind: 100, Error: strings.Repeat("e", 200)})
	}
	body, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	read, ok := protocol.ReadWorkerStatus(body)
	if !ok || len(read.Keys.Oldest) != protocol.MaxBlocked || len(read.Keys.Oldest[0].Error) != 160 {
		t.Fatalf("decoded keys: got %t, %+v, want 10 keys", ok, read.Keys)
	}
	for i, k := range read.Keys.Oldest {
		inexact := i >= 3 && i <= 5
		if k.Inexact != inexact || !inexact && k.Key != keys[i] || !k.Is(keys[i]) || k.Is(keys[i]+"x") && i != 3 {
			t.Errorf("key %q: got %+v, want inexact %t", keys[i], k, inexact)
		}
	}
}

// All messages with a progress have a place in a status, if necessary without the texts of the newest ones.
func TestStatusContainsHandledMessages(t *testing.T) {
	s := protocol.WorkerStatus{ID: "id", Queue: "orders", State: protocol.WorkerConsuming}
	progress := protocol.NewProgress(0.4, strings.Repeat("page 4 of 10 ", 10), time.Now())
	for range protocol.MaxHandling {
		s.Handling = append(s.Handling, protocol.Handling{MessageID: strings.Repeat("m", 64), Attempt: 3, Since: time.Now(), Progress: &progress})
	}
	body, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	read, ok := protocol.ReadWorkerStatus(body)
	if !ok || len(read.Handling) != protocol.MaxHandling {
		t.Fatalf("messages kept by Encode: got %d in %d bytes, want %d", len(read.Handling), len(body), protocol.MaxHandling)
	}
	first, last := read.Handling[0].Progress, read.Handling[protocol.MaxHandling-1].Progress
	if first.Text != progress.Text || len(first.Text) > 64 || last.Text != "" || last.Fraction != 0.4 || progress.Text == "" {
		t.Errorf("progress: got %+v and %+v, want the text of the first message only", first, last)
	}
}

func TestProgressIsValid(t *testing.T) {
	for fraction, want := range map[float64]float64{math.NaN(): 0, math.Inf(1): 1, math.Inf(-1): 0, 1. / 3: 0.333, 2: 1} {
		if got := protocol.NewProgress(fraction, "", time.Now()).Fraction; got != want {
			t.Errorf("NewProgress(%v): got %v, want %v", fraction, got, want)
		}
	}
}

func TestHistogramQuantile(t *testing.T) {
	for d, want := range map[time.Duration]int{
		-1: 0, 0: 0, 125 * time.Microsecond: 0, 125*time.Microsecond + 1: 1, 250 * time.Microsecond: 1, 251 * time.Microsecond: 2,
		time.Millisecond: 3, time.Millisecond + 1: 4, protocol.TookBound(23): 23, protocol.TookBound(23) + 1: 24, math.MaxInt64: 24,
	} {
		if got := protocol.TookBucket(d); got != want {
			t.Errorf("TookBucket(%s): got %d, want %d", d, got, want)
		}
	}
	var h protocol.Histogram
	if got := h.Quantile(0.5); got != 0 {
		t.Errorf("quantile of an empty histogram: got %s, want 0", got)
	}
	for _, ms := range []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 60} {
		h.Buckets[protocol.TookBucket(time.Duration(ms)*time.Millisecond)]++
	}
	for q, want := range map[float64]time.Duration{0: time.Millisecond, 0.5: time.Millisecond, 0.9: time.Millisecond, 0.95: 64 * time.Millisecond, 1: 64 * time.Millisecond} {
		if got := h.Quantile(q); got != want {
			t.Errorf("Quantile(%v): got %s, want %s", q, got, want)
		}
	}
	twice := h.Add(h)
	if twice.Count() != 20 || twice.Sub(h) != h {
		t.Errorf("sum: got %+v, want twice the counts", twice)
	}
}

func TestPauseQueueName(t *testing.T) {
	q, ok := protocol.PauseQueue("orders")
	if !ok || q.Name != "reprise.paused.orders" || !protocol.IsControlQueue(q.Name) || protocol.IsControlQueue("orders") {
		t.Errorf("PauseQueue: got %+v, %t, want reprise.paused.orders, true", q, ok)
	}
	if _, ok := protocol.PauseQueue(strings.Repeat("q", 241)); ok {
		t.Error("PauseQueue accepted a name of 256 bytes")
	}
	all := protocol.Workers().Merge(topology.Topology{Queues: []topology.Queue{q, protocol.ControlQueue("x")}})
	if err := all.Validate(); err != nil {
		t.Error(err)
	}
}
