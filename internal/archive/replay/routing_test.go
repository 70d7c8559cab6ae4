package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// boundQueue is a work queue that is bound to an exchange, with a failed queue.
type boundQueue struct {
	*archivetest.Wire
	api        mgmtapi.API
	exchange   string
	work, from string
	audit      string // a queue of another program
}

const boundKey = "order.new"

func newBoundQueue(t *testing.T, b testkit.Target, api, kind string) *boundQueue {
	t.Helper()
	w := archivetest.NewWire(t, b.URL)
	x := &boundQueue{
		Wire: w, api: mgmtapi.API{URL: api, User: "guest", Password: "guest", Client: testkit.HTTPClient(t)},
		work: w.Queue("work", nil), from: w.Queue("failed", nil), audit: w.Queue("audit", nil),
	}
	x.exchange = x.declare(kind, nil)
	x.bind(x.work, x.exchange, boundKey)
	return x
}

// declare declares an exchange for the duration of the test.
func (x *boundQueue) declare(kind string, args amqp.Table) string {
	x.Helper()
	name := testkit.Name(x.T, "x")
	archivetest.Must(x.T, x.Raw.ExchangeDeclare(name, kind, true, false, false, false, args))
	x.Cleanup(func() { _ = x.Raw.ExchangeDelete(name, false, false) })
	return name
}

func (x *boundQueue) bind(queue, exchange, key string) {
	x.Helper()
	archivetest.Must(x.T, x.Raw.QueueBind(queue, key, exchange, false, nil))
}

func (x *boundQueue) join(to, from, key string) {
	x.Helper()
	archivetest.Must(x.T, x.Raw.ExchangeBind(to, key, from, false, nil))
}

func (x *boundQueue) bindings(ctx context.Context) (topology.Topology, error) {
	return x.api.Topology(ctx)
}

// park publishes a message to the failed queue with the headers that a worker sets if it received the message through
// the exchange.
func (x *boundQueue) park(key string) {
	x.Helper()
	x.Publish(x.from, map[string]any{topology.HeaderQueue: x.work, topology.HeaderExchange: x.exchange, topology.HeaderRoutingKey: key}, "m")
	testkit.Eventually(x.T, archivetest.Longest, func() bool { return x.Depth(x.from) == 1 })
}

