package store_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/tablejson"
	"github.com/reprisemq/reprise/topology"
)

func TestTablesPreserveTypes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyTable(4).Draw(t, "table")
		text, err := tablejson.Encode(want)
		check(t, err)
		if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }); i >= 0 && !strings.Contains(text, "\ufffd") {
			t.Fatalf("%q: character at %d is not suitable for all databases", text, i)
		}
		got := value(tablejson.Decode(text))(t)
		if d := cmp.Diff(want, got, same); d != "" {
			t.Fatalf("%s: decoded table differs (-want +got)\n%s", text, d)
		}
		if again := value(tablejson.Encode(got))(t); again != text {
			t.Fatalf("%s: encoded again as %s", text, again)
		}
	})
}

func FuzzDecodeTable(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":{"int8":-128}}`, `{"a":{"table":{"b":[null,true,"c"]}}}`, `{"base64:/w==":{"bytes":""}}`, `{"a":{"float64":"7ff8000000000001"}}`, `{"a":1}`, `{"a":{}}`, `[]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		table, err := tablejson.Decode(s)
		if err != nil {
			return
		}
		text, err := tablejson.Encode(table)
		if err != nil {
			if !strings.Contains(err.Error(), "nested deeper") {
				t.Fatalf("%q: cannot encode the decoded table: %v", s, err)
			}
			return
		}
		if d := cmp.Diff(table, value(tablejson.Decode(text))(t), same); d != "" {
			t.Fatalf("%q: second table differs: %s", s, d)
		}
	})
}

func TestArchivePreservesMessages(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		rapid.Check(t, func(t *rapid.T) {
			arrivals := rapid.SliceOfN(anyArrival, 1, 3).Draw(t, "arrivals")
			ids := value(a.Ingest(t.Context(), arrivals))(t)
			for i, id := range ids {
				checkStored(t, a, id, arrivals[i].Message)
			}
		})
	})
}

func checkStored(t rapid.TB, a *store.Archive, id failed.ID, want failed.Message) {
	t.Helper()
	got := value(a.Get(context.Background(), id))(t)
	want.ID, want.State = id, failed.Failed
	want.Group, want.Archived = got.Group, got.Archived
	// Comparing encoded strings is fast. cmp needs exponential time for deep nesting.
	if a, b := value(tablejson.Encode(want.Headers))(t), value(tablejson.Encode(got.Headers))(t); a != b {
		t.Fatalf("headers: got %s, want %s", b, a)
	}
	if !bytes.Equal(want.Body, got.Body) {
		t.Fatalf("body differs: got %d bytes, want %d", len(got.Body), len(want.Body))
	}
	want.Headers, got.Headers, want.Body, got.Body = nil, nil, nil, nil
	if d := cmp.Diff(&want, got, same); d != "" {
		t.Fatalf("message: (-want +got)\n%s", d)
	}
	if got.Archived.IsZero() || got.Group == 0 {
		t.Fatalf("Archived or Group is missing: got %s, %d", got.Archived, got.Group)
	}
}

func TestLargeAndHostileMessages(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		var deep any = "bottom"
		for range 40 { // AMQP clients read 32 levels
			deep = topology.Table{"d": []any{deep}}
		}
		large := slices.Repeat([]byte{0, 0xff, 'a', '\n'}, 4<<20)
		words := func() []byte { // many different words
			var b bytes.Buffer
			for i := range 1 << 20 {
				b.WriteString("w" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676%26)) + string(rune('a'+i/17576%26)) + " ")
			}
			return b.Bytes()
		}()
		arrivals := []failed.Arrived{
			{Message: failed.Message{Queue: "q", FailedQueue: "q.failed", Content: failed.Content{Body: large}}},
			{Message: failed.Message{Queue: "q", FailedQueue: "q.failed", Content: failed.Content{Body: words}}},
			{Message: failed.Message{Queue: "q\x00\xff", FailedQueue: "\x00", Error: strings.Repeat("€ long ", 20_000), Content: failed.Content{Headers: topology.Table{"deep": deep}}}},
		}
		ids := value(a.Ingest(t.Context(), arrivals))(t)
		for i, id := range ids {
			want := arrivals[i].Message
			got := value(a.Get(t.Context(), id))(t)
			want.FirstFailed, want.LastFailed = got.FirstFailed, got.LastFailed
			checkStored(t, a, id, want)
		}
		list, _, err := a.List(t.Context(), failed.Filter{Queue: "q\x00\xff", Error: strings.Repeat("€ long ", 15_000)}, store.Page{})
		check(t, err)
		if len(list) != 1 || len(list[0].Error) > 1<<10 || !strings.HasPrefix(arrivals[2].Error, list[0].Error) {
			t.Errorf("search by error: got %v, want message 3 with at most 1 KiB of its error", list)
		}
	})
}

func TestAddRefusesUnknownTypes(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		good := failed.Arrived{Message: failed.Message{FailedQueue: "q.failed"}}
		bad := good
		bad.Headers = topology.Table{"c": make(chan int)}
		if ids, err := a.Ingest(t.Context(), []failed.Arrived{good, bad}); !errors.Is(err, failed.ErrUnstorable) || ids != nil {
			t.Errorf("message with a channel: got %v, %v, want ErrUnstorable", ids, err)
		}
		if n := value(a.Count(t.Context(), failed.Filter{}))(t); n.N != 0 {
			t.Errorf("got %d messages, want 0", n.N)
		}
		if _, err := a.Get(t.Context(), 1); !errors.Is(err, failed.ErrNotFound) {
			t.Errorf("Get: got error %v, want ErrNotFound", err)
		}
	})
}

// The archive sets missing fields of an arrival.
func TestIngestSetsMissingFields(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		c := newClock()
		a := db.archive(t, c.use)
		id := value(a.Ingest(t.Context(), []failed.Arrived{{Message: failed.Message{FailedQueue: "orders.failed"}}}))(t)[0]
		m := value(a.Get(t.Context(), id))(t)
		want := &failed.Message{
			ID: id, Queue: "orders", FailedQueue: "orders.failed", State: failed.Failed,
			Archived: c.now(), FirstFailed: c.now(), LastFailed: c.now(),
		}
		if d := cmp.Diff(want, m, same, cmpopts.IgnoreFields(failed.Message{}, "Group")); d != "" {
			t.Error(d)
		}
	})
}
