package doctor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/design"
	"github.com/reprisemq/reprise/internal/doctor"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/topology"
)

// roles are the queues of a program by their purpose.
type roles struct {
	topology.Topology
	work []string // has consumers, or a program that polls
	dead []string // final dead-letter queues
}

func declared(name string, args ...any) topology.Queue {
	q := topology.Queue{Name: name, Args: topology.Table{}}
	for i := 0; i < len(args); i += 2 {
		q.Args["x-"+args[i].(string)] = args[i+1]
	}
	return q
}

// dlx are the arguments that dead-letter to a queue through the default exchange.
func dlx(queue string, more ...any) []any {
	return append([]any{"dead-letter-exchange", "", "dead-letter-routing-key", queue}, more...)
}

const ttl = int64(60_000)

func queues(all ...topology.Queue) topology.Topology { return topology.Topology{Queues: all} }

// bound returns a queue with an exchange of the given name.
func bound(exchange, kind, key string, q topology.Queue) topology.Topology {
	return topology.Topology{
		Queues: []topology.Queue{q}, Exchanges: []topology.Exchange{{Name: exchange, Kind: kind}},
		Bindings: []topology.Binding{{Exchange: exchange, RoutingKey: key, Queue: q.Name}},
	}
}

// frameworkQueues are the queues that frameworks declare by default.
func frameworkQueues() map[string]roles {
	reprises := func(workers ...reprise.WorkerConfig) roles {
		r := roles{dead: design.FailedQueues(workers)}
		for _, t := range design.Topologies(workers) {
			r.Topology = r.Merge(t)
		}
		for _, w := range workers {
			r.work = append(r.work, w.Queue)
		}
		r.Topology = r.Merge(queues(declared("orders.wait.0-1000", dlx("orders", "message-ttl", ttl)...)))
		return r
	}
	return map[string]roles{
		"reprise":    reprises(reprise.WorkerConfig{Queue: "orders"}),
		"cover art":  {preset.CoverArt{}.Topology(), []string{preset.CoverArtIndexQueue, preset.CoverArtDeleteQueue, preset.CoverArtMoveQueue}, []string{"cover-art-archive.failed"}},
		"staking":    {preset.Staking{Queues: []string{"active_staking_queue", "btc_info_queue"}}.Topology(), []string{"active_staking_queue", "btc_info_queue"}, []string{"active_staking_queue_failed", "btc_info_queue_failed"}},
		"work/retry": {preset.WorkRetry{}.Topology(), []string{"WorkQueue"}, []string{"WorkQueue.failed"}},
		"CDN purge":  {preset.CDNPurge{}.Topology(), []string{"cdn-purge"}, []string{"cdn-purge.failed"}},
		"CDN names": {
			bound("primary-exchange", topology.Direct, "routing-key-a", declared("primary-queue")).
				Merge(bound("wait-exchange", topology.Direct, "routing-key-a", declared("wait-queue", "dead-letter-exchange", "primary-exchange"))), []string{"primary-queue"}, nil,
		},
		"NServiceBus": {
			bound("billing", topology.Fanout, "", declared("billing")).Merge(bound("error", topology.Fanout, "", declared("error")),
				bound("nsb.v2.delay-level-00", topology.Topic, "1.#", declared("nsb.v2.delay-level-00", "message-ttl", ttl, "dead-letter-exchange", "nsb.v2.delay-delivery")),
				topology.Topology{
					Exchanges: []topology.Exchange{{Name: "nsb.v2.delay-delivery", Kind: topology.Topic}},
					Bindings:  []topology.Binding{{Exchange: "nsb.v2.delay-delivery", RoutingKey: "#.billing", ToExchange: "billing"}},
				}),
			[]string{"billing"},
			[]string{"error"},
		},
		"MassTransit": {
			bound("charges", topology.Fanout, "", declared("charges")).Merge(bound("charges_error", topology.Fanout, "", declared("charges_error")), bound("charges_skipped", topology.Fanout, "", declared("charges_skipped"))),
			[]string{"charges"},
			[]string{"charges_error", "charges_skipped"},
		},
		"EasyNetQ":  {bound("ErrorExchange_a", topology.Direct, "a", declared("EasyNetQ_Default_Error_Queue")).Merge(queues(declared("enq"))), []string{"enq"}, []string{"EasyNetQ_Default_Error_Queue"}},
		"Wolverine": {queues(declared("wv", dlx("wolverine-dead-letter-queue")...), declared("wolverine-dead-letter-queue")), []string{"wv"}, []string{"wolverine-dead-letter-queue"}},
		"dramatiq": {
			queues(declared("drama", dlx("drama.XQ")...), declared("drama.DQ", dlx("drama.XQ")...), declared("drama.XQ", "message-ttl", 7*24*60*ttl)),
			[]string{"drama", "drama.DQ"},
			[]string{"drama.XQ"},
		},
		"Celery": {
			queues(declared("celery_delayed_1", "message-ttl", ttl, "dead-letter-exchange", "celery_delayed_delivery")).Merge(bound("celery_delayed_delivery", topology.Topic, "#.celery", declared("celery", "queue-type", "quorum"))),
			[]string{"celery"},
			nil,
		},
		"Symfony": {
			bound("messages", topology.Fanout, "", declared("messages")).Merge(bound("messages_failed", topology.Fanout, "", declared("messages_failed")),
				bound("delays", topology.Direct, "d", declared("delay_messages__5000_delay", "message-ttl", int64(5000), "expires", int64(15000), "dead-letter-exchange", "messages"))),
			[]string{"messages"},
			[]string{"messages_failed"},
		},
		"Spring binder": {
			bound("shop", topology.Topic, "#", declared("shop.billing", "dead-letter-exchange", "DLX", "dead-letter-routing-key", "shop.billing")).
				Merge(bound("DLX", topology.Direct, "shop.billing", declared("shop.billing.dlq"))), []string{"shop.billing"}, []string{"shop.billing.dlq"},
		},
		"Spring retry": {
			bound("spring-retry", topology.Direct, "invoices", declared("invoices", "dead-letter-exchange", "spring-retry", "dead-letter-routing-key", "invoices.retry")).
				Merge(bound("spring-retry", topology.Direct, "invoices.retry", declared("invoices.retry", dlx("invoices", "message-ttl", ttl)...)), queues(declared("invoices.dlq"))),
			[]string{"invoices"},
			[]string{"invoices.dlq"},
		},
		"plain": {
			queues(declared("parcels", "dead-letter-exchange", "lost")).Merge(bound("lost", topology.Fanout, "", declared("lost-parcels"))), []string{"parcels"}, []string{"lost-parcels"},
		},
		"business events": {
			queues(declared("payment")).Merge(bound("payments", topology.Topic, "payment.rejected", declared("payment.rejected"))), []string{"payment", "payment.rejected"}, nil,
		},
		"errors of another program": {queues(declared("import"), declared("import_error")), []string{"import", "import_error"}, nil},
		"spillover": {
			queues(declared("clicks", "max-length", int64(1000), "dead-letter-exchange", "spill")).Merge(bound("spill", topology.Fanout, "", declared("clicks-nightly"))), []string{"clicks", "clicks-nightly"}, nil,
		},
		"wait without TTL":   {queues(declared("errors-of-users"), declared("u1", dlx("errors-of-users")...)), []string{"errors-of-users"}, nil},
		"wait with its name": {queues(declared("dead-accounts"), declared("dead-accounts.2", dlx("dead-accounts")...)), []string{"dead-accounts"}, nil},
	}
}

