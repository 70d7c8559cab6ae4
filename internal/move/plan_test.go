package move_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/move"
	"github.com/reprisemq/reprise/internal/testkit"
)

// plan plans a move.
func (p pair) plan(t *testing.T, cfg move.Config) *move.Plan {
	t.Helper()
	m, end, err := p.begin(t.Context(), t, p.from.url, p.to.url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	end()
	return m.Plan
}

func (s *side) put(t *testing.T, path string, value any) {
	t.Helper()
	if err := s.api.Put(t.Context(), path, value); err != nil {
		t.Fatal(err)
	}
}

func hasProblem(p *move.Plan, text string) bool {
	return slices.ContainsFunc(p.Problems, func(problem string) bool { return strings.Contains(problem, text) })
}

// A policy for all objects also applies to the lock.
func TestMoveCarriesPolicyOfAllObjects(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p pair) {
		p.from.queue(t, "orders", nil)
		p.from.put(t, "policies"+p.from.api.Within()+"/all", map[string]any{"pattern": ".*", "definition": map[string]any{"max-length": 1000}})
		if _, _, err := p.move(t, move.Config{}); err != nil {
			t.Fatal(err)
		}
		var got struct{ Pattern string }
		if err := p.to.api.Get(t.Context(), "policies"+p.to.api.Within()+"/all", &got); err != nil || got.Pattern != ".*" {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

// A later version of the broker refuses settings of mirrored queues, which have no effect on messages.
func TestMoveOmitsMirroring(t *testing.T) {
	t.Parallel()
	p := pair{newSide(t, "rabbitmq-3.10"), newSide(t, "rabbitmq-4.3")}
	p.from.queue(t, "orders", nil)
	policies := "policies" + p.from.api.Within()
	p.from.put(t, policies+"/mirrored", map[string]any{"pattern": "^m", "definition": map[string]any{"ha-mode": "all"}})
	p.from.put(t, policies+"/ha", map[string]any{"pattern": "", "definition": map[string]any{"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic", "max-length": 1000}})
	p.from.queue(t, "mirrored", nil)
	for range 2 {
		if plan, _, err := p.move(t, move.Config{}); err != nil || !slices.ContainsFunc(plan.Notes, func(note string) bool { return strings.Contains(note, "ha-mode") }) {
			t.Fatalf("got %v, notes %q", err, plan.Notes)
		}
	}
	var got struct{ Definition map[string]any }
	if err := p.to.api.Get(t.Context(), "policies"+p.to.api.Within()+"/ha", &got); err != nil || len(got.Definition) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A policy that the target refuses changes nothing there.
func TestMoveChecksPolicies(t *testing.T) {
	t.Parallel()
	p := pair{newSide(t, "rabbitmq-4.3"), newSide(t, "rabbitmq-3.10")}
	p.from.queue(t, "orders", nil)
	policies := "policies" + p.from.api.Within()
	p.from.put(t, policies+"/a", map[string]any{"pattern": "^orders$", "definition": map[string]any{"max-length": 9}})
	p.from.put(t, policies+"/refused", map[string]any{"pattern": "^other$", "definition": map[string]any{"target-group-size": 3}})
	p.from.queue(t, "other", nil)
	_, result, err := p.move(t, move.Config{})
	if _, ok := errors.AsType[*move.ProblemsError](err); !ok || result.Begun || !strings.Contains(err.Error(), "policy refused") {
		t.Fatalf("got %+v, %v", result, err)
	}
	var got []any
	if err := p.to.api.Get(t.Context(), "policies"+p.to.api.Within(), &got); err != nil || len(got) > 0 {
		t.Errorf("got policies %v, %v", got, err)
	}
}

// A killed consumer counts as a failed delivery, after which the queue would drop a message.
func TestMoveRefusesZeroDeliveryLimit(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p pair) {
		p.from.queue(t, "drops", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(0)})
		p.from.queue(t, "keeps", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(0), "x-dead-letter-exchange": "dead"})
		p.from.restart()
		plan := p.plan(t, move.Config{})
		if len(plan.Problems) != 1 || !hasProblem(plan, "the delivery limit of queue drops is 0") {
			t.Errorf("got problems %q", plan.Problems)
		}
	})
}