// redrive redrives the message, and returns the delivery, the previewed destination and the log.
func (x *boundQueue) redrive(r Routing) (amqp.Delivery, Destination, string) {
	x.Helper()
	var log bytes.Buffer
	cfg := RedriveConfig{From: x.from, Routing: r, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	_, seen, err := LookBeforeRedrive(x.Context(), x.Client, cfg)
	archivetest.Must(x.T, err)
	if _, sent, err := Redrive(x.Context(), x.Client, cfg); seen[0].Refused {
		if routeErr, ok := errors.AsType[*RouteError](err); sent != 0 || !ok || routeErr.Queue != x.work || x.Depth(x.from) != 1 {
			x.Fatalf("refused redrive: got %d sent and error %v, want a RouteError and the message in its queue", sent, err)
		}
	} else {
		archivetest.Must(x.T, err)
	}
	done := redriveResult{1, 1}
	if cfg.ByQueueName = true; seen[0].Refused {
		done, err = redriveFrom(x.Context(), x.Client, cfg)
	}
	archivetest.Must(x.T, err)
	all := x.Take(x.work)
	if done.Sent != 1 || len(all) != 1 || len(seen) != 1 {
		x.Fatalf("got %+v, %d messages, destinations %+v, want 1 message and 1 destination", done, len(all), seen)
	}
	return all[0], seen[0], log.String()
}

// A message returns through its exchange and key if the bindings prove that they route only to its queue. If they also
// route to another queue, the message is sent directly to its queue.
func TestRedriveReachesOnlyWorkQueue(t *testing.T) {
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, api string) {
		for name, tc := range map[string]struct {
			kind string
			more func(x *boundQueue) // bindings of another program
			why  string              // the reason for sending by name; %s is the exchange
		}{
			"direct": {"direct", func(x *boundQueue) { x.bind(x.audit, x.exchange, "another") }, ""},
			"topic":  {"topic", func(x *boundQueue) { x.bind(x.audit, x.exchange, "another.#") }, ""},
			"fanout": {"fanout", func(*boundQueue) {}, ""},
			"another queue": {
				"direct", func(x *boundQueue) { x.bind(x.audit, x.exchange, boundKey) },
				`exchange “%s” also routes the original key to`,
			},
			"pattern": {"topic", func(x *boundQueue) { x.bind(x.audit, x.exchange, "*.new") }, `exchange “%s” also routes the original key to`},
			"another queue of a fanout exchange": {
				"fanout", func(x *boundQueue) { x.bind(x.audit, x.exchange, "") },
				`exchange “%s” also routes the original key to`,
			},
			"exchange binding": {"direct", func(x *boundQueue) {
				next := x.declare("fanout", nil)
				x.bind(x.audit, next, "")
				x.join(next, x.exchange, boundKey)
			}, `exchange “%s” also routes the original key to`},
			"alternate exchange of a bound exchange": {"direct", func(x *boundQueue) {
				last := x.declare("fanout", nil)
				x.bind(x.audit, last, "")
				x.join(x.declare("direct", amqp.Table{"alternate-exchange": last}), x.exchange, boundKey)
			}, `exchange “%s” also routes the original key to`},
			"headers exchange": {"direct", func(x *boundQueue) {
				x.join(x.declare("headers", nil), x.exchange, boundKey)
			}, `is of kind headers, which does not route by the key alone`},
		} {
			t.Run(name, func(t *testing.T) {
				x := newBoundQueue(t, b, api, tc.kind)
				tc.more(x)
				x.park(boundKey)
				d, result, log := x.redrive(Routing{Bindings: x.bindings})
				why := tc.why
				if strings.Contains(why, "%s") {
					why = fmt.Sprintf(why, x.exchange)
				}
				switch {
				case tc.why == "" && (d.Exchange != x.exchange || d.RoutingKey != boundKey || result.Warning != "" || strings.Contains(log, "by queue name")):
					t.Errorf("got exchange %q, key %q, warning %q, want exchange %q, key %q, no warning", d.Exchange, d.RoutingKey, result.Warning, x.exchange, boundKey)
				case tc.why != "" && (d.Exchange != "" || d.RoutingKey != x.work || !strings.Contains(result.Warning, why) || !strings.Contains(log, "by queue name")):
					t.Errorf("got exchange %q, key %q, warning %q, want the default exchange, key %q, warning with %q", d.Exchange, d.RoutingKey, result.Warning, x.work, why)
				}
				if result.Exchange != d.Exchange || result.RoutingKey != d.RoutingKey || result.Queue != x.work {
					t.Errorf("preview differs: got %+v, want exchange %q, key %q, queue %q", result, d.Exchange, d.RoutingKey, x.work)
				}
				if n := x.Depth(x.audit); n != 0 {
					t.Errorf("got %d messages in another queue, want 0", n)
				}
			})
		}
	})
}

