package topologytest

import (
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/topology"
)

var tries = topology.CountUp{Header: "x-tries"}

func TestCountUpCountsInOneHeader(t *testing.T) {
	for n := range 4 {
		headers := fail(tries, topology.Table{"own": "kept"}, n, 0)
		want := any(int32(n))
		if n == 0 {
			want = nil
		}
		if headers["x-tries"] != want || headers["own"] != "kept" {
			t.Errorf("headers after %d attempts: got %v, want count %v", n, headers, want)
		}
		h := tries.Read(topology.Delivery{Headers: headers})
		if h.Attempts != n || h.RetriesLeft != topology.Undecided || len(h.Errors) != n {
			t.Errorf("history after %d attempts: got %+v, want %[1]d attempts and errors", n, h)
		}
	}
}

// CountUp continues the counts of other programs, which may have any integer type.
func TestCountUpContinuesCountOfOthers(t *testing.T) {
	for _, tc := range []struct {
		found any
		read  int
		next  int32
	}{
		{nil, 0, 1},
		{int32(0), 0, 1},
		{int8(3), 3, 4},
		{byte(200), 200, 201},
		{int16(3), 3, 4},
		{int64(3), 3, 4},
		{int64(-3), 0, 1},
		{int64(math.MaxInt64), math.MaxInt32 - 1, math.MaxInt32},
		{"3", 0, 1},
		{3.0, 0, 1},
		{true, 0, 1},
	} {
		headers := topology.Table{"x-tries": tc.found}
		if tc.found == nil {
			headers = nil
		}
		if h := tries.Read(topology.Delivery{Headers: headers}); h.Attempts != tc.read {
			t.Errorf("%T %[1]v: got %d attempts, want %d", tc.found, h.Attempts, tc.read)
		}
		if after := fail(tries, headers, 1, 0); after["x-tries"] != tc.next {
			t.Errorf("next value after %T %[1]v: got %T %[2]v, want %d", tc.found, after["x-tries"], tc.next)
		}
	}
}

// Another program has retried the message, and has kept the header with the count, but not the headers of the trail.
func TestCountUpContinuesWithoutTrail(t *testing.T) {
	headers := fail(tries, topology.Table{"x-tries": int32(3)}, 1, 0)
	h := tries.Read(topology.Delivery{Queue: "q", Headers: headers})
	if h.Attempts != 4 || len(h.Errors) != 1 || h.Errors[0].Attempt != 4 {
		t.Errorf("history: got %+v, want 4 attempts and the error of attempt 4", h)
	}
}

func TestCountUpParksWithReason(t *testing.T) {
	f := topology.Failure{AttemptError: topology.AttemptError{Attempt: 10, Error: "down", Time: start}, Queue: "q", Reason: "10 attempts made"}
	want := topology.Table{
		"x-tries": int32(10), "x-reprise-attempts": int64(10), "x-reprise-first-failed": start, "x-reprise-queue": "q",
		"x-reprise-exchange": "", "x-reprise-routing-key": "", "x-reprise-reason": "10 attempts made",
		"x-reprise-errors": []any{topology.Table{"attempt": int64(10), "time": start, "error": "down", "host": "", "duration-ms": int64(0)}},
	}
	if diff := cmp.Diff(want, tries.Park(topology.Table{"x-tries": int64(9)}, f)); diff != "" {
		t.Error(diff)
	}
}

func TestCountUpOwns(t *testing.T) {
	for header, want := range map[string]bool{"x-tries": true, "x-reprise-errors": true, "x-reprise-attempts": true, "own": false, "": false} {
		if got := tries.Owns(header); got != want {
			t.Errorf("Owns(%q): got %t, want %t", header, got, want)
		}
	}
}

func TestCountUpValidate(t *testing.T) {
	if err := tries.Validate(); err != nil {
		t.Error(err)
	}
	for _, header := range []string{"", strings.Repeat("x", 256), "x-reprise-attempts"} {
		if err := (topology.CountUp{Header: header}).Validate(); err == nil || !strings.Contains(err.Error(), "topology: CountUp.Header must ") {
			t.Errorf("header %.20q: got %v, want an error about CountUp.Header", header, err)
		}
	}
}

func TestCountUpToleratesAnyHeader(t *testing.T) {
	names := []string{"x-tries", "x-reprise-attempts", "x-reprise-first-failed", "x-reprise-errors", "x-reprise-errors-dropped", "x-reprise-queue", "own"}
	rapid.Check(t, func(t *rapid.T) {
		headers := topology.Table{}
		for _, n := range names {
			if rapid.Bool().Draw(t, "has "+n) {
				headers[n] = anything().Draw(t, n)
			}
		}
		before := maps.Clone(headers)
		h := tries.Read(topology.Delivery{Queue: "q", Headers: headers})
		if h.Attempts < 0 || h.RetriesLeft != topology.Undecided {
			t.Fatalf("history must have no negative count and undecided retries: got %+v", h)
		}
		f := topology.Failure{
			AttemptError: topology.AttemptError{Attempt: h.Attempts + 1, Error: rapid.String().Draw(t, "error"), Time: start},
			History:      h, Queue: "q", Room: rapid.OneOf(rapid.Just(0), rapid.IntRange(1500, 5000)).Draw(t, "room"),
		}
		for name, out := range map[string]topology.Table{"retried": tries.Retry(headers, f), "parked": tries.Park(headers, f)} {
			if !cmp.Equal(before, headers) {
				t.Fatalf("Retry or Park modified its input:\n%s", cmp.Diff(before, headers))
			}
			n, is32 := out["x-tries"].(int32)
			if want := h.Attempts + 1; !is32 || int(n) != want {
				t.Fatalf("%s: got count %T %[2]v, want %d", name, out["x-tries"], want)
			}
			if f.Room > 0 && out.WireSize() > f.Room {
				t.Fatalf("%s: size of the headers: got %d, want at most %d", name, out.WireSize(), f.Room)
			}
			if !cmp.Equal(before["own"], out["own"]) {
				t.Fatalf("%s: own header: got %v, want %v", name, out["own"], before["own"])
			}
		}
	})
}
