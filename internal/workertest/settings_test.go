package workertest

import (
	"context"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/topology"
)

// NewWorker rejects settings of a strategy or a published design that no broker accepts, that would lose messages, or that
// would retry messages indefinitely. The error explains the correction.
func TestNewWorkerRejectsInvalidSettings(t *testing.T) {
	t.Parallel()
	var (
		long   = strings.Repeat("q", 256)
		almost = strings.Repeat("q", 253) // too long with any suffix
		infra  = behindExchanges()
		behind = topology.WaitQueue{WorkExchange: "orders", WaitExchange: "orders.wait", FailedExchange: "orders.failed", Infrastructure: infra}
		ttl    = topology.MessageTTL{WaitAddress: topology.Address{Exchange: "orders.wait", Key: "{key}"}, FailedAddress: topology.Address{Exchange: "orders.failed", Key: "{key}"}, WorkExchange: "orders", Infrastructure: infra}
	)
	route := func(r topology.Route) topology.Strategy { return topology.Strategy{Route: r} }
	marks := func(m topology.Marks) topology.Strategy { return topology.Strategy{Marks: m} }
	waitQueue := func(f func(*topology.WaitQueue)) topology.Strategy { w := behind; f(&w); return route(w) }
	messageTTL := func(f func(*topology.MessageTTL)) topology.Strategy { m := ttl; f(&m); return route(m) }
	growing := func(f func(*topology.GrowingTTL)) topology.Strategy {
		g := topology.GrowingTTL{}
		f(&g)
		return route(g)
	}

	cases := []struct {
		field string
		s     topology.Strategy
		want  string
	}{
		{"Buckets.Base", route(topology.Buckets{Base: -time.Second}), "from 1ms to"},
		{"Buckets.Base", route(topology.Buckets{Base: 1500 * time.Microsecond}), "whole milliseconds"},
		{"Buckets.Base", route(topology.Buckets{Base: math.MaxInt64}), "from 1ms to"},
		{"Buckets.Growth", route(topology.Buckets{Growth: 1}), "above 1"},
		{"Buckets.Growth", route(topology.Buckets{Growth: math.NaN()}), "above 1"},
		{"Buckets.Growth", route(topology.Buckets{Growth: math.Inf(1)}), "at most 1000"},
		{"Buckets.Growth", route(topology.Buckets{Base: time.Millisecond, Growth: 1.5}), "narrower than 1ms"},

		{"DelayedRetry.Min", route(topology.DelayedRetry{Min: -1}), "from 1ms to"},
		{"DelayedRetry.Max", route(topology.DelayedRetry{Min: time.Hour, Max: time.Minute}), "from Min (1h0m0s)"},

		{"WaitQueue.WorkExchange", waitQueue(func(w *topology.WaitQueue) { w.WorkExchange = "" }), "must have three exchanges"},
		{"WaitQueue.WorkExchange", waitQueue(func(w *topology.WaitQueue) { w.WorkExchange = "others" }), "must bind exchange \"others\" to work queue"},
		{"WaitQueue.WaitExchange", waitQueue(func(w *topology.WaitQueue) { w.WaitExchange = "orders" }), "must not be the work exchange"},
		{"WaitQueue.WaitExchange", waitQueue(func(w *topology.WaitQueue) { w.WaitExchange = long }), "WaitQueue.WaitExchange must have at most 255 bytes: got 256"},
		{"WaitQueue.FailedExchange", waitQueue(func(w *topology.WaitQueue) { w.FailedExchange = "orders" }), "must not be the work exchange"},
		{"WaitQueue.FailedExchange", waitQueue(func(w *topology.WaitQueue) { w.FailedExchange = "orders.wait" }), "WaitQueue.WaitExchange and FailedExchange must be different"},
		{"WaitQueue.FailedExchange", waitQueue(func(w *topology.WaitQueue) { w.FailedExchange = long }), "WaitQueue.FailedExchange must have at most 255 bytes"},
		{"WaitQueue.Delay", waitQueue(func(w *topology.WaitQueue) { w.Delay = -1 }), "must be between 0 and"},
		{"WaitQueue.Infrastructure", waitQueue(func(w *topology.WaitQueue) { w.Infrastructure = topology.Topology{Needs: "new"} }), "must be a version"},

		{"MessageTTL.WaitAddress", messageTTL(func(m *topology.MessageTTL) { m.WaitAddress.Exchange = "orders" }), "must not be the work exchange"},
		{"MessageTTL.WaitAddress", messageTTL(func(m *topology.MessageTTL) { m.WaitAddress = topology.Address{Key: "{queue}"} }), "MessageTTL.WaitAddress must not lead to the work queue"},
		{"MessageTTL.WaitAddress", messageTTL(func(m *topology.MessageTTL) { m.WaitAddress.Exchange = long }), "MessageTTL.WaitAddress.Exchange must have at most 255 bytes"},
		{"MessageTTL.WaitAddress", messageTTL(func(m *topology.MessageTTL) { m.WaitAddress.Key = long }), "MessageTTL.WaitAddress.Key must have at most 255 bytes"},
		{"MessageTTL.WaitAddress", route(topology.MessageTTL{WaitAddress: topology.Address{Key: "wait"}}), "such as \"{queue}.wait\""},
		{"MessageTTL.FailedAddress", messageTTL(func(m *topology.MessageTTL) { m.FailedAddress.Exchange = "orders" }), "must not be the work exchange"},
		{"MessageTTL.FailedAddress", messageTTL(func(m *topology.MessageTTL) { m.FailedAddress = topology.Address{Key: "work"} }), "MessageTTL.FailedAddress must not lead to the work queue"},
		{"MessageTTL.FailedAddress", messageTTL(func(m *topology.MessageTTL) { m.FailedAddress = m.WaitAddress }), "MessageTTL.WaitAddress and FailedAddress must be different"},
		{"MessageTTL.FailedAddress", route(topology.MessageTTL{FailedAddress: topology.Address{Key: "{queue}.wait"}}), "MessageTTL.WaitAddress and FailedAddress must be different"},
		{"MessageTTL.WorkExchange", messageTTL(func(m *topology.MessageTTL) { m.WorkExchange = "others" }), "must bind exchange \"others\""},
		{"MessageTTL.Infrastructure", messageTTL(func(m *topology.MessageTTL) { m.Infrastructure.Needs = "new" }), "must be a version"},

		{"GrowingTTL.MessageTTL", growing(func(g *topology.GrowingTTL) { g.WaitAddress.Key = "{queue}" }), "such as \"{queue}.wait\""},
		{"GrowingTTL.WaitQueue", growing(func(g *topology.GrowingTTL) { g.MessageTTL = ttl }), "GrowingTTL.WaitQueue must not be empty"},
		{"GrowingTTL.WaitQueue", growing(func(g *topology.GrowingTTL) { g.WaitQueue = long }), "WaitQueue must have at most 255 bytes"},
		{"GrowingTTL.First", growing(func(g *topology.GrowingTTL) { g.First = -1 }), "from 1ms to"},
		{"GrowingTTL.First", growing(func(g *topology.GrowingTTL) { g.First = math.MaxInt64 }), "from 1ms to"},
		{"GrowingTTL.Factor", growing(func(g *topology.GrowingTTL) { g.Factor = 0.5 }), "1 means constant delays"},
		{"GrowingTTL.Factor", growing(func(g *topology.GrowingTTL) { g.Factor = math.NaN() }), "1 means constant delays"},
		{"GrowingTTL.Max", growing(func(g *topology.GrowingTTL) { g.Max = time.Second }), "from First (10s)"},
		{"GrowingTTL.Jitter", growing(func(g *topology.GrowingTTL) { g.Jitter = 1 }), "below 1"},
		{"GrowingTTL.Jitter", growing(func(g *topology.GrowingTTL) { g.Jitter = math.NaN() }), "below 1"},

		{"DeadLettering.Delay", route(topology.DeadLettering{Delay: -1}), "from 1ms to"},
		{"DeadLettering.FailedAddress", route(topology.DeadLettering{FailedAddress: topology.Address{Key: "{queue}"}}), "such as \"{queue}.wait\""},
		{"DeadLettering.FailedAddress", route(topology.DeadLettering{FailedAddress: topology.Address{Key: "{queue}.retry"}}), "DeadLettering.FailedAddress must not be the wait queue"},
		{"DeadLettering.FailedAddress", route(topology.DeadLettering{FailedAddress: topology.Address{Key: "work"}, Infrastructure: infra}), "DeadLettering.FailedAddress must not lead to the work queue"},
		{"DeadLettering.WorkExchange", route(topology.DeadLettering{WorkExchange: "others", Infrastructure: infra}), "must bind exchange \"others\""},
		{"DeadLettering.Infrastructure", route(topology.DeadLettering{Infrastructure: topology.Topology{Queues: []topology.Queue{{Name: "work"}}}}), "must have x-dead-letter-exchange"},
		{"DeadLettering.Infrastructure", route(topology.DeadLettering{Infrastructure: topology.Topology{
			Exchanges: []topology.Exchange{{Name: "nowhere", Kind: "direct"}},
			Queues:    []topology.Queue{{Name: "work", Args: topology.Table{"x-dead-letter-exchange": "nowhere"}}},
		}}), "must have a binding"},

		{"CountUp.Header", marks(topology.CountUp{}), "CountUp.Header must not be empty"},
		{"CountUp.Header", marks(topology.CountUp{Header: long}), "at most 255"},
		{"CountUp.Header", marks(topology.CountUp{Header: "x-death"}), "CountUp.Header must not be a header that the broker writes: got \"x-death\""},
		{"CountUp.Header", marks(topology.CountUp{Header: "CC"}), "a header that the broker writes"},
		{"CountUp.Header", marks(topology.CountUp{Header: "x-reprise-crashes"}), "must not begin with \"x-reprise-\""},
		{"CountDown.Header", marks(topology.CountDown{Errors: "e"}), "must be different and not empty"},
		{"CountDown.Header", marks(topology.CountDown{Header: "x-delivery-count", Errors: "e"}), "a header that the broker writes"},
		{"CountDown.Errors", marks(topology.CountDown{Header: "n", Errors: "n"}), "must be different and not empty"},
		{"CountDown.Errors", marks(topology.CountDown{Header: "n", Errors: "x-reprise-errors"}), "must not begin with \"x-reprise-\""},
		{"CountDown.Default", marks(topology.CountDown{Header: "n", Errors: "e", Default: -1}), "0 means no retries"},
		{"Expirations.WaitQueue", marks(topology.Expirations{WaitQueue: long}), "at most 255"},
		{"Expirations.First", marks(topology.Expirations{First: -1}), "from 1ms to"},
		{"Expirations.Factor", marks(topology.Expirations{Factor: -3}), "1 means constant delays"},

		// Marks cannot write headers if the route does not publish copies.
		{"Strategy.Marks", topology.Strategy{Route: topology.Requeuing{}, Marks: topology.Trail{}}, "omit Marks"},
		{"Strategy.Marks", topology.Strategy{Route: topology.DelayedRetry{}, Marks: topology.CountUp{Header: "n"}}, "omit Marks"},
		{"Strategy.Marks", topology.Strategy{Route: topology.DeadLettering{}, Marks: topology.Deliveries{}}, "omit Marks"},
		{"Strategy.Marks", topology.Strategy{Route: &topology.Requeuing{}, Marks: topology.Trail{}}, "omit Marks"},
		{"Requeuing.Classic", topology.Strategy{Route: topology.Requeuing{Classic: true}, Marks: topology.Deliveries{}}, "omit Marks"},
		{"Deliveries.Classic", topology.Strategy{Route: topology.Requeuing{}, Marks: topology.Deliveries{Classic: true}}, "omit Marks"},
		{"Requeuing.Unlimited", route(topology.Requeuing{Unlimited: true}), "Requeuing.Unlimited must be false without Classic"},
		{"Strategy.Route", route(nilRoute()), "Strategy.Route must not be a nil"},

		{"CoverArt.RetryDelay", preset.CoverArt{RetryDelay: -1}.Strategy(), "CoverArt.RetryDelay must be whole milliseconds"},
		{"CoverArt.RetryDelay", preset.CoverArt{RetryDelay: 100_000 * time.Hour}.Strategy(), "got 100000h0m0s"},
		{"CoverArt.Retries", preset.CoverArt{Retries: -1}.Strategy(), "got -1"},
		{"CoverArt.Retries", preset.CoverArt{Retries: math.MaxInt}.Strategy(), "got 9223372036854775807"},
		{"CoverArt.QueueType", preset.CoverArt{QueueType: "stream"}.Strategy(), "\"stream\""},

		{"Staking.Queues", preset.Staking{Queues: []string{""}}.Strategy(), "Staking.Queues must not contain an empty name"},
		{"Staking.Queues", preset.Staking{Queues: []string{almost}}.Strategy(), "Staking.Queues"},
		{"Staking.Queues", preset.Staking{Queues: []string{"a", "a_delay"}}.Strategy(), "Staking.Queues: topology: queue \"a_delay\" must not have two different declarations"},
		{"Staking.Queues", preset.Staking{Queues: []string{"amq.a"}}.Strategy(), "must not begin with \"amq.\""},
		{"Staking.RetryDelay", preset.Staking{RetryDelay: time.Microsecond}.Strategy(), "Staking.RetryDelay must be whole milliseconds"},
		{"Staking.DelayTTL", preset.Staking{DelayTTL: time.Microsecond}.Strategy(), "Staking.DelayTTL must be whole milliseconds"},
		{"Staking.DelayTTL", preset.Staking{DelayTTL: time.Second}.Strategy(), "Staking.DelayTTL must be at least RetryDelay"},
		{"Staking.QueueType", preset.Staking{QueueType: "stream"}.Strategy(), "\"stream\""},

		{"WorkRetry.RetryDelay", preset.WorkRetry{RetryDelay: math.MaxInt64}.Strategy(), "WorkRetry.RetryDelay"},
		{"WorkRetry.Kind", preset.WorkRetry{Kind: "headers"}.Strategy(), "\"headers\""},
		{"WorkRetry.Key", preset.WorkRetry{Key: long}.Strategy(), "WorkRetry.Key must have at most 255 bytes: got 256"},
		{"WorkRetry.QueueType", preset.WorkRetry{QueueType: "Quorum"}.Strategy(), "\"Quorum\""},
		{"WorkRetry.Prefix", preset.WorkRetry{Prefix: strings.Repeat("p", 240)}.Strategy(), "WorkRetry.Prefix must have at most 239 bytes: got 240"},
		{"WorkRetry.Prefix", preset.WorkRetry{Prefix: "amq."}.Strategy(), "must not begin with \"amq.\""},

		{"CDNPurge.Exchange", preset.CDNPurge{Exchange: long}.Strategy(), "at most 255"},
		{"CDNPurge.Exchange", preset.CDNPurge{Exchange: "amq.direct"}.Strategy(), "\"amq.direct.wait\" must not begin with \"amq.\""},
		{"CDNPurge.Exchange", preset.CDNPurge{Exchange: "a\nb"}.Strategy(), "line break"},
		{"CDNPurge.Queue", preset.CDNPurge{Queue: almost}.Strategy(), "at most 255"},
		{"CDNPurge.WaitExchange", preset.CDNPurge{WaitExchange: "cdn-purge"}.Strategy(), "CDNPurge.Exchange and WaitExchange must be different: got \"cdn-purge\""},
		{"CDNPurge.WaitQueue", preset.CDNPurge{WaitQueue: "cdn-purge"}.Strategy(), "CDNPurge.Queue and WaitQueue must be different: got \"cdn-purge\""},
		{"CDNPurge.FailedQueue", preset.CDNPurge{FailedQueue: "cdn-purge.wait"}.Strategy(), "CDNPurge.WaitQueue and FailedQueue must be different: got \"cdn-purge.wait\""},
		{"CDNPurge.RoutingKeys", preset.CDNPurge{RoutingKeys: []string{long}}.Strategy(), "at most 255"},
		{"CDNPurge.Kind", preset.CDNPurge{Kind: "headers"}.Strategy(), "\"headers\""},
		{"CDNPurge.WaitKind", preset.CDNPurge{WaitKind: "x"}.Strategy(), "\"x\""},
		{"CDNPurge.First", preset.CDNPurge{First: -1}.Strategy(), "CDNPurge: topology: Expirations.First must be"},
		{"CDNPurge.Factor", preset.CDNPurge{Factor: math.Inf(1)}.Strategy(), "got +Inf"},
		{"CDNPurge.Jitter", preset.CDNPurge{Jitter: 1.5}.Strategy(), "got 1.5"},
		{"CDNPurge.Max", preset.CDNPurge{Max: time.Second}.Strategy(), "got 1s"},
		{"CDNPurge.QueueType", preset.CDNPurge{QueueType: "stream"}.Strategy(), "\"stream\""},
		{"CDNPurge.TransientQueues", preset.CDNPurge{TransientQueues: true, QueueType: "quorum"}.Strategy(), "must not be transient"},
		{"CDNPurge.AutoDelete", preset.CDNPurge{AutoDelete: true, QueueType: "quorum"}.Strategy(), "must not be transient, exclusive or auto-delete"},
		{"CDNPurge.WaitArgs", preset.CDNPurge{WaitArgs: topology.Table{"x-dead-letter-exchange": "other"}}.Strategy(), "CDNPurge.WaitArgs: x-dead-letter-exchange must be"},
		{"CDNPurge.WaitArgs", preset.CDNPurge{WaitArgs: topology.Table{"x-message-ttl": time.Minute}}.Strategy(), "cannot send a value of type time.Duration"},
		{"CDNPurge.WaitArgs", preset.CDNPurge{WaitArgs: topology.Table{"x-queue-type": "stream"}}.Strategy(), "CDNPurge.WaitArgs: x-queue-type must be"},
	}
	// Any value of these settings is valid.
	tried := map[string]bool{
		"GrowingTTL.Rand": true, "CDNPurge.Rand": true, "CDNPurge.TransientExchanges": true, "CDNPurge.WorkersOnly": true, "WorkRetry.TransientExchanges": true,
	}
	for _, c := range cases {
		design, _, _ := strings.Cut(c.field, ".")
		tried[c.field] = true
		t.Run(c.field, func(t *testing.T) {
			err := reprise.WorkerConfig{Queue: queueOf(design), Handler: succeed, Strategy: c.s}.Validate()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %s", err, c.want)
			}
		})
	}
	for _, v := range []any{
		topology.Strategy{},
		topology.Buckets{},
		topology.DelayedRetry{},
		topology.WaitQueue{},
		topology.MessageTTL{},
		topology.GrowingTTL{},
		topology.DeadLettering{},
		topology.Levels{},
		topology.Requeuing{},
		topology.CountUp{},
		topology.CountDown{},
		topology.Expirations{},
		topology.Trail{},
		topology.Deliveries{},
		topology.Deaths{},
		preset.CoverArt{},
		preset.Staking{},
		preset.WorkRetry{},
		preset.CDNPurge{},
	} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			if name := reflect.TypeOf(v).Name() + "." + f.Name; len(f.Index) == 1 && !tried[name] {
				t.Errorf("no test case sets %s to an invalid value", name)
			}
		}
	}
}

