package waiting

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// designCase is a worker whose messages wait for an hour in the wait queue of a design.
type designCase struct {
	name               string
	work, wait, failed string
	exchange, key      string // target of the published messages; "": the work queue
	strategy           topology.Strategy
	topology           topology.Topology // objects to remove
	everywhere         bool              // on RabbitMQ, too
	later              time.Duration     // expiration after another failure; 0: none
}

func designCases(t *testing.T) []designCase {
	named := func(c designCase) designCase {
		c.work = testkit.Name(t, "work")
		c.wait, c.failed = c.work+c.wait, c.work+c.failed
		return c
	}
	cover := preset.CoverArt{RetryDelay: time.Hour}
	prefix := testkit.Name(t, "p") + "."
	pair := preset.WorkRetry{Prefix: prefix, RetryDelay: time.Hour, Key: "k", QueueType: "quorum"}
	purge := preset.CDNPurge{First: time.Hour, Jitter: -1}
	published := preset.CDNPurgePublished()
	published.First, published.TransientQueues, published.Jitter = time.Hour, true, -1
	stake := designCase{name: "staking", wait: "_delay", failed: "_failed", everywhere: true}
	stake = named(stake)
	stake.strategy = preset.Staking{Queues: []string{stake.work}, RetryDelay: time.Hour, QueueType: "classic"}.Strategy()
	return []designCase{
		named(designCase{name: "message TTL", wait: ".wait", failed: ".failed", strategy: topology.Strategy{Route: topology.MessageTTL{}}, later: time.Hour}),
		named(designCase{name: "growing TTL", wait: ".wait", failed: ".failed", strategy: topology.Strategy{Route: topology.GrowingTTL{First: time.Hour, Jitter: -1}}, later: 3 * time.Hour, everywhere: true}),
		named(designCase{name: "dead-lettering", wait: ".retry", failed: ".failed", strategy: topology.Strategy{Route: topology.DeadLettering{Delay: time.Hour}}, everywhere: true}),
		stake,
		{
			name: "cover art", work: preset.CoverArtIndexQueue, wait: preset.CoverArtRetryQueue, failed: preset.CoverArtFailedQueue,
			exchange: preset.CoverArtExchange, key: "index", strategy: cover.Strategy(), topology: cover.Topology(),
		},
		{
			name: "work/retry", work: pair.Queue(), wait: prefix + preset.WorkRetryRetryQueue, failed: prefix + preset.WorkRetryFailedQueue,
			exchange: prefix + preset.WorkRetryWorkExchange, key: "k", strategy: pair.Strategy(), topology: pair.Topology(), everywhere: true,
		},
		{
			name: "CDN purge", work: preset.CDNPurgeQueue, wait: preset.CDNPurgeWaitQueue, failed: "cdn-purge.failed",
			exchange: preset.CDNPurgeExchange, key: "tag", strategy: purge.Strategy(), topology: purge.Topology(), later: 3 * time.Hour,
		},
		{
			name: "CDN purge, another key", work: preset.CDNPurgeQueue, wait: "cdn-purge.wait.aside", failed: "cdn-purge.failed",
			strategy: purge.Strategy(), topology: purge.Topology(), later: 3 * time.Hour,
		},
		{
			name: "CDN purge as published", work: published.Queue, wait: published.WaitQueue, failed: "primary-queue.failed",
			exchange: published.Exchange, key: "routing-key-b", strategy: published.Strategy(), topology: published.Topology(), later: 3 * time.Hour,
		},
	}
}

// For designs other than topology.Buckets, the acts retry and park messages as their workers do. Postpone leaves the
// messages unchanged.
func TestActsOnWaitingMessagesOfOtherDesigns(t *testing.T) {
	run := func(t *testing.T, b testkit.Target) {
		for _, c := range designCases(t) {
			if b.IsRabbitMQ && !c.everywhere {
				continue // the names are fixed, and other tests use them
			}
			t.Run(c.name, func(t *testing.T) { c.test(t, archivetest.NewWire(t, b.URL)) })
		}
	}
	t.Run("embedded", func(t *testing.T) { run(t, testkit.Embedded(t)) })
	for _, b := range testkit.RabbitMQs() {
		if b.Version == "4.3" {
			t.Run(b.Name, func(t *testing.T) { b.Require(t); run(t, b) })
		}
	}
}

