package presettest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

func ExampleStaking() {
	p := preset.Staking{Queues: []string{preset.StakingActiveQueue}}
	for _, q := range p.Topology().Queues {
		fmt.Println(q.Name, "→", q.Args["x-dead-letter-routing-key"])
	}
	hop, err := p.Strategy().Route.Wait(topology.Delivery{Queue: preset.StakingActiveQueue}, time.Hour) // the design ignores the requested delay
	fmt.Println(hop.RoutingKey, hop.TTL, err)
	// Output:
	// active_staking_queue_delay → active_staking_queue
	// active_staking_queue → active_staking_queue_routing_key
	// active_staking_queue_failed → <nil>
	// active_staking_queue_delay 5s <nil>
}

func TestStakingTopology(t *testing.T) {
	for queueType, failed := range map[string]topology.Table{
		"quorum":  {"x-queue-type": "quorum", "x-delivery-limit": int64(math.MaxInt32)},
		"classic": {"x-queue-type": "classic"},
	} {
		want := topology.Topology{
			Exchanges: []topology.Exchange{{Name: "common_dlx", Kind: "direct", Args: topology.Table{"x-queue-type": queueType}}},
			Queues: []topology.Queue{
				{Name: "btc_info_queue_delay", Args: topology.Table{
					"x-queue-type": queueType, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "btc_info_queue",
				}},
				{Name: "btc_info_queue", Args: topology.Table{
					"x-queue-type": queueType, "x-dead-letter-exchange": "common_dlx", "x-dead-letter-routing-key": "btc_info_queue_routing_key",
				}},
				{Name: "btc_info_queue_failed", Args: failed},
			},
			Bindings: []topology.Binding{{Exchange: "common_dlx", Queue: "btc_info_queue_delay", RoutingKey: "btc_info_queue_routing_key"}},
		}
		got := preset.Staking{Queues: []string{"btc_info_queue"}, QueueType: queueType}.Topology()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("topology of all queues: -want +got:\n%s", diff)
		}
		// A worker declares only the objects that its queue needs.
		got = preset.Staking{QueueType: queueType}.Strategy().Route.Topology("btc_info_queue")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("topology of one queue: -want +got:\n%s", diff)
		}
	}
}

func TestStakingHasSevenQuorumQueues(t *testing.T) {
	topo := preset.Staking{}.Topology()
	if err := topo.Validate(); err != nil {
		t.Error(err)
	}
	var names []string
	for _, q := range topo.Queues {
		names = append(names, q.Name)
		if q.Args["x-queue-type"] != "quorum" || q.Transient || q.Exclusive || q.AutoDelete || q.IfAbsent {
			t.Errorf("queue: got %+v, want a durable quorum queue", q)
		}
	}
	want := []string{
		"active_staking_queue_delay", "active_staking_queue", "active_staking_queue_failed",
		"unbonding_staking_queue_delay", "unbonding_staking_queue", "unbonding_staking_queue_failed",
		"withdraw_staking_queue_delay", "withdraw_staking_queue", "withdraw_staking_queue_failed",
		"expired_staking_queue_delay", "expired_staking_queue", "expired_staking_queue_failed",
		"staking_stats_queue_delay", "staking_stats_queue", "staking_stats_queue_failed",
		"btc_info_queue_delay", "btc_info_queue", "btc_info_queue_failed",
		"confirmed_info_queue_delay", "confirmed_info_queue", "confirmed_info_queue_failed",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("queues: -want +got:\n%s", diff)
	}
	if len(topo.Exchanges) != 1 || len(topo.Bindings) != 7 {
		t.Errorf("got %d exchanges and %d bindings, want 1 and 7", len(topo.Exchanges), len(topo.Bindings))
	}
}

func TestStakingStrategy(t *testing.T) {
	s := preset.Staking{}.Strategy()
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	d := topology.Delivery{Queue: "v2_active_staking_queue", Exchange: "", RoutingKey: "v2_active_staking_queue"}
	for _, asked := range []time.Duration{0, time.Second, 3 * time.Hour} {
		hop, err := s.Route.Wait(d, asked)
		if err != nil || hop.Exchange != "" || hop.RoutingKey != "v2_active_staking_queue_delay" || hop.TTL != 5*time.Second || hop.Delay != 5*time.Second {
			t.Errorf("Wait: got %+v, %v; want 5s in v2_active_staking_queue_delay", hop, err)
		}
	}
	if hop := s.Route.Failed(d); hop.Exchange != "" || hop.RoutingKey != "v2_active_staking_queue_failed" || hop.TTL != 0 {
		t.Errorf("Failed: got %+v, want v2_active_staking_queue_failed", hop)
	}
	d.Headers = topology.Table{"x-processing-attempts": int32(4)}
	if h := s.Marks.Read(d); h.Attempts != 4 || h.RetriesLeft != topology.Undecided {
		t.Errorf("Read: got %+v, want 4 attempts and undecided retries", h)
	}
}

