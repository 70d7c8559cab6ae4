package move_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/move"
	"github.com/reprisemq/reprise/internal/testkit"
)

// random returns a message with random properties and headers.
func random(r *rand.Rand, n int) amqp.Publishing {
	text := func(s string) string {
		if r.IntN(2) == 0 {
			return ""
		}
		return fmt.Sprintf("%s-Büro-%d", s, r.IntN(100))
	}
	m := amqp.Publishing{
		ContentType: text("a"), ContentEncoding: text("b"), DeliveryMode: uint8(1 + r.IntN(2)), Priority: uint8(r.IntN(6)), CorrelationId: text("c"),
		ReplyTo: text("d"), MessageId: text("e"), Type: text("f"), AppId: text("g"), Body: make([]byte, r.IntN(3000)),
	}
	for i := range m.Body {
		m.Body[i] = byte(r.Uint32())
	}
	if r.IntN(2) == 0 {
		m.Expiration, m.UserId, m.Timestamp = "36000000", "guest", time.Unix(1e9+int64(r.IntN(1e6)), 0)
	}
	values := []any{int32(r.Uint32()), int64(r.Uint64()), true, nil, 1.5, float32(2.5), "text", []byte{0, 255}, time.Unix(1e9, 0), amqp.Table{"nested": []any{int16(1), "x"}}, amqp.Decimal{Scale: 2, Value: 12345}}
	m.Headers = amqp.Table{"n": int64(n)}
	for i := range r.IntN(6) {
		m.Headers[fmt.Sprint("h", i)] = values[r.IntN(len(values))]
	}
	return m
}

// A move carries exchanges, bindings, policies, and messages with all properties and in their order.
func TestMoveKeepsMessages(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p pair) {
		r := rand.New(rand.NewPCG(1, 2))
		p.from.queue(t, "orders", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(7)})
		p.from.queue(t, "prio", amqp.Table{"x-max-priority": int64(5)})
		p.from.queue(t, "empty", nil)
		p.from.bound(t, "shop", "topic", "orders", "order.*")
		p.from.bound(t, "shop", "topic", "prio", "prio.#")
		policy := map[string]any{"pattern": "^(orders|prio)$", "definition": map[string]any{"max-length": 100000}, "apply-to": "queues", "priority": 3}
		if err := p.from.api.Put(t.Context(), "policies"+p.from.api.Within()+"/limit", policy); err != nil {
			t.Fatal(err)
		}
		sent := map[string][]amqp.Publishing{}
		for i := range 120 {
			queue := []string{"orders", "prio"}[r.IntN(2)]
			exchange, key := "", queue
			if r.IntN(3) > 0 {
				exchange, key = "shop", map[string]string{"orders": "order.new", "prio": "prio.a.b"}[queue]
			}
			m := random(r, i)
			m.DeliveryMode = amqp.Persistent // the directory keeps no others
			m.Headers["key"] = key
			p.from.publish(t, exchange, key, m)
			sent[queue] = append(sent[queue], m)
		}
		p.from.restart()
		plan, result, err := p.move(t, move.Config{})
		if err != nil || result.Moved != 120 || result.Duplicates != 0 || len(result.Left) > 0 {
			t.Fatalf("got %+v, %v (%q)", result, err, plan.Problems)
		}
		slices.SortStableFunc(sent["prio"], func(a, b amqp.Publishing) int { return int(b.Priority) - int(a.Priority) })
		for queue, want := range sent {
			got := p.to.take(t, queue)
			if len(got) != len(want) {
				t.Fatalf("%s: got %d messages, want %d", queue, len(got), len(want))
			}
			if queue == "orders" { // since 4.0, quorum queues have priorities
				slices.SortFunc(got, func(a, b amqp.Delivery) int { return int(a.Headers["n"].(int64) - b.Headers["n"].(int64)) })
			}
			for i, d := range got {
				same(t, want[i], d)
				if d.RoutingKey != want[i].Headers["key"] {
					t.Errorf("got routing key %q, want %q", d.RoutingKey, want[i].Headers["key"])
				}
			}
		}
		p.to.publish(t, "shop", "order.new", amqp.Publishing{Body: []byte("after")}) // the binding exists
		var got struct{ Priority int }
		if err := p.to.api.Get(t.Context(), "policies"+p.to.api.Within()+"/limit", &got); err != nil || got.Priority != 3 {
			t.Errorf("got policy %v, %v", got, err)
		}
		if plan, result, err := p.move(t, move.Config{}); err != nil || result.Moved != 0 || len(plan.Create) > 0 {
			t.Errorf("again: got %+v, %v, new %q", result, err, plan.Create)
		}
		found, err := p.to.api.Topology(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range found.Exchanges {
			if strings.HasPrefix(x.Name, "reprise.") {
				t.Errorf("exchange %s is left", x.Name)
			}
		}
	})
}