// If a message has only the exchange and the key of its first publish, as after RepublishMessageRecoverer of Spring, they must lead to
// one queue. A topic of Watermill is an exchange or a queue.
func TestRedriveUsesRecordedExchange(t *testing.T) {
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, api string) {
		spring := func(x *boundQueue) map[string]any {
			return map[string]any{"x-exception-stacktrace": "java.lang.IllegalStateException: no\n\tat a.B", "x-original-exchange": x.exchange, "x-original-routingKey": boundKey}
		}
		watermill := func(topic string) map[string]any {
			return map[string]any{"reason_poisoned": "no", "topic_poisoned": topic, "number": int32(1), "tenant": "acme"}
		}
		for name, tc := range map[string]struct {
			kind    string
			more    func(*boundQueue)
			headers func(*boundQueue) map[string]any
			kept    []string
			refused string
		}{
			"Spring":          {"direct", nil, spring, nil, ""},
			"Spring, fan-out": {"fanout", func(x *boundQueue) { x.bind(x.audit, x.exchange, "") }, spring, nil, "to 2 queues"},
			"topic exchange":  {"fanout", nil, func(x *boundQueue) map[string]any { return watermill(x.exchange) }, []string{"tenant"}, ""},
			"topic queue":     {"fanout", nil, func(x *boundQueue) map[string]any { return watermill(x.work) }, []string{"tenant"}, ""},
		} {
			t.Run(name, func(t *testing.T) {
				x := newBoundQueue(t, b, api, tc.kind)
				if tc.more != nil {
					tc.more(x)
				}
				x.Publish(x.from, tc.headers(x), "m")
				testkit.Eventually(t, archivetest.Longest, func() bool { return x.Depth(x.from) == 1 })
				_, sent, err := Redrive(t.Context(), x.Client, RedriveConfig{From: x.from, Routing: Routing{Bindings: x.bindings}})
				if tc.refused != "" {
					if sent != 0 || err == nil || !strings.Contains(err.Error(), tc.refused) || x.Depth(x.from) != 1 {
						t.Errorf("got %d sent and error %v, want a refusal", sent, err)
					}
					return
				}
				archivetest.Must(t, err)
				all := x.Take(x.work)
				if len(all) != 1 || x.Depth(x.audit) != 0 {
					t.Fatalf("got %d messages, want 1", len(all))
				}
				for header, v := range all[0].Headers {
					if _, text := v.(string); !text || header != topology.HeaderReplay && !slices.Contains(tc.kept, header) {
						t.Errorf("got header %s = %v", header, v)
					}
				}
			})
		}
	})
}

// A policy can set an alternate exchange, which the arguments of the exchange do not show.
func TestRedriveDetectsAlternateExchangeOfPolicy(t *testing.T) {
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, api string) {
		if !b.IsRabbitMQ {
			return // this broker does not support policies
		}
		x := newBoundQueue(t, b, api, "direct")
		last := x.declare("fanout", nil)
		x.bind(x.audit, last, "")
		next := x.declare("direct", nil)
		x.join(next, x.exchange, boundKey)
		policy := func(method, body string) {
			r, err := http.NewRequestWithContext(context.Background(), method, api+"/api/policies/%2F/"+next, strings.NewReader(body))
			archivetest.Must(t, err)
			r.SetBasicAuth("guest", "guest")
			answer, err := x.api.Client.Do(r)
			archivetest.Must(t, err)
			archivetest.Must(t, answer.Body.Close())
			if answer.StatusCode/100 != 2 {
				t.Fatalf("%s policy: got status %s, want 2xx", method, answer.Status)
			}
		}
		policy("PUT", fmt.Sprintf(`{"pattern": "^%s$", "apply-to": "exchanges", "definition": {"alternate-exchange": %q}}`, strings.ReplaceAll(next, ".", "[.]"), last))
		t.Cleanup(func() { policy("DELETE", "") })
		testkit.Eventually(t, archivetest.Longest, func() error { // RabbitMQ applies the policy asynchronously
			all, err := x.bindings(t.Context())
			archivetest.Must(t, err)
			for _, e := range all.Exchanges {
				if e.Name == next && e.Args["alternate-exchange"] == last {
					return nil
				}
			}
			return errors.New("policy not applied to the exchange")
		})
		x.park(boundKey)
		if d, result, _ := x.redrive(Routing{Bindings: x.bindings}); d.Exchange != "" || !strings.Contains(result.Warning, x.audit) || x.Depth(x.audit) != 0 {
			t.Errorf("got exchange %q, key %q, warning %q, and %d messages in another queue, want the default exchange, a warning with %q, and 0 messages", d.Exchange, d.RoutingKey, result.Warning, x.Depth(x.audit), x.audit)
		}
	})
}

