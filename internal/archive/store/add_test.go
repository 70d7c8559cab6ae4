package store_test

import (
	"context"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/topology"
)

// The test simulates a failed queue and an ingest that is killed at arbitrary points. The queue redelivers
// unacknowledged messages on another connection. There are only a few kinds of messages, and messages of the same kind
// have identical bytes.
//
// In the end, the archive must contain exactly as many messages of each kind as were published.
func TestArchiveStoresEachMessageOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		rapid.Check(t, func(t *rapid.T) {
			db.empty(t, a)
			q := queue{t: t, a: a}
			t.Repeat(map[string]func(*rapid.T){
				"publish": func(t *rapid.T) {
					q.waiting = append(q.waiting, &delivery{kind: rapid.IntRange(0, 2).Draw(t, "kind")})
					q.published[q.waiting[len(q.waiting)-1].kind]++
				},
				"deliver": func(t *rapid.T) { q.deliver(t, rapid.IntRange(1, 4).Draw(t, "n")) },
				"add":     func(t *rapid.T) { q.add(rapid.IntRange(1, 4).Draw(t, "n")) },
				"ack":     func(t *rapid.T) { q.ack(rapid.IntRange(1, 4).Draw(t, "n")) },
				"settle":  func(t *rapid.T) { q.settle(rapid.IntRange(1, 4).Draw(t, "n")) },
				"crash":   func(t *rapid.T) { q.crash() },
			})
			for len(q.waiting)+len(q.delivered)+len(q.added)+len(q.acked) > 0 {
				q.deliver(t, len(q.waiting))
				q.add(len(q.delivered))
				q.ack(len(q.added))
				q.settle(len(q.acked))
			}
			for kind, want := range q.published {
				n := value(a.Count(context.Background(), failed.Filter{Text: fmt.Sprint("kind", kind)}))(t)
				// If an acknowledgement was not reported before a crash, the archive may mistake another equal message
				// for a redelivery. Therefore the archive may lack messages, but not more than the number of forgotten
				// acknowledgements.
				if n.N > int64(want) || n.N < int64(want-q.forgotten[kind]) {
					t.Fatalf("kind %d: got %d messages, want %d (%d acknowledgements were forgotten)", kind, n.N, want, q.forgotten[kind])
				}
			}
		})
	})
}

type delivery struct {
	kind  int
	again bool // already delivered once
	id    failed.ID
}

type queue struct {
	t                         *rapid.T
	a                         *store.Archive
	session                   int
	waiting, delivered, added []*delivery
	acked                     []*delivery // acked, but not yet reported to the archive
	published, forgotten      [3]int
}

func (q *queue) deliver(_ *rapid.T, n int) {
	n = min(n, len(q.waiting))
	q.delivered = append(q.delivered, q.waiting[:n]...)
	q.waiting = q.waiting[n:]
}

func (q *queue) add(n int) {
	n = min(n, len(q.delivered))
	var arrivals []failed.Arrived
	for _, d := range q.delivered[:n] {
		count := int64(0)
		if d.again {
			count = 1 // the broker's delivery count, which is not part of the message
		}
		arrivals = append(arrivals, failed.Arrived{
			Message: failed.Message{
				FailedQueue: "orders.failed",
				Content:     failed.Content{Body: fmt.Append(nil, "kind", d.kind), Headers: topology.Table{"x-delivery-count": count}},
			},
			Redelivered: d.again, Session: fmt.Sprint(q.session),
		})
	}
	for i, id := range value(q.a.Ingest(context.Background(), arrivals))(q.t) {
		q.delivered[i].id = id
	}
	seen := make(map[failed.ID]bool)
	for _, d := range append(q.added, q.delivered[:n]...) {
		if seen[d.id] {
			q.t.Fatalf("two deliveries of one connection have the ID %d", d.id)
		}
		seen[d.id] = true
	}
	q.added = append(q.added, q.delivered[:n]...)
	q.delivered = q.delivered[n:]
}

func (q *queue) ack(n int) {
	n = min(n, len(q.added))
	q.acked = append(q.acked, q.added[:n]...)
	q.added = q.added[n:]
}