// same compares a message with its delivery. The move assigns a message id, and changes the expiration.
func same(t *testing.T, want amqp.Publishing, d amqp.Delivery) {
	t.Helper()
	got := amqp.Publishing{
		Headers: d.Headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode, Priority: d.Priority,
		CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, MessageId: d.MessageId, Timestamp: d.Timestamp, Type: d.Type, UserId: d.UserId,
		AppId: d.AppId, Body: d.Body,
	}
	if (want.Expiration == "") != (d.Expiration == "") {
		t.Errorf("got expiration %q, want %q", d.Expiration, want.Expiration)
	}
	want.Expiration = ""
	if want.MessageId == "" && got.MessageId != "" {
		got.MessageId = ""
	}
	if len(want.Body) == 0 {
		want.Body = got.Body
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// A dead letter keeps its history, also if the header CC has led it to the queue.
func TestMoveKeepsHistory(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p pair) {
		p.from.queue(t, "orders", amqp.Table{"x-dead-letter-exchange": "dead"})
		p.from.queue(t, "failed", nil)
		p.from.queue(t, "copies", nil)
		p.from.bound(t, "dead", "direct", "failed", "orders")
		p.from.publish(t, "", "orders", amqp.Publishing{Body: []byte("x"), Headers: amqp.Table{"CC": []any{"copies"}}})
		ch, _ := p.from.open(t)
		d, found, err := ch.Get("orders", false)
		if err != nil || !found {
			t.Fatal(err, found)
		}
		if err := d.Reject(false); err != nil {
			t.Fatal(err)
		}
		var was amqp.Delivery
		testkit.Eventually(t, time.Minute, func() bool {
			was, found, err = ch.Get("failed", false)
			return err == nil && found
		})
		if err := was.Nack(false, true); err != nil {
			t.Fatal(err)
		}
		if _, result, err := p.move(t, move.Config{}); err != nil || result.Moved != 2 {
			t.Fatalf("got %+v, %v", result, err)
		}
		got := p.to.take(t, "failed")
		if len(got) != 1 || got[0].Headers["x-death"] == nil {
			t.Fatalf("got %d messages: %+v", len(got), got)
		}
		delete(was.Headers, "x-delivery-count")
		delete(was.Headers, "x-acquired-count")
		if !reflect.DeepEqual(got[0].Headers, was.Headers) {
			t.Errorf("got %v\nwant %v", got[0].Headers, was.Headers)
		}
		if copies := p.to.take(t, "copies"); len(copies) != 1 {
			t.Errorf("got %d copies", len(copies))
		}
	})
}

// A move of selected queues includes their wait and failed queues, and what leads to them.
func TestMoveSelectedQueues(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p pair) {
		p.from.queue(t, "orders", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.failed"})
		p.from.queue(t, "orders.failed", nil)
		p.from.queue(t, "orders.wait.1000-1250", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders"})
		p.from.queue(t, "other", nil)
		p.from.bound(t, "shop", "fanout", "orders", "")
		p.from.bound(t, "shop", "fanout", "other", "")
		p.from.publish(t, "shop", "", texts("a", 3)...)
		p.from.restart()
		plan, _, err := p.move(t, move.Config{Queues: []string{"orde?s"}})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, q := range plan.Queues {
			names = append(names, q.Name)
		}
		if want := []string{"orders", "orders.failed", "orders.wait.1000-1250"}; !slices.Equal(names, want) {
			t.Errorf("got queues %q, want %q", names, want)
		}
		if len(plan.Create) != 5 { // and the exchange with one of its bindings
			t.Errorf("got new objects %q", plan.Create)
		}
		if left := p.from.take(t, "other"); len(left) != 3 {
			t.Errorf("got %d messages in the other queue", len(left))
		}
	})
}