// A replay reads the bindings when it sends messages, not when it is configured.
func TestReplayReadsBindingsWhenItSends(t *testing.T) {
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, api string) {
		x := newBoundQueue(t, b, api, "direct")
		r := Routing{Bindings: x.bindings}
		x.park(boundKey)
		if d, _, _ := x.redrive(r); d.Exchange != x.exchange {
			t.Errorf("got exchange %q, want %q", d.Exchange, x.exchange)
		}
		x.bind(x.audit, x.exchange, boundKey)
		x.park(boundKey)
		if d, _, _ := x.redrive(r); d.Exchange != "" || x.Depth(x.audit) != 0 {
			t.Errorf("got exchange %q and %d messages in another queue, want the default exchange and 0 messages", d.Exchange, x.Depth(x.audit))
		}
		archivetest.Must(t, x.Raw.QueueUnbind(x.audit, boundKey, x.exchange, nil))
		x.park(boundKey)
		if d, _, _ := x.redrive(r); d.Exchange != x.exchange || d.RoutingKey != boundKey {
			t.Errorf("got exchange %q, want %q", d.Exchange, x.exchange)
		}
	})
}

// The target of a message depends on its exchange, its key and the topology.
func TestRoutingTargets(t *testing.T) {
	design := topology.WaitQueue{
		WorkExchange: "work", WaitExchange: "wait", FailedExchange: "parked",
		Infrastructure: topology.Topology{
			Exchanges: []topology.Exchange{
				{Name: "work", Kind: topology.Direct}, {Name: "wait", Kind: topology.Fanout}, {Name: "parked", Kind: topology.Fanout},
			},
			Bindings: []topology.Binding{
				{Exchange: "work", Queue: "one", RoutingKey: "single"},
				{Exchange: "work", Queue: "two", RoutingKey: "a"},
				{Exchange: "work", Queue: "two", RoutingKey: "b"},
				{Exchange: "parked", Queue: "parked"},
			},
		},
	}
	known := Routing{Workers: []reprise.WorkerConfig{
		{Queue: "one", Strategy: topology.Strategy{Route: design}}, {Queue: "two", Strategy: topology.Strategy{Route: design}}, {Queue: "plain"},
	}}
	listed := func(more ...topology.Binding) func(context.Context) (topology.Topology, error) {
		t := design.Infrastructure
		t.Exchanges = append(t.Exchanges, topology.Exchange{Name: "shop", Kind: topology.Topic}, topology.Exchange{Name: "inner", Kind: topology.Direct, Internal: true})
		t.Bindings = append(t.Bindings, more...)
		return func(context.Context) (topology.Topology, error) { return t, nil }
	}
	const lost = "(neither a management API nor a preset shows an exchange that routes to this queue)"
	for name, tc := range map[string]struct {
		routing Routing
		from    store.Origin
		to      failed.Target
		warning string // suffix of the warning
	}{
		"no information":            {Routing{}, store.Origin{Queue: "one", FailedQueue: "parked", Exchange: "work", Key: "single"}, failed.Target{Exchange: "", RoutingKey: "one"}, lost},
		"published by name":         {Routing{}, store.Origin{Queue: "plain", FailedQueue: "plain.failed", Exchange: "", Key: "plain"}, failed.Target{Exchange: "", RoutingKey: "plain"}, ""},
		"published to failed queue": {Routing{}, store.Origin{Queue: "plain", FailedQueue: "plain.failed", Exchange: "", Key: "plain.failed"}, failed.Target{Exchange: "", RoutingKey: "plain"}, lost},
		"exchange of the design":    {known, store.Origin{Queue: "two", FailedQueue: "parked", Exchange: "parked", Key: "b"}, failed.Target{Exchange: "work", RoutingKey: "b"}, ""},
		"by name, unknown key":      {known, store.Origin{Queue: "two", FailedQueue: "parked", Exchange: "", Key: "two"}, failed.Target{Exchange: "", RoutingKey: "two"}, `(exchange “work” does not route the original key to “two”)`},
		"only key of the design":    {known, store.Origin{Queue: "one", FailedQueue: "parked", Exchange: "", Key: "one"}, failed.Target{Exchange: "work", RoutingKey: "single"}, ""},
		"redriven by name before":   {known, store.Origin{Queue: "one", FailedQueue: "parked", Exchange: "parked", Key: "one"}, failed.Target{Exchange: "work", RoutingKey: "single"}, ""},
		"key of another queue":      {known, store.Origin{Queue: "one", FailedQueue: "parked", Exchange: "parked", Key: "a"}, failed.Target{Exchange: "", RoutingKey: "one"}, `(exchange “work” does not route the original key to “one”)`},
		"worker without exchange":   {known, store.Origin{Queue: "plain", FailedQueue: "plain.failed", Exchange: "shop", Key: "x"}, failed.Target{Exchange: "", RoutingKey: "plain"}, ""},
		"only listed exchange": {
			Routing{Bindings: listed()}, store.Origin{Queue: "two", FailedQueue: "parked", Exchange: "parked", Key: "a"}, failed.Target{Exchange: "work", RoutingKey: "a"}, "",
		},
		"two listed exchanges": {
			Routing{Bindings: listed(topology.Binding{Exchange: "shop", Queue: "two", RoutingKey: "a"})},
			store.Origin{Queue: "two", FailedQueue: "parked", Exchange: "", Key: "a"},
			failed.Target{Exchange: "", RoutingKey: "two"},
			`(no exchange routes the original key only to “two”)`,
		},
		"original exchange of two listed exchanges": {
			Routing{Bindings: listed(topology.Binding{Exchange: "shop", Queue: "two", RoutingKey: "a"})}, store.Origin{Queue: "two", FailedQueue: "parked", Exchange: "shop", Key: "a"}, failed.Target{Exchange: "shop", RoutingKey: "a"}, "",
		},
		"original key with the name of the failed queue": {
			Routing{Bindings: listed(topology.Binding{Exchange: "shop", Queue: "two", RoutingKey: "parked"})}, store.Origin{Queue: "two", FailedQueue: "parked", Exchange: "shop", Key: "parked"}, failed.Target{Exchange: "shop", RoutingKey: "parked"}, "",
		},
		"internal exchange": {
			Routing{Bindings: listed(topology.Binding{Exchange: "inner", Queue: "plain", RoutingKey: "k"})},
			store.Origin{Queue: "plain", FailedQueue: "plain.failed", Exchange: "inner", Key: "k"},
			failed.Target{Exchange: "", RoutingKey: "plain"},
			`(exchange “inner” is internal)`,
		},
		"exchange of the design with another queue": {
			Routing{Workers: known.Workers, Bindings: listed(topology.Binding{Exchange: "work", Queue: "audit", RoutingKey: "single"})},
			store.Origin{Queue: "one", FailedQueue: "parked", Exchange: "parked", Key: "single"},
			failed.Target{Exchange: "", RoutingKey: "one"},
			`(exchange “work” also routes the original key to “audit”)`,
		},
		"unreadable bindings": {
			Routing{Bindings: func(context.Context) (topology.Topology, error) { return topology.Topology{}, errors.New("refused") }},
			store.Origin{Queue: "one", FailedQueue: "parked", Exchange: "work", Key: "single"},
			failed.Target{Exchange: "", RoutingKey: "one"},
			"(cannot read the bindings: refused)",
		},
		"design with unreadable bindings": {
			Routing{Workers: known.Workers, Bindings: func(context.Context) (topology.Topology, error) { return topology.Topology{}, errors.New("refused") }},
			store.Origin{Queue: "one", FailedQueue: "parked", Exchange: "work", Key: "single"},
			failed.Target{Exchange: "work", RoutingKey: "single"},
			"",
		},
	} {
		got, err := newRouter(tc.routing, slog.New(slog.DiscardHandler)).of(t.Context(), tc.from)
		archivetest.Must(t, err)
		isRefused := got.Warning != "" && got.Route != RouteAssumed
		if (got.Route == RouteByName) != isRefused || (got.check(false) != nil) != isRefused || got.check(true) != nil || name == "published to failed queue" && isRefused {
			t.Errorf("%s: got route %q with warning %q", name, got.Route, got.Warning)
		}
		if got.Target != tc.to || got.Queue != tc.from.Queue || !strings.HasSuffix(got.Warning, tc.warning) || (got.Warning == "") != (tc.warning == "") {
			t.Errorf("%s: got %+v, want %+v with warning %q", name, got, tc.to, tc.warning)
		}
	}
}

