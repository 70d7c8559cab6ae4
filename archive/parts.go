package archive

import (
	"slices"
	"strings"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/console"
	"github.com/reprisemq/reprise/internal/archive/design"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/notification"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/graph"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/topology"
)

// queues returns the failed queues that the configuration names.
func (c Config) queues() []string {
	var all []string
	for _, q := range append(design.FailedQueues(c.Workers), c.Queues...) {
		if !slices.Contains(all, q) {
			all = append(all, q)
		}
	}
	return all
}

func (c Config) store() store.Config {
	s := store.Config{Dialect: c.Dialect.kit(), Retention: c.Keep, Logger: c.Logger}
	for _, f := range c.Redact {
		s.Redact = append(s.Redact, failed.Rule(f))
	}
	for _, f := range c.Columns {
		s.Columns = append(s.Columns, failed.Rule(f))
	}
	for _, g := range c.Groups {
		s.Groups = append(s.Groups, store.GroupRule(g))
	}
	for queue, keep := range c.KeepByQueue {
		s.Rules = append(s.Rules, store.RetentionRule{Queue: queue, Retention: keep})
	}
	return s
}

// known returns the workers, or without any the workers of published designs.
func (c Config) known() []reprise.WorkerConfig {
	if len(c.Workers) == 0 {
		return design.Published()
	}
	return c.Workers
}

func (c Config) origin() func(*reprise.Delivery) string {
	if len(c.Workers) == 0 {
		return design.PublishedOrigin()
	}
	return design.Origin(c.Workers)
}

// routing returns the known routes to the work queues.
func (c Config) routing() replay.Routing {
	r := replay.Routing{Workers: c.known()}
	if c.Management != nil {
		r.Bindings = c.api().Topology
	}
	return r
}

func (c Config) replays() replay.Config {
	return replay.Config{Routing: c.routing(), Marks: design.Marks(c.Workers), Logger: c.Logger}
}

// console returns the configuration of a console, without the archive and the parts that run.
func (c Config) console(tokens []console.Token) console.Config {
	return console.Config{
		Management: (*mgmtapi.API)(c.Management), Routing: c.routing(), Topology: design.Topologies(c.Workers),
		Tokens: tokens, Secure: c.Console.Secure, Prefix: c.Console.Prefix, TraceURL: c.Console.TraceURL, Outbox: c.Outbox, Logger: c.Logger,
	}
}

func (c Config) notifications() notification.Config {
	n := c.Notify
	return notification.Config{
		DB: c.DB, Dialect: c.Dialect.kit(), Webhooks: n.webhooks(), Console: c.Console.URL,
		Gather: n.Gather, Cooldown: n.Cooldown, Growth: n.Growth, Sent: n.Sent, Logger: c.Logger,
	}
}

func (c Config) api() mgmtapi.API { return mgmtapi.API(*c.Management) }

// accounts returns the accounts of workers. Workers that share queues have one account.
func accounts(workers []reprise.WorkerConfig) []ledger.Account {
	var all []ledger.Account
	for _, w := range workers {
		if w.OrderBy != nil || w.Lanes > 0 {
			continue // the work queue does not exist
		}
		a := ledger.Account{Work: []string{w.Queue}, Failed: design.FailedQueues([]reprise.WorkerConfig{w})}
		for _, n := range graph.New([]graph.Worker{graph.Of(w)}).Nodes {
			if n.Kind == graph.Wait && !strings.HasSuffix(n.Name, ".wait.*") {
				a.Wait = append(a.Wait, n.Name)
			}
		}
		all = append(all, a)
	}
	return ledger.Join(all)
}

// accountsOf returns the accounts of failed queues whose workers are unknown.
func accountsOf(failedQueues []string) (all []ledger.Account) {
	for _, q := range failedQueues {
		if work, found := strings.CutSuffix(q, topology.FailedQueue("")); found && work != "" {
			all = append(all, ledger.Account{Work: []string{work}})
		}
	}
	return all
}