// The zero value of a design and a design with all fields set are valid.
func TestValidateAcceptsPublishedDesigns(t *testing.T) {
	t.Parallel()
	for queue, s := range map[string]topology.Strategy{
		preset.CoverArtIndexQueue: preset.CoverArt{}.Strategy(),
		preset.StakingActiveQueue: preset.Staking{}.Strategy(),
		"mine":                    preset.Staking{Queues: []string{"mine"}, RetryDelay: time.Millisecond, QueueType: "classic"}.Strategy(),
		"WorkQueue":               preset.WorkRetry{}.Strategy(),
		"p.WorkQueue":             preset.WorkRetry{RetryDelay: topology.MaxDelay, Kind: "topic", Key: "#", TransientExchanges: true, QueueType: "quorum", Prefix: "p."}.Strategy(),
		"cdn-purge":               preset.CDNPurge{}.Strategy(),
	} {
		if err := (reprise.WorkerConfig{Queue: queue, Handler: succeed, Strategy: s}).Validate(); err != nil {
			t.Errorf("queue %s: %v", queue, err)
		}
	}
}

// If a queue does not belong to a design, the error contains the names of the queues of the design.
func TestValidateRejectsQueueOutsideDesign(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]topology.Strategy{
		`must be "cover-art-archive.index", "cover-art-archive.delete" or "cover-art-archive.move"`: preset.CoverArt{}.Strategy(),
		`must be "p.WorkQueue"`: preset.WorkRetry{Prefix: "p."}.Strategy(),
		`preset: CDNPurge.Queue must be the queue of the worker "orders": got "cdn-purge"`: preset.CDNPurge{}.Strategy(),
	} {
		err := reprise.WorkerConfig{Queue: "orders", Handler: succeed, Strategy: s}.Validate()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want a one-line error with %s", err, want)
		}
	}
}

var succeed = reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return nil })

// queueOf returns a work queue that is valid for a design or a route.
func queueOf(design string) string {
	switch design {
	case "CoverArt":
		return preset.CoverArtIndexQueue
	case "Staking":
		return preset.StakingActiveQueue
	case "WorkRetry":
		return preset.WorkRetryWorkQueue
	case "CDNPurge":
		return preset.CDNPurgeQueue
	}
	return "work"
}

// behindExchanges returns a topology with a work queue, a wait queue and a failed queue, each behind an exchange.
func behindExchanges() (t topology.Topology) {
	for _, q := range [][2]string{{"orders", "work"}, {"orders.wait", "wait"}, {"orders.failed", "failed"}} {
		t.Exchanges = append(t.Exchanges, topology.Exchange{Name: q[0], Kind: topology.Fanout})
		t.Queues = append(t.Queues, topology.Queue{Name: q[1], Args: topology.Table{"x-dead-letter-exchange": "orders"}})
		t.Bindings = append(t.Bindings, topology.Binding{Exchange: q[0], Queue: q[1]})
	}
	return t
}

func nilRoute() topology.Route { return (*topology.Buckets)(nil) }