// A queue that the operator sets is a target by name, unless its messages are known to arrive through an exchange.
func TestRoutingToGivenQueue(t *testing.T) {
	known := Routing{Workers: []reprise.WorkerConfig{{Queue: preset.CoverArtIndexQueue, Strategy: preset.CoverArt{}.Strategy()}, {Queue: "plain"}}}
	bound := Routing{Bindings: func(context.Context) (topology.Topology, error) {
		return topology.Topology{
			Exchanges: []topology.Exchange{{Name: "shop", Kind: topology.Direct}},
			Bindings:  []topology.Binding{{Exchange: "shop", Queue: "orders", RoutingKey: "order.new"}},
		}, nil
	}}
	for name, tc := range map[string]struct {
		routing Routing
		from    store.Origin
		queue   string
		to      failed.Target
		route   string
	}{
		"design, original key":      {known, store.Origin{Queue: preset.CoverArtIndexQueue, FailedQueue: "parked", Exchange: "parked", Key: "index"}, preset.CoverArtIndexQueue, failed.Target{Exchange: "cover-art-archive", RoutingKey: "index"}, RouteLearnt + "the design of the worker"},
		"design, key of no binding": {known, store.Origin{Queue: "other", FailedQueue: "other.failed", Exchange: "shop", Key: "new"}, preset.CoverArtIndexQueue, failed.Target{Exchange: "", RoutingKey: preset.CoverArtIndexQueue}, RouteByName},
		"design, no key":            {known, store.Origin{Queue: "other", FailedQueue: "other.failed", Exchange: "", Key: "other"}, preset.CoverArtIndexQueue, failed.Target{Exchange: "cover-art-archive", RoutingKey: "index"}, RouteLearnt + "the only key of the design"},
		"own queue, unknown worker": {Routing{}, store.Origin{Queue: "orders", FailedQueue: "orders.failed", Exchange: "shop", Key: "order.new"}, "orders", failed.Target{Exchange: "", RoutingKey: "orders"}, RouteByName},
		"own queue, by name":        {Routing{}, store.Origin{Queue: "orders", FailedQueue: "orders.failed", Exchange: "", Key: "orders"}, "orders", failed.Target{Exchange: "", RoutingKey: "orders"}, RouteGiven},
		"queue without exchange":    {Routing{}, store.Origin{Queue: "orders", FailedQueue: "orders.failed", Exchange: "shop", Key: "order.new"}, "by-hand", failed.Target{Exchange: "", RoutingKey: "by-hand"}, RouteGiven},
		"known worker":              {known, store.Origin{Queue: "plain", FailedQueue: "plain.failed", Exchange: "shop", Key: "order.new"}, "plain", failed.Target{Exchange: "", RoutingKey: "plain"}, RouteLearnt + "the worker, whose retries return by queue name"},
		"binding with the key":      {bound, store.Origin{Queue: "other", FailedQueue: "other.failed", Exchange: "shop", Key: "order.new"}, "orders", failed.Target{Exchange: "shop", RoutingKey: "order.new"}, RouteOriginal},
		"binding with another key":  {bound, store.Origin{Queue: "other", FailedQueue: "other.failed", Exchange: "shop", Key: "order.late"}, "orders", failed.Target{Exchange: "", RoutingKey: "orders"}, RouteByName},
	} {
		got, err := newRouter(tc.routing, slog.New(slog.DiscardHandler)).to(t.Context(), tc.from, &failed.Target{Exchange: "", RoutingKey: tc.queue})
		archivetest.Must(t, err)
		if got.Target != tc.to || got.Route != tc.route || got.Queue != tc.queue {
			t.Errorf("%s: got %+v, want %+v, %s", name, got, tc.to, tc.route)
		}
	}
}

// If a program has removed x-death from its copy, x-first-death-exchange contains the original exchange.
func TestRouteLearntFromFirstDeath(t *testing.T) {
	m := &reprise.Delivery{Message: reprise.Message{RoutingKey: "order.new", Headers: map[string]any{"x-first-death-exchange": "shop", "x-first-death-queue": "orders"}}, Queue: "orders.failed"}
	if got := failed.Take(m, nil); got.Exchange != "shop" || got.RoutingKey != "order.new" || got.Queue != "orders" {
		t.Errorf("got exchange %q, key %q, queue %q, want shop, order.new, orders", got.Exchange, got.RoutingKey, got.Queue)
	}
}
