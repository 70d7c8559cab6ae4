package topologytest

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/topology"
)

var start = time.Unix(1_700_000_000, 0)

// fail simulates n failed attempts with marks and returns the last headers.
func fail(marks topology.Marks, headers topology.Table, n, room int) topology.Table {
	d := topology.Delivery{Queue: "q", Exchange: "x", RoutingKey: "k", Headers: headers}
	for range n {
		h := marks.Read(d)
		exchange, key := h.OriginAt(d)
		f := topology.Failure{
			AttemptError: topology.AttemptError{
				Attempt: h.Attempts + 1, Time: start.Add(time.Duration(h.Attempts) * time.Minute),
				Error: fmt.Sprintf("error %d", h.Attempts+1), Host: "host", Duration: time.Duration(h.Attempts) * time.Second,
			},
			History: h, Queue: "q", Exchange: exchange, RoutingKey: key, Room: room,
		}
		d.Headers = marks.Retry(d.Headers, f)
		d.Exchange, d.RoutingKey = "", "q" // the copy returns through the default exchange
	}
	return d.Headers
}

func TestTrailKeepsFirstAndLastErrors(t *testing.T) {
	headers := fail(topology.Trail{}, topology.Table{"own": "kept"}, 25, 0)
	h := topology.Trail{}.Read(topology.Delivery{Headers: headers})
	var attempts []int
	for _, e := range h.Errors {
		attempts = append(attempts, e.Attempt)
		want := topology.AttemptError{
			Attempt: e.Attempt, Time: start.Add(time.Duration(e.Attempt-1) * time.Minute), Error: fmt.Sprintf("error %d", e.Attempt),
			Host: "host", Duration: time.Duration(e.Attempt-1) * time.Second,
		}
		if e != want {
			t.Errorf("got %+v, want %+v", e, want)
		}
	}
	if diff := cmp.Diff([]int{1, 17, 18, 19, 20, 21, 22, 23, 24, 25}, attempts); diff != "" {
		t.Error(diff)
	}
	h.Errors = nil
	want := topology.History{
		Attempts: 25, RetriesLeft: topology.Undecided, Queue: "q", Exchange: "x", RoutingKey: "k", FirstFailed: start, ErrorsDropped: 15,
	}
	if h := h; !cmp.Equal(h, want) {
		t.Error(cmp.Diff(want, h))
	}
	if headers["own"] != "kept" || headers["x-reprise-attempts"] != int64(25) || headers["x-reprise-errors-dropped"] != int64(15) {
		t.Errorf("headers: got %v, want own, 25 attempts and 15 dropped errors", headers)
	}
}

func TestTrailTruncatesLongTexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Repeat(rapid.StringN(1, 5, -1).Draw(t, "text"), rapid.IntRange(0, 2000).Draw(t, "times")) +
			string(rapid.SliceOf(rapid.Byte()).Draw(t, "garbage"))
		room := rapid.OneOf(rapid.Just(0), rapid.IntRange(1, 20_000)).Draw(t, "room")
		d := topology.Delivery{Queue: "q", Headers: topology.Table{"own": "kept"}}
		for i := range 3 {
			h := topology.Trail{}.Read(d)
			d.Headers = topology.Trail{}.Park(d.Headers, topology.Failure{
				AttemptError: topology.AttemptError{Attempt: i + 1, Time: start, Error: text}, History: h, Queue: "q", Room: room,
			})
			if room > 500 && d.Headers.WireSize() > room {
				t.Fatalf("size of the headers: got %d, want at most %d", d.Headers.WireSize(), room)
			}
			if d.Headers["own"] != "kept" || d.Headers["x-reprise-attempts"] != int64(i+1) {
				t.Fatalf("headers: got %v, want own and %d attempts", d.Headers, i+1)
			}
		}
		for _, e := range (topology.Trail{}).Read(d).Errors {
			if len(e.Error) > 4096 || !utf8.ValidString(e.Error) {
				t.Fatalf("error must be valid UTF-8 of at most 4096 bytes: got %d bytes, valid %t",
					len(e.Error), utf8.ValidString(e.Error))
			}
			valid := strings.ToValidUTF8(text, "\uFFFD")
			if room == 0 && len(valid) <= 4096 && e.Error != valid {
				t.Fatalf("got text %[2]q, want %[1]q", valid, e.Error)
			}
			parts := strings.Split(e.Error, " … ") // more than two, if the text was shortened several times
			head, tail, omitted := parts[0], parts[len(parts)-1], len(parts) > 1
			if !strings.HasPrefix(valid, head) || omitted && !strings.HasSuffix(valid, tail) || room == 0 && len(valid) > 4096 && len(e.Error) < 4084 {
				t.Fatalf("text of %d bytes was cut to %d bytes, which are not its beginning and its end", len(valid), len(e.Error))
			}
		}
	})
}