// brokerOf returns a broker with the queues of a topology.
func brokerOf(t topology.Topology) *doctor.Broker {
	b := &doctor.Broker{}
	for _, q := range t.Queues {
		kind, _ := q.Args["x-queue-type"].(string)
		if kind == "" {
			kind = "classic"
		}
		b.Queues = append(b.Queues, doctor.Queue{Name: q.Name, VHost: "/", Kind: kind, Durable: true, AutoDelete: q.AutoDelete, Args: q.Args, Counted: true})
	}
	for _, x := range t.Exchanges {
		b.Exchanges = append(b.Exchanges, doctor.Exchange{Name: x.Name, VHost: "/", Kind: x.Kind})
	}
	for _, e := range t.Bindings {
		one := doctor.Binding{VHost: "/", Source: e.Exchange, Destination: e.Queue, Kind: "queue", Key: e.RoutingKey}
		if e.ToExchange != "" {
			one.Destination, one.Kind = e.ToExchange, "exchange"
		}
		b.Bindings = append(b.Bindings, one)
	}
	return b
}

func never(string) bool { return false }

// indicated reports whether more than the name indicates a dead-letter queue.
func indicated(v doctor.Verdict) bool {
	return v.Candidate && !strings.HasPrefix(v.Why, "only its name")
}