func (q *queue) settle(n int) {
	n = min(n, len(q.acked))
	var ids []failed.ID
	for _, d := range q.acked[:n] {
		ids = append(ids, d.id)
	}
	check(q.t, q.a.MarkSettled(context.Background(), ids))
	q.acked = q.acked[n:]
}

// crash requeues all unacked messages, and drops the unreported acknowledgements.
func (q *queue) crash() {
	q.session++
	for _, d := range q.acked {
		q.forgotten[d.kind]++
	}
	q.acked = nil
	back := append(q.added, q.delivered...)
	for _, d := range back {
		d.again = true
	}
	q.waiting = append(back, q.waiting...)
	q.added, q.delivered = nil, nil
}

// In this test, each opened Archive is a session.
func TestIngestRecognizesRedeliveriesAfterRestart(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		p := prefix(db.next())
		a := db.open(t, p)
		one := failed.Arrived{Message: failed.Message{FailedQueue: "q.failed", Content: failed.Content{Body: []byte("b")}}}
		again := one
		again.Redelivered = true
		first := value(a.Ingest(t.Context(), []failed.Arrived{one, one}))(t)
		if first[0] == first[1] {
			t.Fatal("two equal messages have the same ID")
		}
		check(t, a.MarkSettled(t.Context(), first[1:]))
		restarted := db.open(t, p)
		got := value(restarted.Ingest(t.Context(), []failed.Arrived{again, again, one}))(t)
		if got[0] != first[0] {
			t.Errorf("redelivery of message %d: got ID %d, want the same ID", first[0], got[0])
		}
		if got[1] == first[0] || got[1] == first[1] || got[2] <= got[1] {
			t.Errorf("arrivals after the messages %v: got IDs %v, want the second message, then two new messages", first, got)
		}
		for range 2 { // all stored messages already belong to this session
			more := value(restarted.Ingest(t.Context(), []failed.Arrived{again}))(t)
			if more[0] <= got[2] {
				t.Errorf("another message: got the ID %d of an earlier message, want a new ID", more[0])
			}
		}
	})
}

// The archive recognizes a message that an earlier version has stored, and an edit without a change has no effect.
// Therefore the encoding of headers must never change.
func TestEncodingOfHeadersIsStable(t *testing.T) {
	const (
		headers = `{"many":[{"table":{"n":{"int32":5}}},{"bytes":"AAE="},null,true],` +
			`"note":"one\u000atwo\u000d\u000a\u0009three\u0008\u000c\u007f ` + "\u2028" + ` <&> \\n \"q\"",` +
			`"rate":{"float32":1e+06},"small":{"float64":1e-07},"total":{"float64":1.2345675e+06}}`
		digest = "792a54d60dd6d6dcdbc4d196a5e8574e"
	)
	eachDatabase(t, func(t *testing.T, db database) {
		p := db.next()
		a := db.open(t, prefix(p))
		one := failed.Arrived{Session: "before", Message: failed.Message{FailedQueue: "orders.failed", Content: failed.Content{
			Body: []byte("body"),
			Headers: topology.Table{
				"note": "one\ntwo\r\n\tthree\b\f\x7f \u2028 <&> \\n \"q\"", "total": 1234567.5, "rate": float32(1e6), "small": 1e-7,
				"many": []any{topology.Table{"n": int32(5)}, []byte{0, 1}, nil, true},
			},
		}}}
		stored := value(a.Ingest(t.Context(), []failed.Arrived{one}))(t)
		blob := "X'" + digest + "'"
		if db.dialect == store.PostgreSQL {
			blob = `'\x` + digest + `'`
		}
		db.exec(t, "UPDATE "+p+"delivery SET digest = "+blob)
		db.exec(t, "UPDATE "+p+"content SET headers = '"+headers+"'")

		again := one
		again.Redelivered, again.Session = true, "after"
		if got := value(a.Ingest(t.Context(), []failed.Arrived{again}))(t); got[0] != stored[0] {
			t.Errorf("redelivery of message %d: got ID %d, want the same ID", stored[0], got[0])
		}
		check(t, a.Edit(t.Context(), stored[0], 0, one.Content, "me"))
		if edits := value(a.Edits(t.Context(), stored[0]))(t); len(edits) > 0 {
			t.Errorf("edit without a change: got %d edits, want 0", len(edits))
		}
	})
}