// anything draws arbitrary header values, including values that no Marks write.
func anything() *rapid.Generator[any] {
	return rapid.OneOf(
		rapid.Just[any](nil), rapid.Just[any](true), rapid.Just[any]("text"), rapid.Just[any](topology.Table{"attempt": "x"}),
		rapid.Just[any]([]any{1, "x", nil, topology.Table{"attempt": int64(-5), "duration-ms": int64(1 << 62), "time": "x", "error": 1}}),
		rapid.Map(rapid.Int64(), func(n int64) any { return n }), rapid.Map(rapid.Uint64(), func(n uint64) any { return n }),
		rapid.Map(rapid.Int8(), func(n int8) any { return n }), rapid.Map(rapid.Float64(), func(n float64) any { return n }),
		rapid.Just[any](start),
	)
}

func TestMarksTolerateAnyHeader(t *testing.T) {
	all := []topology.Marks{topology.Trail{}, topology.CountDown{Header: "mb-retries", Errors: "mb-exceptions", Default: 4}}
	names := []string{
		"x-reprise-attempts", "x-reprise-first-failed", "x-reprise-errors", "x-reprise-errors-dropped", "x-reprise-exchange",
		"x-reprise-routing-key", "x-reprise-queue", "mb-retries", "mb-exceptions", "own",
	}
	rapid.Check(t, func(t *rapid.T) {
		headers := topology.Table{}
		for _, n := range names {
			if rapid.Bool().Draw(t, "has "+n) {
				headers[n] = anything().Draw(t, n)
			}
		}
		before := maps.Clone(headers)
		for _, m := range all {
			d := topology.Delivery{Queue: "q", Headers: headers}
			h := m.Read(d)
			if h.Attempts < 0 || h.RetriesLeft < topology.Undecided || h.ErrorsDropped < 0 {
				t.Fatalf("%T: history must have no negative counts: got %+v", m, h)
			}
			f := topology.Failure{AttemptError: topology.AttemptError{Attempt: h.Attempts + 1, Error: "e", Time: start}, History: h, Queue: "q"}
			next := m.Read(topology.Delivery{Queue: "q", Headers: m.Retry(headers, f)})
			if next.Attempts <= h.Attempts && h.RetriesLeft != 0 && h.Attempts < math.MaxInt32-1 {
				t.Fatalf("%T: attempts after a retry: got %d, want more than %d", m, next.Attempts, h.Attempts)
			}
			if h.RetriesLeft > 0 && next.RetriesLeft != h.RetriesLeft-1 {
				t.Fatalf("%T: retries left after a retry: got %d, want %d", m, next.RetriesLeft, h.RetriesLeft-1)
			}
			m.Park(headers, f)
			if !cmp.Equal(before, headers) {
				t.Fatalf("%T modified its input:\n%s", m, cmp.Diff(before, headers))
			}
		}
	})
}