// While the programs run, all their final dead-letter queues are found, and no other queue.
func TestDeadLetterQueuesFindsFrameworks(t *testing.T) {
	for name, r := range frameworkQueues() {
		b := brokerOf(r.Topology)
		for i := range b.Queues {
			if q := &b.Queues[i]; slices.Contains(r.work, q.Name) {
				q.Consumers, q.Taken = 2, 100
			}
		}
		var taken, why []string
		for _, v := range b.DeadLetterQueues(never) {
			if indicated(v) {
				taken = append(taken, v.Queue)
			}
			why = append(why, fmt.Sprintf("%s: %v, %s", v.Queue, v.Candidate, v.Why))
		}
		slices.Sort(taken)
		slices.Sort(r.dead)
		if !slices.Equal(taken, r.dead) {
			t.Errorf("%s: took %q, want %q:\n%s", name, taken, r.dead, strings.Join(why, "\n"))
		}
	}
}

// In no state of any programs, also if all of them are stopped, is a work queue or a wait queue taken, or a queue that has consumers,
// or that others read without a consumer.
func TestDeadLetterQueuesNeverTakesOthers(t *testing.T) {
	all := frameworkQueues()
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		var mixed topology.Topology
		var dead, work []string
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 4, rapid.ID[string]).Draw(t, "programs") {
			mixed, dead, work = mixed.Merge(all[name].Topology), append(dead, all[name].dead...), append(work, all[name].work...)
		}
		b := brokerOf(mixed)
		for i := range b.Queues {
			q := &b.Queues[i]
			if slices.Contains(work, q.Name) || slices.Contains(dead, q.Name) {
				q.Consumers = rapid.Int64Range(0, 1).Draw(t, "consumers of "+q.Name)
			}
			q.Taken = rapid.SampledFrom([]int64{0, 5}).Draw(t, "taken from "+q.Name)
			q.Counted = rapid.IntRange(0, 9).Draw(t, "counted") > 0
			q.Exclusive = rapid.IntRange(0, 19).Draw(t, "exclusive") == 0
			if rapid.IntRange(0, 19).Draw(t, "stream") == 0 {
				q.Kind = "stream"
			}
			if rapid.IntRange(0, 9).Draw(t, "policy") == 0 {
				q.Policy = map[string]any{"dead-letter-exchange": ""}
			}
		}
		for _, v := range b.DeadLetterQueues(never) {
			q := b.Queues[slices.IndexFunc(b.Queues, func(q doctor.Queue) bool { return q.Name == v.Queue })]
			if !indicated(v) {
				continue
			}
			taken++
			if !slices.Contains(dead, v.Queue) || q.Consumers > 0 || !q.Counted || q.Exclusive || q.Kind == "stream" || q.Policy != nil || v.Why == "" {
				t.Fatalf("%s is a candidate: %s", v.Queue, v.Why)
			}
		}
	})
	if taken == 0 {
		t.Error("no queue was taken")
	}
}

// Empty follows the queues from which messages return.
func TestEmptyIncludesDelays(t *testing.T) {
	for full, want := range map[string]bool{"": true, "invoices": false, "invoices.retry": false, "nsb.v2.delay-level-00": false, "messages": true, "missing": true} {
		var all topology.Topology
		for _, r := range frameworkQueues() {
			all = all.Merge(r.Topology)
		}
		b := brokerOf(all)
		for i := range b.Queues {
			if b.Queues[i].Name == full {
				b.Queues[i].Messages = 1
			}
		}
		b.DeadLetterQueues(never)
		if got := b.Empty("invoices"); got != want {
			t.Errorf("with a message in %q: got %t, want %t", full, got, want)
		}
		if b.Empty("missing") {
			t.Error("a missing queue is empty")
		}
	}
}

// After the broker has started, it does not know who took messages, and consumers may be missing for a while.
func TestDeadLetterQueuesAfterStart(t *testing.T) {
	for name, r := range frameworkQueues() {
		b := brokerOf(r.Topology)
		for i := range b.Queues {
			if slices.Contains(r.work[:min(1, len(r.work))], b.Queues[i].Name) {
				b.Queues[i].Consumers = 1
			}
		}
		for _, v := range b.DeadLetterQueues(never) {
			if indicated(v) && !slices.Contains(r.dead, v.Queue) {
				t.Errorf("%s: took %s: %s", name, v.Queue, v.Why)
			}
		}
	}
}