func (c designCase) test(t *testing.T, w *archivetest.Wire) {
	var mu sync.Mutex
	var handled []string
	x := newRetryingFrom(w, c.work, c.strategy, func(m *reprise.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		handled = append(handled, fmt.Sprint(m.MessageID, "/", m.Attempt, "/", m.RoutingKey))
		return errors.New("no customer 4711")
	})
	x.DeleteLater(c.wait, c.failed)
	t.Cleanup(func() {
		for _, e := range c.topology.Exchanges {
			_ = x.Raw.ExchangeDelete(e.Name, false, false)
		}
		for _, q := range c.topology.Queues {
			_, _ = x.Raw.QueueDelete(q.Name, false, false, false)
		}
	})
	key := c.key
	if c.exchange == "" {
		key = c.work
	}
	carbonCopies := x.Queue("cc", nil)
	for i := range 4 {
		m := &reprise.Message{Exchange: c.exchange, RoutingKey: key, MessageID: fmt.Sprint(i), Body: []byte("body")}
		if i == 2 {
			m.UserID = "guest"
			m.Headers = map[string]any{"CC": []any{carbonCopies}, reprise.HeaderUserID: "forged"}
		}
		archivetest.Must(t, x.Client.Publish(t.Context(), m))
	}
	rows := map[string]store.Waiting{}
	for _, r := range x.list(4) {
		rows[string(r.MessageID)] = r
		if string(r.Wait) != c.wait {
			t.Fatalf("got %+v, want wait queue %s", r, c.wait)
		}
	}
	act := func(do Do, id string, delay time.Duration) Result {
		t.Helper()
		res, err := x.r.Act(t.Context(), Act{Do: do, Filter: rowsOf(rows[id]), Delay: params.Duration(delay)}, "ann")
		archivetest.Must(t, err)
		return res
	}
	if res := act(Postpone, "3", 5*time.Hour); len(res.Refused) != 1 || !strings.Contains(res.Refused[0].Why, "park them, and replay them later") {
		t.Errorf("postpone: got %+v, want 1 refused with advice", res)
	}
	copied := x.Depth(carbonCopies)
	if res := act(ParkNow, "2", 0); res.Done != 1 {
		t.Fatalf("park: got %+v, want 1 done", res)
	}
	if n := x.Depth(carbonCopies); n != copied {
		t.Errorf("the parked message was also routed by its header CC: %d messages, want %d", n, copied)
	}
	parked := x.bodies(c.failed, 1)[0]
	if parked.MessageId != "2" || strings.Count(fmt.Sprint(parked.Headers), "no customer 4711") != 1 || parked.Headers[topology.HeaderReason] != "parked by ann" ||
		parked.Expiration != "" || parked.RoutingKey != key && parked.Headers[topology.HeaderRoutingKey] != key {
		t.Errorf("parked message: got %+v, want message 2 with its error once, reason \"parked by ann\", key %q", parked, key)
	}
	if res := act(RetryNow, "1", 0); res.Done != 1 {
		t.Fatalf("retry now: got %+v, want 1 done", res)
	}
	if user := parked.Headers[reprise.HeaderUserID]; user != "guest" || parked.UserId != "" {
		t.Errorf("parked message: got user-id %q, header %v, want the user-id guest in the header", parked.UserId, user)
	}
	testkit.Eventually(t, archivetest.Longest, func() error {
		mu.Lock()
		defer mu.Unlock()
		if !slices.Contains(handled, "1/2/"+key) || len(handled) != 5 {
			return fmt.Errorf("got attempts %s, want 5, one of them the second attempt of message 1", handled)
		}
		return nil
	})
	testkit.Eventually(t, archivetest.Longest, func() error {
		if n := x.Depth(c.wait); n != 3 {
			return fmt.Errorf("got %d waiting messages, want 3", n)
		}
		return nil
	})
	var ids []string
	var last amqp.Delivery
	for _, d := range x.bodies(c.wait, 3) {
		ids, last = append(ids, d.MessageId), d
	}
	if slices.Sort(ids[:2]); !slices.Equal(ids, []string{"0", "3", "1"}) { // a worker may publish 0 and 3 in either order
		t.Errorf("got waiting messages %s, want 0, 3, 1", ids)
	}
	if c.later > 0 && last.Expiration != fmt.Sprint(c.later.Milliseconds()) {
		t.Errorf("next wait: got %s ms, want %s", last.Expiration, c.later)
	}
}

// An act does not consume from an auto-delete wait queue, because the broker would delete it with its messages.
func TestActKeepsAutoDeleteWaitQueue(t *testing.T) {
	design := preset.CDNPurgePublished()
	design.First, design.AutoDelete = time.Hour, true
	x := newRetryingFrom(archivetest.NewWire(t, testkit.Embedded(t).URL), design.Queue, design.Strategy(), func(*reprise.Delivery) error { return errors.New("no") })
	archivetest.Must(t, x.Client.Publish(t.Context(), &reprise.Message{Exchange: design.Exchange, RoutingKey: "routing-key-a", MessageID: "1"}))
	x.list(1)
	for _, do := range []Do{RetryNow, ParkNow} {
		res, err := x.r.Act(t.Context(), Act{Do: do, All: true}, "ann")
		if err != nil || len(res.Refused) != 1 || !strings.Contains(res.Refused[0].Why, "auto-delete") {
			t.Errorf("%s: got %+v, %v, want 1 refused, \"auto-delete\"", do, res, err)
		}
	}
	if n := x.Depth(design.WaitQueue); n != 1 {
		t.Errorf("got %d waiting messages, want 1", n)
	}
}

// A message in the wait queue of lanes returns to the lane that is its routing key.
func TestDesignOfLanes(t *testing.T) {
	place := store.WaitingPlace{Queue: "orders", Wait: "orders.lane.wait.1000-1250"}
	designs := designsOf(place)
	if len(designs) != 1 || designs[0].wait.Name != place.Wait || designs[0].wait.Args["x-dead-letter-routing-key"] != nil {
		t.Fatalf("got %+v, want the wait queue of lanes", designs)
	}
	for key, want := range map[string]bool{"orders.lane.3-of-4": true, "other.lane.3-of-4": false, "orders": false, "invoices": false} {
		m := &reprise.Delivery{Message: reprise.Message{RoutingKey: key}}
		if got := designs[0].returns(m, "orders"); got != want {
			t.Errorf("routing key %s: returns %t, want %t", key, got, want)
		}
		hop, err := designs[0].strategy.Route.Wait(designs[0].delivery(m, "orders"), time.Hour)
		if want && (err != nil || hop.RoutingKey != key || !strings.HasPrefix(hop.Exchange, "orders.lane.wait.")) {
			t.Errorf("postponed: got %+v and %v, want key %s", hop, err, key)
		}
	}
}
