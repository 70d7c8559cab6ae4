package failed

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
)

// take reads the history of a failed message in all known designs.
func TestTakeReadsHistory(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	died := func(reason, queue string, after time.Duration) topology.Table {
		return topology.Table{"reason": reason, "queue": queue, "exchange": "x", "routing-keys": []any{"key"}, "time": at.Add(after), "count": int64(1)}
	}
	type known struct {
		Queue, Exchange, RoutingKey, Error, Reason string
		Attempts                                   int
		First, Last                                time.Duration // after at; -1: not known
	}
	for name, tc := range map[string]struct {
		headers topology.Table
		want    known
	}{
		"no headers": {nil, known{Exchange: "dlx", RoutingKey: "delivered", First: -1, Last: -1}},
		"trail": {
			topology.Table{
				topology.HeaderQueue: "orders", topology.HeaderExchange: "shop", topology.HeaderRoutingKey: "new", topology.HeaderAttempts: int64(12),
				topology.HeaderFirstFailed: at, topology.HeaderReason: "12 attempts made", topology.HeaderErrorsDropped: int64(10),
				topology.HeaderErrors: []any{topology.Table{"attempt": int64(1), "error": "first", "time": at}, topology.Table{"attempt": int64(12), "error": "last", "time": at.Add(time.Hour)}},
			},
			known{"orders", "shop", "new", "last", "12 attempts made", 12, 0, time.Hour},
		},
		"count down": {
			topology.Table{"mb-retries": int32(0), "mb-exceptions": []any{"one", "two"}},
			known{Exchange: "dlx", RoutingKey: "delivered", Error: "two", Attempts: 2, First: -1, Last: -1},
		},
		"count up": {
			topology.Table{"x-processing-attempts": int32(7)},
			known{Exchange: "dlx", RoutingKey: "delivered", Attempts: 7, First: -1, Last: -1},
		},
		"expired in the work queue": {
			topology.Table{"x-first-death-queue": "orders", "x-death": []any{died("expired", "orders", time.Minute)}},
			known{"orders", "x", "key", "dead-lettered by the broker: expired in orders", "dead-lettered by the broker: expired in orders", 0, time.Minute, time.Minute},
		},
		"rejected after waits": {
			topology.Table{"x-first-death-queue": "orders.wait.0-1000", "x-death": []any{
				died("rejected", "orders", time.Hour), died("expired", "orders.wait.0-1000", time.Minute),
			}},
			known{"orders", "x", "key", "dead-lettered by the broker: rejected in orders", "dead-lettered by the broker: rejected in orders", 0, time.Minute, time.Hour},
		},
		"trail and delivery limit": {
			topology.Table{
				topology.HeaderQueue: "orders", topology.HeaderExchange: "shop", topology.HeaderRoutingKey: "new", topology.HeaderAttempts: int64(1), topology.HeaderFirstFailed: at,
				topology.HeaderErrors: []any{topology.Table{"attempt": int64(1), "error": "first", "time": at}},
				"x-death":             []any{died("delivery_limit", "orders", time.Hour)},
			},
			known{"orders", "shop", "new", "first", "dead-lettered by the broker: delivery_limit in orders", 1, 0, time.Hour},
		},
		"forged trail and delivery limit": {
			topology.Table{topology.HeaderQueue: "refunds", topology.HeaderExchange: "shop", topology.HeaderRoutingKey: "new", "x-death": []any{died("delivery_limit", "orders", time.Hour)}},
			known{"orders", "shop", "new", "dead-lettered by the broker: delivery_limit in orders", "dead-lettered by the broker: delivery_limit in orders", 0, time.Hour, time.Hour},
		},
		"trail of a message rejected from the failed queue": {
			topology.Table{topology.HeaderQueue: "orders", "x-death": []any{died("rejected", "orders.failed", time.Hour)}},
			known{Queue: "orders", Error: "dead-lettered by the broker: rejected in orders.failed", Reason: "dead-lettered by the broker: rejected in orders.failed", First: time.Hour, Last: time.Hour},
		},
		"malformed headers": {
			topology.Table{"x-death": []any{"x", topology.Table{}, topology.Table{"queue": int64(1)}}, "mb-exceptions": int64(1), topology.HeaderErrors: "x", "x-first-death-queue": "orders.wait.0-1000"},
			known{Exchange: "dlx", RoutingKey: "delivered", First: -1, Last: -1},
		},
	} {
		m := &reprise.Delivery{Message: reprise.Message{Exchange: "dlx", RoutingKey: "delivered", Headers: tc.headers, Expiration: 1500 * time.Millisecond}, Queue: "orders.failed", Redelivered: true}
		got := Take(m, nil)
		since := func(t time.Time) time.Duration {
			if t.IsZero() {
				return -1
			}
			return t.Sub(at)
		}
		is := known{got.Queue, got.Exchange, got.RoutingKey, got.Error, got.Reason, got.Attempts, since(got.FirstFailed), since(got.LastFailed)}
		if diff := cmp.Diff(tc.want, is); diff != "" {
			t.Errorf("%s: message differs: %s", name, diff)
		}
		if !got.Redelivered || got.FailedQueue != "orders.failed" || got.Properties.Exchange != "dlx" || got.Properties.Expiration != "1500" || len(got.Headers) != len(tc.headers) {
			t.Errorf("%s: got %+v, want a redelivered message of orders.failed from dlx with %d headers", name, got, len(tc.headers))
		}
	}
}

