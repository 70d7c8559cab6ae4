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
	for range 100 {
		s.Handling = append(s.Handling, protocol.Handling{MessageID: long, Attempt: math.MaxInt, Since: time.Now()})
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

func TestStatusContainsHandledMessages(t *testing.T) {
	s := protocol.WorkerStatus{ID: "id", Queue: "orders", State: protocol.WorkerConsuming}
	for range protocol.MaxHandling {
		s.Handling = append(s.Handling, protocol.Handling{MessageID: "018f6b2a-7c11-7d7e-a8f0-8f1f5bd3a2f4", Attempt: 3, Since: time.Now()})
	}
	body, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if read, ok := protocol.ReadWorkerStatus(body); !ok || len(read.Handling) != protocol.MaxHandling {
		t.Errorf("messages kept by Encode: got %d in %d bytes, want %d", len(read.Handling), len(body), protocol.MaxHandling)
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
