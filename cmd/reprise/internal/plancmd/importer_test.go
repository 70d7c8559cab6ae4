package plancmd

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/internal/archive/design"
	"github.com/reprisemq/reprise/internal/doctor"
	"github.com/reprisemq/reprise/internal/drift"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// imported imports a virtual host, and compares the file with it.
func imported(t interface {
	Helper()
	Fatalf(string, ...any)
}, b *doctor.Broker, vhost string, only ...string,
) (text string, p *drift.Plan) {
	t.Helper()
	m := newImporter(b, vhost, brokerURL("amqp", "localhost", vhost))
	if err := m.run(only); err != nil {
		t.Fatalf("%v", err)
	}
	text = m.text()
	cfg, err := config.Parse("reprise.yaml", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return text, drift.Compare(cfg.WorkerConfigs(), b, vhost)
}

func strategy(s topology.Strategy, queues ...string) (t topology.Topology) {
	var all []reprise.WorkerConfig
	for _, queue := range queues {
		all = append(all, reprise.WorkerConfig{Queue: queue, Strategy: s})
	}
	return topology.Topology{}.Merge(design.Topologies(all)...)
}

func route(r topology.Route, queue string) topology.Topology {
	return strategy(topology.Strategy{Route: r}, queue)
}

func queue(name string, args topology.Table) topology.Queue {
	return topology.Queue{Name: name, Args: args}
}

func bound(exchange, key, queue string) topology.Binding {
	return topology.Binding{Exchange: exchange, RoutingKey: key, Queue: queue}
}

// back returns the arguments of a wait queue that returns messages through the default exchange.
func back(queue string, ttl int) topology.Table {
	return topology.Table{"x-message-ttl": ttl, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
}

var (
	shop    = topology.Exchange{Name: "shop", Kind: topology.Topic}
	retries = topology.Exchange{Name: "retries", Kind: topology.Direct}
	headers = topology.Exchange{Name: "by-headers", Kind: topology.Headers}
)

// deployments are topologies, with a part of the file that import must write, and the objects that apply adds.
var deployments = map[string]struct {
	declared topology.Topology
	want     []string
	adds     []string
}{
	"cover-art": {
		strategy(preset.CoverArt{RetryDelay: time.Hour}.Strategy(), preset.CoverArtIndexQueue),
		[]string{"preset: cover-art\n    retry_delay: 1h\n    queues:\n      delete: {exec: [YOUR-HANDLER]}\n      index: {exec: [YOUR-HANDLER]}"},
		nil,
	},
	"cover-art with quorum queues": {
		strategy(preset.CoverArt{QueueType: "quorum"}.Strategy(), preset.CoverArtIndexQueue), []string{"preset: cover-art\n    queue_type: quorum"}, nil,
	},
	"staking": {
		preset.Staking{}.Topology(), []string{"preset: staking\n    queues:\n      active_staking_queue:", "      btc_info_queue:"}, nil,
	},
	"staking with settings": {
		preset.Staking{QueueType: "classic", DelayTTL: 9 * time.Second, Queues: []string{"a", "b"}}.Topology(),
		[]string{"delay_ttl: 9s\n    queue_type: classic\n    queues:\n      a: {exec: [YOUR-HANDLER]}\n      b:"},
		nil,
	},
	"staking with two types": {
		preset.Staking{QueueType: "classic", Queues: []string{"a", "c"}}.Topology().Merge(topology.Topology{Queues: preset.Staking{Queues: []string{"b"}}.Topology().Queues, Bindings: preset.Staking{Queues: []string{"b"}}.Topology().Bindings}),
		[]string{"      a: {exec: [YOUR-HANDLER]}\n      c:", "    queues:\n      b: {exec"},
		nil,
	},
	"work-retry": {
		preset.WorkRetry{Kind: topology.Topic, Key: "a.*", Prefix: "billing.", RetryDelay: time.Minute}.Topology(),
		[]string{`preset: work-retry`, `retry_delay: 1m`, `kind: topic`, `key: "a.*"`, `prefix: "billing."`},
		nil,
	},
	"work-retry as published": {
		topology.Topology{
			Exchanges: []topology.Exchange{{Name: "WorkExchange", Kind: topology.Direct}, {Name: "RetryExchange", Kind: topology.Direct}},
			Queues: []topology.Queue{
				queue("WorkQueue", topology.Table{"x-dead-letter-exchange": "RetryExchange"}),
				queue("RetryQueue", topology.Table{"x-dead-letter-exchange": "WorkExchange", "x-message-ttl": 300000}),
			},
			Bindings: []topology.Binding{bound("WorkExchange", "", "WorkQueue"), bound("RetryExchange", "", "RetryQueue")},
		},
		[]string{"preset: work-retry\n    queues:\n      WorkQueue:", "create queue WorkQueue.failed: run reprise topology apply"},
		[]string{"queue WorkQueue.failed", "binding WorkExchange → WorkQueue, key WorkQueue", "binding RetryExchange → RetryQueue, key WorkQueue"},
	},
	"cdn-purge": {
		preset.CDNPurge{Kind: topology.Topic, WaitKind: topology.Fanout, WaitArgs: topology.Table{"x-max-priority": 3}}.Topology(),
		[]string{"preset: cdn-purge", "wait_kind: fanout", "wait_args: {x-max-priority: 3}"},
		nil,
	},
	"cdn-purge as published": {preset.CDNPurgePublished().Topology(), []string{"wait_queue: wait-queue", "routing_keys: [routing-key-a, routing-key-b]"}, nil},
	"wait exchange, with a constant delay": {
		topology.Topology{
			Exchanges: []topology.Exchange{shop, retries},
			Queues: []topology.Queue{
				queue("mails", topology.Table{"x-dead-letter-exchange": "retries"}),
				queue("mails.later", topology.Table{"x-dead-letter-exchange": "shop", "x-message-ttl": 5000}),
			},
			Bindings: []topology.Binding{bound("shop", "mail", "mails"), bound("retries", "mail", "mails.later")},
		},
		[]string{"preset: cdn-purge", "first: 5s\n    factor: 1", "mails: {exec: [YOUR-HANDLER]}"},
		[]string{"queue mails.failed"},
	},
	"wait queue and failed queue": {
		topology.Topology{
			Exchanges: []topology.Exchange{shop, headers},
			Queues: []topology.Queue{
				queue("orders", topology.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.retry"}),
				queue("orders.retry", back("orders", 30000)), queue("orders-dlq", nil), queue("unrelated", nil),
			},
			Bindings: []topology.Binding{
				bound("shop", "order.*", "orders"), bound("amq.direct", "order", "orders"),
				{Exchange: "by-headers", Queue: "orders", Args: topology.Table{"x-match": "all", "kind": "order"}},
			},
		},
		[]string{
			"exchanges:\n  shop: topic\nworkers:", "backoff: {fixed: 30s}", "failed_queue: orders-dlq", `{exchange: amq.direct, key: order}`, `{exchange: shop, key: "order.*"}`,
			"# - binding by-headers → orders, arguments {\"kind\":\"order\",\"x-match\":\"all\"}: bindings of a file have no arguments",
			"# - queue “unrelated”: no retry design (--queue NAME imports it)",
		},
		nil,
	},
	"several wait queues": {
		topology.Topology{Queues: []topology.Queue{
			queue("jobs", nil), queue("jobs.failed", topology.Table{"x-max-length": 7}),
			queue("jobs.wait-a", back("jobs", 60000)), queue("jobs.wait-b", back("jobs", 5000)), queue("jobs.wait-c", back("jobs", 3600000)),
		}},
		[]string{"backoff: {list: [5s, 1m, 1h]}", "failed_queue: jobs.failed"},
		nil,
	},
	"work queue with a TTL and a dead-letter queue": { // the dead-letter queue sorts before the work queue
		topology.Topology{
			Exchanges: []topology.Exchange{{Name: "dlx", Kind: topology.Direct}, shop},
			Queues:    []topology.Queue{queue("tasks", topology.Table{"x-message-ttl": 86400000, "x-dead-letter-exchange": "dlx"}), queue("dead-tasks", nil)},
			Bindings:  []topology.Binding{bound("dlx", "task", "dead-tasks"), bound("shop", "task", "tasks")},
		},
		[]string{"- queue: tasks\n    exec: [YOUR-HANDLER]\n    failed_queue: dead-tasks\n    bind:\n      - {exchange: shop, key: task}\n"},
		nil,
	},
	"dead letters with the keys of publication": {
		topology.Topology{
			Exchanges: []topology.Exchange{{Name: "dlx", Kind: topology.Direct}, {Name: "in", Kind: topology.Direct}},
			Queues:    []topology.Queue{queue("pay", topology.Table{"x-dead-letter-exchange": "dlx"}), queue("pay.dlq", nil)},
			Bindings:  []topology.Binding{bound("in", "k", "pay"), bound("dlx", "k", "pay.dlq")},
		},
		[]string{"exchanges:\n  in: direct\nworkers:\n  - queue: pay\n", "failed_queue: pay.dlq"},
		nil,
	},
	"no failed queue": {
		topology.Topology{Queues: []topology.Queue{
			queue("q", topology.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q.delay"}), queue("q.delay", back("q", 1000)),
		}},
		[]string{"- queue: q\n", "create queue q.failed: run reprise topology apply"},
		[]string{"queue q.failed"},
	},
	"buckets":     {route(topology.Buckets{}, "one").Merge(topology.Topology{Queues: []topology.Queue{queue("one.wait.1000-1250", nil)}}), []string{"- queue: one\n    exec: [YOUR-HANDLER]\n"}, nil},
	"dead-letter": {route(topology.DeadLettering{Delay: 90 * time.Second}, "one"), []string{"route: {dead-letter: {delay: 1m30s}}"}, nil},
	"requeue":     {route(topology.Requeuing{}, "one"), []string{"route: requeue"}, nil},
	"parks elsewhere": {
		route(topology.ParkIn{Queue: "all.failed"}, "one").Merge(route(topology.ParkIn{Queue: "all.failed"}, "two")),
		[]string{"- queue: one\n    exec: [YOUR-HANDLER]\n    failed_queue: all.failed\n", "- queue: two\n"},
		nil,
	},
}

// Import of a deployment writes its design, and plan has no difference except the objects that Reprise adds to the design. After a
// queue was removed, plan names it.
func TestImportOfDeployments(t *testing.T) {
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, url string) {
		vhost, client := testkit.Name(t, "import"), testkit.HTTPClient(t)
		request := func(method, path string) {
			t.Helper()
			r, err := http.NewRequest(method, url+"/api/"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.SetBasicAuth("guest", "guest")
			answer, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			if text, _ := io.ReadAll(answer.Body); answer.StatusCode/100 != 2 {
				t.Fatalf("%s %s: %s %s", method, path, answer.Status, text)
			}
		}
		state := func(t *testing.T) *doctor.Broker {
			t.Helper()
			s, err := doctor.Read(t.Context(), mgmtapi.API{URL: url, User: "guest", Password: "guest", Client: client}, vhost)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		for name, tc := range deployments {
			t.Run(name, func(t *testing.T) {
				request("PUT", "vhosts/"+vhost)
				defer request("DELETE", "vhosts/"+vhost)
				connection, err := reprise.Dial(t.Context(), strings.TrimSuffix(b.URL, "/")+"/"+vhost, &reprise.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer connection.Close(t.Context())
				if err := connection.Declare(t.Context(), tc.declared); err != nil {
					t.Fatal(err)
				}
				text, p := imported(t, state(t), vhost)
				for _, part := range tc.want {
					if !strings.Contains(text, part) {
						t.Errorf("got, without %q:\n%s", part, text)
					}
				}
				if got := planned(p); !slices.Equal(got, tc.adds) {
					t.Errorf("plan of the imported file: got %q, want %q\n%s", got, tc.adds, text)
				}
			})
		}
	})
}

// planned returns the objects that differ.
func planned(p *drift.Plan) (all []string) {
	for _, o := range p.Objects {
		if o.Status != drift.Exists && o.Status != drift.Extra {
			all = append(all, o.String())
		}
	}
	return all
}

// Names of queues, exchanges, keys and virtual hosts are arbitrary. The file is valid, and a name in it or in a comment cannot
// change its meaning.
func TestImportOfAnyName(t *testing.T) {
	odd := rapid.OneOf(
		rapid.SampledFrom([]string{
			"true", "No", "~", "1e3", "0x10", "007", "- a", "a: b", "a #b", "*x", "&x", "!x", "{a", "[b", "'", `"`, `\`, "a\nworkers: []", "x\r", "\u2028x", "\u0085",
			"\x00", "$(touch x)", "${HOME}", "`x`", " x ", "\ufeffx", "\u202eabc", "é", "日本", "😀", "x:", "%", "@", "null", "2026-11-29", "\u007f", "a\tb", "?", "-", "=", "<<",
		}),
		rapid.String(),
	)
	rapid.Check(t, func(r *rapid.T) {
		name := odd.Draw(r, "queue")
		exchange, key, vhost := odd.Draw(r, "exchange"), odd.Draw(r, "key"), odd.Draw(r, "vhost")
		object := func(v any) json.RawMessage { text, _ := json.Marshal(v); return text }
		definitions := object(map[string]any{
			"queues": []any{
				map[string]any{"name": name, "vhost": vhost, "durable": true, "arguments": map[string]any{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name + ".r"}},
				map[string]any{"name": name + ".r", "vhost": vhost, "durable": true, "arguments": map[string]any{"x-message-ttl": 1500, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": name}},
				map[string]any{"name": "sure", "vhost": vhost, "durable": true, "arguments": map[string]any{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "sure.dlq"}},
				map[string]any{"name": "sure.dlq", "vhost": vhost, "durable": true},
				map[string]any{"name": name + ".dlq", "vhost": vhost, "durable": true},
			},
			"exchanges": []any{map[string]any{"name": exchange, "vhost": vhost, "type": "topic", "durable": true}},
			"bindings":  []any{map[string]any{"vhost": vhost, "source": exchange, "destination": name, "destination_type": "queue", "routing_key": key}},
		})
		b, err := doctor.Parse(definitions, vhost)
		if err != nil {
			r.Fatal(err)
		}
		own := vhost
		if own == "" {
			own = "/"
		}
		text, p := imported(r, b, own, "sure", name)
		if got := planned(p); slices.ContainsFunc(got, func(s string) bool { return !strings.HasPrefix(s, "queue ") || !strings.Contains(s, ".failed") }) {
			r.Fatalf("plan of the imported file: got %q, want only failed queues\n%s", got, text)
		}
		for line := range strings.SplitSeq(text[:strings.Index(text, "\nbroker: ")], "\n") {
			if !strings.HasPrefix(line, "# ") {
				r.Fatalf("comment: got line %q\n%s", line, text)
			}
		}
	})
}