// The result of ingest.Config.Origin takes precedence over all headers of a message.
func TestOriginTakesPrecedence(t *testing.T) {
	m := &reprise.Delivery{Message: reprise.Message{Headers: topology.Table{
		topology.HeaderQueue: "refunds", "x-death": []any{topology.Table{"reason": "rejected", "queue": "gifts"}},
	}}, Queue: "orders.failed"}
	for knows, want := range map[string]string{"orders": "orders", "": "gifts", "orders.failed": "orders.failed"} {
		if got := Take(m, func(*reprise.Delivery) string { return knows }).Queue; got != want {
			t.Errorf("origin %q: got queue %q, want %q", knows, got, want)
		}
	}
}

// A replayed message has no headers of earlier attempts or of the broker. It keeps its other headers, except CC.
func TestReplayedMessageHasNoAttempts(t *testing.T) {
	names := []string{
		"own", "x-custom", "CC", "x-death", "x-first-death-queue", "x-last-death-reason", "x-delivery-count", "x-acquired-count", "mb-retries", "mb-exceptions",
		"x-processing-attempts", topology.HeaderAttempts, topology.HeaderErrors, topology.HeaderErrorsDropped, topology.HeaderFirstFailed, topology.HeaderReason,
		topology.HeaderQueue, topology.HeaderExchange, topology.HeaderRoutingKey, topology.HeaderWaits, topology.HeaderLevel + "3",
		reprise.HeaderCrashes, reprise.HeaderCC, reprise.HeaderUserID, reprise.HeaderExpiration, topology.HeaderReplay, "tries",
	}
	stay := map[string]bool{
		"own": true, "x-custom": true, topology.HeaderQueue: true, topology.HeaderExchange: true, topology.HeaderRoutingKey: true,
		reprise.HeaderCC: true, reprise.HeaderUserID: true, reprise.HeaderExpiration: true,
	}
	rapid.Check(t, func(t *rapid.T) {
		in := Content{Headers: topology.Table{}, Body: rapid.SliceOf(rapid.Byte()).Draw(t, "body")}
		for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID[string]).Draw(t, "headers") {
			in.Headers[name] = int64(len(name))
		}
		in.Properties = Properties{
			UserID: rapid.SampledFrom([]string{"", "guest"}).Draw(t, "user"), Expiration: rapid.SampledFrom([]string{"", "1000"}).Draw(t, "expiration"),
			MessageID: rapid.SampledFrom([]string{"", "id"}).Draw(t, "id"), Type: "type", Priority: 3,
		}
		before := in.Headers.Clone()
		m := &Message{ID: 17, Queue: "orders", Archived: time.UnixMilli(99), Content: in}
		out := ReplayMessage(m, 4, Target{RoutingKey: "orders"}, []topology.Marks{topology.CountUp{Header: "tries"}})
		want := map[string]any{topology.HeaderReplay: "4/17"}
		for name, value := range in.Headers {
			if stay[name] {
				want[name] = value
			}
		}
		if cc, found := in.Headers["CC"]; found && want[reprise.HeaderCC] == nil {
			want[reprise.HeaderCC] = cc
		}
		if in.Properties.UserID != "" {
			want[reprise.HeaderUserID] = "guest"
		}
		if in.Properties.Expiration != "" && want[reprise.HeaderExpiration] == nil {
			want[reprise.HeaderExpiration] = "1000"
		}
		if diff := cmp.Diff(want, out.Headers); diff != "" {
			t.Fatalf("headers differ: %s", diff)
		}
		id := in.Properties.MessageID
		if id == "" {
			id = "failed-17-99"
		}
		if out.Exchange != "" || out.RoutingKey != "orders" || out.UserID != "" || out.Expiration != 0 || out.MessageID != id || out.Type != "type" || out.Priority != 3 || string(out.Body) != string(in.Body) {
			t.Fatalf("got message %+v, want the properties and body of the original, sent to orders", out)
		}
		if diff := cmp.Diff(before, in.Headers); diff != "" {
			t.Fatalf("replayMessage changed the original headers: %s", diff)
		}
	})
}

// A replay sends the edit instead of the original, to any target.
func TestReplaySendsEdit(t *testing.T) {
	m := &Message{ID: 1, Queue: "orders", Content: Content{Body: []byte("wrong")}, Edited: &Content{Body: []byte("right"), Headers: topology.Table{"fixed": true}}}
	out := ReplayMessage(m, 2, Target{Exchange: "shop", RoutingKey: "new"}, nil)
	if string(out.Body) != "right" || out.Headers["fixed"] != true || out.Exchange != "shop" || out.RoutingKey != "new" {
		t.Errorf("got message %+v, want the edit, sent to shop with key new", out)
	}
}