// The exchange through which a migration moves messages has its journal, and its name looks like that of an interrupted move.
func TestMoveRefusesInterruptedMigration(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p pair) {
		p.from.queue(t, "orders", nil)
		for _, s := range []*side{p.from, p.to} {
			ch, _ := s.open(t)
			names := []string{"reprise.migration.orders", "reprise.move.orders"}
			for _, name := range names {
				if err := ch.ExchangeDeclare(name, "fanout", true, false, false, false, nil); err != nil {
					t.Fatal(err)
				}
			}
			if plan := p.plan(t, move.Config{}); !hasProblem(plan, "a migration of queue orders") {
				t.Errorf("got problems %q", plan.Problems)
			}
			for _, name := range names {
				if err := ch.ExchangeDelete(name, false, false); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// A queue that does not move must not lead to a deleted queue.
func TestMoveDoesNotDeleteTargetOfOtherQueue(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p pair) {
		p.from.queue(t, "orders", nil)
		p.from.bound(t, "back", "direct", "orders", "orders")
		p.from.queue(t, "later", amqp.Table{"x-dead-letter-exchange": "back", "x-dead-letter-routing-key": "orders"})
		p.from.publish(t, "", "later", amqp.Publishing{Expiration: "3600000"})
		p.from.restart()
		if plan := p.plan(t, move.Config{Queues: []string{"orders"}, Delete: true}); !hasProblem(plan, "later") {
			t.Errorf("got problems %q", plan.Problems)
		}
		if plan := p.plan(t, move.Config{Delete: true}); len(plan.Problems) > 0 {
			t.Errorf("got problems %q", plan.Problems)
		}
	})
}

// A work queue is not a queue from which messages return to its failed queue, although its consumer is away or it has a TTL.
func TestMoveOfFailedQueueLeavesWorkQueue(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p pair) {
		p.from.queue(t, "orders.failed", nil)
		p.from.queue(t, "orders", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.failed"})
		p.from.queue(t, "errors", nil)
		p.from.queue(t, "billing", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "errors", "x-message-ttl": int64(3600000)})
		p.from.restart()
		ch, _ := p.from.open(t)
		if _, err := ch.Consume("billing", "", false, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		for _, failed := range []string{"orders.failed", "errors"} {
			testkit.Eventually(t, time.Minute, func() error { // the management API shows consumers late
				if plan := p.plan(t, move.Config{Queues: []string{failed}}); len(plan.Queues) != 1 {
					return fmt.Errorf("got queues %+v", plan.Queues)
				}
				return nil
			})
		}
	})
}

// The target would drop messages of a queue that is too short for the messages of both brokers.
func TestMoveRefusesShortQueue(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p pair) {
		args := amqp.Table{"x-max-length": int64(3)}
		p.from.queue(t, "orders", args)
		p.to.queue(t, "orders", args)
		p.from.publish(t, "", "orders", texts("a", 3)...)
		p.to.publish(t, "", "orders", texts("b", 1)...)
		p.from.restart()
		testkit.Eventually(t, time.Minute, func() bool { // the management API is late
			return hasProblem(p.plan(t, move.Config{}), "would drop its oldest messages: max-length is 3, and both brokers have 4")
		})
		p.to.take(t, "orders")
		testkit.Eventually(t, time.Minute, func() bool { return len(p.plan(t, move.Config{}).Problems) == 0 })
		if _, result, err := p.move(t, move.Config{}); err != nil || result.Moved != 3 {
			t.Errorf("got %+v, %v", result, err)
		}
	})
}