func TestCountDown(t *testing.T) {
	c := topology.CountDown{Header: "left", Errors: "errors", Default: 2}
	var left []any
	headers := topology.Table(nil)
	for range 3 {
		headers = fail(c, headers, 1, 0)
		left = append(left, headers["left"])
	}
	if diff := cmp.Diff([]any{int32(1), int32(0), int32(0)}, left); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]any{"error 1", "error 2", "error 3"}, headers["errors"]); diff != "" {
		t.Error(diff)
	}
	if len(headers) != 2 || !c.Owns("left") || !c.Owns("errors") || c.Owns("other") {
		t.Errorf("headers: got %v, want only the two of CountDown", headers)
	}
	if h := c.Read(topology.Delivery{}); h.RetriesLeft != 2 || h.Attempts != 0 {
		t.Errorf("no headers: got %+v, want 2 retries left and 0 attempts", h)
	}
	if got := c.Park(topology.Table{"left": int8(1)}, topology.Failure{AttemptError: topology.AttemptError{Error: "e"}}); !cmp.Equal(got, topology.Table{"left": int8(1), "errors": []any{"e"}}) {
		t.Errorf("headers of an early park: got %v, want left 1 and errors [e]", got)
	}
}

// AnyEvent::RabbitMQ, the client that the cover art indexer of MusicBrainz uses, sends numbers in headers as strings.
func TestCountDownReadsText(t *testing.T) {
	c := topology.CountDown{Header: "left", Errors: "errors", Default: 4}
	for v, want := range map[any]int{
		"3": 3, "0": 0, "-1": 0, "+2": 2, "2147483648": math.MaxInt32, "99999999999999999999": math.MaxInt32, "-99999999999999999999": 0,
		"": 0, "many": 0, "3 ": 0, "3.0": 0, "0x3": 0, int32(3): 3, 3.0: 0, true: 0,
	} {
		if got := c.Read(topology.Delivery{Headers: topology.Table{"left": v}}).RetriesLeft; got != want {
			t.Errorf("%#v: got %d retries left, want %d", v, got, want)
		}
		if got := c.Retry(topology.Table{"left": v}, topology.Failure{})["left"]; got != int32(max(0, want-1)) {
			t.Errorf("%#v: after a retry: got %#v, want %d", v, got, max(0, want-1))
		}
	}
}

func TestCountDownLimitsSizeOfHeaders(t *testing.T) {
	c := topology.CountDown{Header: "left", Errors: "errors", Default: 100}
	headers := fail(c, topology.Table{"own": strings.Repeat("x", 100)}, 50, 300)
	texts, _ := headers["errors"].([]any)
	if headers.WireSize() > 300 || len(texts) < 5 || texts[len(texts)-1] == "error 1" {
		t.Errorf("headers: got %d bytes and texts %v, want at most 300 bytes and the last 5 texts or more",
			headers.WireSize(), texts)
	}
	f := topology.Failure{AttemptError: topology.AttemptError{Error: strings.Repeat("e", 5000)}, Room: 300}
	if got := c.Retry(topology.Table{}, f); got.WireSize() > 300 || len(got["errors"].([]any)) != 1 {
		t.Errorf("headers: got %d bytes, want at most 300 with one text: %v", got.WireSize(), got)
	}
}

func TestMarksValidate(t *testing.T) {
	for _, c := range []topology.CountDown{
		{}, {Header: "a"}, {Header: "a", Errors: "a"}, {Header: "a", Errors: "b", Default: -1}, {Header: "a", Errors: strings.Repeat("b", 256)},
	} {
		if err := (topology.Strategy{Marks: c}).Validate(); err == nil {
			t.Errorf("Validate accepted %+v", c)
		}
	}
	if err := (topology.Strategy{Marks: topology.CountDown{Header: "a", Errors: "b"}}).Validate(); err != nil {
		t.Error(err)
	}
	if err := (topology.Strategy{}).Validate(); err != nil {
		t.Error(err)
	}
}