func TestStakingValidate(t *testing.T) {
	for _, s := range []preset.Staking{{}, {Queues: []string{"q"}, RetryDelay: time.Minute, QueueType: "classic"}, {QueueType: "quorum"}} {
		if err := errors.Join(s.Validate(), s.Strategy().Validate(), s.Strategy().ValidateQueue("q")); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
	for _, s := range []preset.Staking{
		{RetryDelay: -1},
		{RetryDelay: time.Microsecond},
		{RetryDelay: topology.MaxDelay + time.Millisecond},
		{QueueType: "stream"},
	} {
		for what, err := range map[string]error{"preset": s.Validate(), "strategy": s.Strategy().Validate()} {
			if err == nil || !strings.Contains(err.Error(), " must be ") {
				t.Errorf("%+v, %s: got error %v, want must be", s, what, err)
			}
		}
	}
	if err := (preset.Staking{Queues: []string{""}}).Validate(); err == nil {
		t.Error("Validate accepted a queue without a name")
	}
	if err := (preset.Staking{}).Strategy().ValidateQueue(strings.Repeat("q", 250)); err == nil {
		t.Error("ValidateQueue accepted a name that is too long for its suffixes")
	}
	// A worker on such a queue would consume waiting messages, and declare the queue with arguments that no other
	// program uses.
	for _, queue := range []string{"active_staking_queue_delay", "v2_active_staking_queue_delay", "active_staking_queue_failed"} {
		if err := (preset.Staking{}).Strategy().ValidateQueue(queue); err == nil || !strings.Contains(err.Error(), "must not have the name of a wait queue or a failed queue") {
			t.Errorf("ValidateQueue of %s: got error %v, want must not have the name of a wait queue or a failed queue", queue, err)
		}
		if err := (preset.Staking{Queues: []string{queue}}).Strategy().ValidateQueue(queue); err != nil {
			t.Errorf("ValidateQueue of listed work queue %s: %v", queue, err)
		}
	}
}

// declareStaking makes the declarations of the design's own client. If queueType is "", it omits the argument, as the first
// versions did.
func declareStaking(ch *amqp.Channel, queue, queueType string) error {
	args := func(more amqp.Table) amqp.Table {
		if queueType != "" {
			more["x-queue-type"] = queueType
		}
		return more
	}
	if err := ch.ExchangeDeclare("common_dlx", "direct", true, false, false, false, args(amqp.Table{})); err != nil {
		return err
	}
	if _, err := ch.QueueDeclare(queue+"_delay", true, false, false, false, args(amqp.Table{
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue,
	})); err != nil {
		return err
	}
	if _, err := ch.QueueDeclare(queue, true, false, false, false, args(amqp.Table{
		"x-dead-letter-exchange": "common_dlx", "x-dead-letter-routing-key": queue + "_routing_key",
	})); err != nil {
		return err
	}
	return ch.QueueBind(queue+"_delay", queue+"_routing_key", "common_dlx", false, nil)
}

func TestStakingAcceptsAnyOrderOfDeclarations(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for _, tc := range []struct{ other, worker string }{
			{"quorum", "quorum"}, {"classic", "classic"}, {"", "classic"},
		} {
			for _, first := range []string{"other", "worker"} {
				t.Run(tc.other+" to "+tc.worker+", "+first+" first", func(t *testing.T) {
					ch := stakingChannel(t, b.URL)
					queue := testkit.Name(t, "staking")
					p := preset.Staking{Queues: []string{queue}, QueueType: tc.worker}
					forgetStaking(t, ch, queue)
					steps := map[string]func() error{
						"other":  func() error { return declareStaking(ch, queue, tc.other) },
						"worker": func() error { return stakingClient(t, b.URL).Declare(t.Context(), p.Topology()) },
					}
					for _, step := range []string{first, "other", "worker"} {
						if err := steps[step](); err != nil {
							t.Fatalf("%s: %v", step, err)
						}
					}
					// The delay queue has a binding and returns messages.
					if err := ch.PublishWithContext(t.Context(), "common_dlx", queue+"_routing_key", true, false, amqp.Publishing{Expiration: "1"}); err != nil {
						t.Fatal(err)
					}
					var got amqp.Delivery
					testkit.Eventually(t, 2*time.Minute, func() bool {
						var ok bool
						got, ok, _ = ch.Get(queue, true)
						return ok
					})
					if got.Exchange != "" || got.RoutingKey != queue {
						t.Errorf("returned message: got exchange %q, routing key %q; want the default exchange and %q", got.Exchange, got.RoutingKey, queue)
					}
				})
			}
		}
	})
}

func TestStakingExplainsDifferentQueueType(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		ch := stakingChannel(t, b.URL)
		queue := testkit.Name(t, "staking")
		forgetStaking(t, ch, queue)
		if err := declareStaking(ch, queue, "classic"); err != nil {
			t.Fatal(err)
		}
		err := stakingClient(t, b.URL).Declare(t.Context(), preset.Staking{Queues: []string{queue}}.Topology())
		refused, ok := errors.AsType[*reprise.DeclareError](err)
		if !ok || refused.Name != queue+"_delay" || !strings.Contains(refused.Advice, "a different x-queue-type: the broker has 'classic', the declaration has 'quorum'") {
			t.Errorf("got %v, want DeclareError for x-queue-type", err)
		}
	})
}