// A plan that is not possible changes nothing on the target.
func TestRefusedMoveChangesNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p pair) {
		p.from.queue(t, "orders", nil)
		p.from.queue(t, "other", nil)
		p.from.bound(t, "shop", "direct", "other", "a")
		p.from.publish(t, "", "orders", texts("a", 3)...)
		refused := func(want ...string) {
			t.Helper()
			plan, result, err := p.move(t, move.Config{})
			if _, ok := errors.AsType[*move.ProblemsError](err); !ok || result.Begun {
				t.Fatalf("got %+v, %v", result, err)
			}
			for _, text := range want {
				if !slices.ContainsFunc(plan.Problems, func(problem string) bool { return strings.Contains(problem, text) }) {
					t.Errorf("got problems %q, want %q", plan.Problems, text)
				}
			}
			found, err := p.to.api.Queues(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range found {
				if q.Name == "other" {
					t.Error("queue other exists on the target")
				}
			}
		}
		p.to.queue(t, "orders", amqp.Table{"x-message-ttl": int64(1000)})
		refused("queue orders exists on the target with other properties: x-message-ttl is 1000, on the source not set")
		ch, _ := p.to.open(t)
		if _, err := ch.QueueDelete("orders", false, false, false); err != nil {
			t.Fatal(err)
		}
		limit := map[string]any{"pattern": "^ord", "definition": map[string]any{"max-length": 2}, "apply-to": "queues"}
		if err := p.to.api.Put(t.Context(), "policies"+p.to.api.Within()+"/limit", limit); err != nil {
			t.Fatal(err)
		}
		refused("queue orders would have max-length 2 on the target")
		if err := p.to.api.Delete(t.Context(), "policies"+p.to.api.Within()+"/limit"); err != nil {
			t.Fatal(err)
		}
		p.to.permit(t, "guest", "^(orders|reprise.*)$", ".*", ".*")
		refused(`queue "other"`, `exchange "shop"`)
		p.to.permit(t, "guest", ".*", "^(shop|reprise.*)$", ".*")
		refused("binding", "cannot publish on the target")
		p.to.permit(t, "guest", ".*", ".*", ".*")
		if got := p.from.take(t, "orders"); len(got) != 3 {
			t.Errorf("got %d messages on the source", len(got))
		}
	})
}

// While a program publishes to the source, a move ends, and reports what is left.
func TestMoveWhilePublishing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p pair) {
		p.from.queue(t, "orders", nil)
		p.from.publish(t, "", "orders", texts("a", 300)...)
		ctx, stop := context.WithCancel(t.Context())
		sent := make(chan int)
		ch, _ := p.from.open(t)
		go func() {
			n := 0
			for ctx.Err() == nil && n < 3000 {
				c, err := ch.PublishWithDeferredConfirm("", "orders", true, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: fmt.Appendf(nil, "b-%d", n)})
				if err != nil || !c.Wait() {
					break
				}
				n++
			}
			sent <- n
		}()
		plan, result, err := p.move(t, move.Config{Settle: time.Millisecond})
		stop()
		n := <-sent
		if err != nil {
			t.Fatal(err, plan.Problems)
		}
		all := append(bodies(p.to.take(t, "orders")), bodies(p.from.take(t, "orders"))...)
		if len(all) != 300+n || len(all) != len(slices.Compact(slices.Sorted(slices.Values(all)))) {
			t.Errorf("got %d messages, want %d; %+v", len(all), 300+n, result)
		}
	})
}

// A message is also moved if it becomes due during the round that was to be the last.
func TestMoveTakesMessageThatBecomesDue(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p pair) {
		p.from.queue(t, "orders", nil)
		p.from.queue(t, "orders.wait", nil)
		p.from.publish(t, "", "orders.wait", texts("a", 1)...)
		p.from.restart()
		_, result, err := p.move(t, move.Config{Step: func(step string) {
			if step == "move orders.wait" { // as its expiration would, after the round has seen that orders is empty
				for _, d := range p.from.take(t, "orders.wait") {
					p.from.publish(t, "", "orders", amqp.Publishing{Body: d.Body})
				}
			}
		}})
		if got := bodies(p.to.take(t, "orders")); err != nil || len(result.Left) != 0 || len(got) != 1 {
			t.Errorf("got %+v, %v, %q", result, err, got)
		}
	})
}

// The queues of the source are deleted only if no other program is connected.
func TestMoveDeletes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p pair) {
		p.from.queue(t, "orders", nil)
		p.from.queue(t, "quorum", amqp.Table{"x-queue-type": "quorum"})
		p.from.publish(t, "", "quorum", texts("a", 3)...)
		p.from.restart()
		other, err := amqp.Dial(p.from.url)
		if err != nil {
			t.Fatal(err)
		}
		var result move.Result
		_, _, err = p.move(t, move.Config{Delete: true})
		if _, ok := errors.AsType[*move.InUseError](err); !ok {
			t.Errorf("got %v", err)
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, time.Minute, func() error { // the management API shows connections for some time
			_, result, err = p.move(t, move.Config{Delete: true})
			return err
		})
		found, err := p.from.api.Queues(t.Context())
		if err != nil || result.Deleted != 2 || len(found) > 1 {
			t.Errorf("got %+v, %+v, %v", result, found, err)
		}
	})
}

// Dead letters that no queue accepts stay in a quorum queue, where no consumer receives them. It must not be deleted.
func TestMoveKeepsUnconfirmedDeadLetters(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p pair) {
		p.from.queue(t, "orders", amqp.Table{
			"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
			"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "missing", "x-message-ttl": int64(1),
		})
		p.from.publish(t, "", "orders", texts("a", 3)...)
		p.from.restart()
		_, result, err := p.move(t, move.Config{Delete: true})
		if _, ok := errors.AsType[*move.InUseError](err); !ok || len(result.Left) != 1 || result.Left[0].Dead != 3 || result.Deleted != 0 {
			t.Errorf("got %+v, %v", result, err)
		}
	})
}