// A message that reaches the delivery limit of the broker waits indefinitely and blocks the messages behind it. Therefore
// workers have a CrashLimit, and preset.Staking recommends a policy.
func TestStakingDeliveryLimitBlocksDelayQueue(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		ch := stakingChannel(t, b.URL)
		queue := testkit.Name(t, "staking")
		forgetStaking(t, ch, queue)
		if err := declareStaking(ch, queue, "quorum"); err != nil {
			t.Fatal(err)
		}
		publish := func(exchange, key, expiration string) {
			t.Helper()
			err := ch.PublishWithContext(t.Context(), exchange, key, true, false, amqp.Publishing{Expiration: expiration})
			if err != nil {
				t.Fatal(err)
			}
		}
		depth := func(name string) int {
			q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			return q.Messages
		}
		publish("common_dlx", queue+"_routing_key", "") // as if the broker had dead-lettered a message
		publish("", queue+"_delay", "1")                // a retry behind it
		// The blocked queue does not affect a later retry of another queue.
		other := testkit.Name(t, "staking")
		forgetStaking(t, ch, other)
		if err := declareStaking(ch, other, "quorum"); err != nil {
			t.Fatal(err)
		}
		publish("", other+"_delay", "100")
		testkit.Eventually(t, 2*time.Minute, func() bool { return depth(other) == 1 })
		if n := depth(queue + "_delay"); n != 2 {
			t.Errorf("delay queue has %d messages, want 2", n)
		}
		// After the first message is removed, the second message returns.
		if _, ok, err := ch.Get(queue+"_delay", true); !ok || err != nil {
			t.Fatalf("first message of the delay queue: got %t, %v; want true", ok, err)
		}
		testkit.Eventually(t, 2*time.Minute, func() bool { return depth(queue+"_delay") == 0 && depth(queue) == 1 })
	})
}

// stakingChannel opens a channel on a connection that is closed at the end of the test.
func stakingChannel(t *testing.T, url string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// forgetStaking deletes a work queue, its delay queue and its failed queue at the end of the test. It keeps the
// exchange, which other queues use.
func forgetStaking(t *testing.T, ch *amqp.Channel, queue string) {
	t.Helper()
	t.Cleanup(func() {
		for _, name := range []string{queue, queue + "_delay", queue + "_failed"} {
			if _, err := ch.QueueDelete(name, false, false, false); err != nil {
				t.Errorf("cannot delete queue %s: %v", name, err)
			}
		}
	})
}

func stakingClient(t *testing.T, url string) *reprise.Client {
	t.Helper()
	c, err := reprise.Dial(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return c
}

// With DelayTTL, a rejected message returns to its queue, and does not block the retries behind it.
func TestStakingDelayTTLReturnsRejectedMessage(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		queue := testkit.Name(t, "ttl") + "_staking_queue"
		conn, err := amqp.Dial(b.URL)
		ok(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		ch, err := conn.Channel()
		ok(t, err)
		client, err := reprise.Dial(t.Context(), b.URL, nil)
		ok(t, err)
		design := preset.Staking{Queues: []string{queue}, RetryDelay: 100 * time.Millisecond, DelayTTL: 200 * time.Millisecond}.Topology()
		ok(t, client.Declare(t.Context(), design))
		t.Cleanup(func() {
			for _, q := range design.Queues {
				_, err := ch.QueueDelete(q.Name, false, false, false)
				ok(t, err)
			}
			ok(t, client.Close(context.Background()))
		})
		ok(t, client.Publish(t.Context(), &reprise.Message{RoutingKey: queue, MessageID: "rejected"}))
		for range 2 { // also after the second rejection
			take(t, ch, queue, func(d amqp.Delivery) error { return d.Reject(false) })
		}
		ok(t, ch.PublishWithContext(t.Context(), "", queue+"_delay", true, false, amqp.Publishing{MessageId: "retried", Expiration: "100", DeliveryMode: amqp.Persistent}))
		seen := map[string]int{}
		for range 2 { // in any order, because the broker may dead-letter the rejected message after the publish
			take(t, ch, queue, func(d amqp.Delivery) error { seen[d.MessageId]++; return d.Ack(false) })
		}
		if seen["rejected"] != 1 || seen["retried"] != 1 {
			t.Errorf("got messages %v, want both", seen)
		}
	})
}

// take waits for the next message of a queue and settles it.
func take(t *testing.T, ch *amqp.Channel, queue string, settle func(amqp.Delivery) error) {
	t.Helper()
	var d amqp.Delivery
	testkit.Eventually(t, coverArtTimeout, func() (found bool) {
		var err error
		d, found, err = ch.Get(queue, false)
		ok(t, err)
		return found
	})
	ok(t, settle(d))
}
