package upcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/topology"
)

// destination is a place to which a part of the configuration publishes.
type destination struct {
	of            string // the part
	exchange, key string // the key is the queue, if there is no exchange
	effect        string // of a missing destination
}

func (d destination) name() string {
	if d.exchange != "" {
		return "exchange " + brief.Quoted(d.exchange)
	}
	return "queue " + brief.Quoted(d.key)
}

const waits = "its messages wait in the outbox"

// foreign returns the destinations of a configuration that it does not declare.
func foreign(cfg *config.Config) (all []destination) {
	for _, e := range cfg.Cron {
		all = append(all, destination{"entry " + e.Name + " of cron", e.Message.Exchange, e.Message.RoutingKey, waits})
	}
	if cfg.Outbox != nil {
		for _, t := range cfg.Outbox.Tables {
			m := t.Message
			if m.Exchange == "" && (m.RoutingKey == "" || t.ExchangeColumn != "") {
				continue // in the rows
			}
			all = append(all, destination{"table " + t.Name + " of outbox", m.Exchange, m.RoutingKey, waits})
		}
	}
	if cfg.Schedule != nil {
		for _, exchange := range cfg.Schedule.Destinations {
			if exchange != "" {
				all = append(all, destination{"schedule", exchange, "", waits})
			}
		}
	}
	for _, w := range cfg.Workers {
		if r := w.Results; r != nil && !r.ReplyTo {
			all = append(all, destination{"results of queue " + w.Queue, r.Exchange, r.Key, "the worker pauses"})
		}
	}
	own := declared(cfg)
	return slices.DeleteFunc(all, func(d destination) bool {
		if d.exchange != "" {
			return strings.HasPrefix(d.exchange, "amq.") || slices.ContainsFunc(own.Exchanges, func(e topology.Exchange) bool { return e.Name == d.exchange })
		}
		return slices.ContainsFunc(own.Queues, func(q topology.Queue) bool { return q.Name == d.key })
	})
}

// declared returns the objects that the workers and the intake of a configuration declare.
func declared(cfg *config.Config) (t topology.Topology) {
	for _, w := range cfg.Workers {
		t = t.Merge(w.Strategy.WithDefaults().Route.Topology(w.Queue)).Merge(w.Topology)
	}
	if s := cfg.Schedule; s != nil {
		for _, name := range []string{s.Exchange, s.Exchange + ".expired"} {
			t.Exchanges = append(t.Exchanges, topology.Exchange{Name: name})
			t.Queues = append(t.Queues, topology.Queue{Name: name})
		}
	}
	return t
}

// unserved describes the periodic messages and tables whose queues no worker of the file declares, for the embedded broker. It returns
// "" if there are none.
func unserved(cfg *config.Config) string {
	if cfg.Broker != "" {
		return "" // other programs may declare the queues
	}
	var names []string
	for _, d := range foreign(cfg) {
		if d.exchange == "" {
			names = append(names, brief.Quoted(d.key)+" of "+d.of)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "no worker declares these queues, so messages to them wait until they exist: " + strings.Join(names, ", ")
}

// notFound describes the destinations that do not exist on the broker, and exchanges that deliver nowhere, if the topology is known. It
// returns an error if the broker does not answer.
func notFound(ctx context.Context, client *reprise.Client, known *topology.Topology, all []destination) (texts []string, err error) {
	for _, d := range all {
		found, err := d.exists(ctx, client)
		switch {
		case err != nil:
			return texts, err
		case !found:
			texts = append(texts, fmt.Sprintf("%s: %s not found: %s until it exists (declare it, or correct the name)", d.of, d.name(), d.effect))
		case d.exchange != "" && known != nil && !delivers(*known, d.exchange):
			texts = append(texts, fmt.Sprintf("%s: %s has no bindings: %s until a queue is bound to it", d.of, d.name(), d.effect))
		}
	}
	return texts, nil
}

// delivers reports whether an exchange has bindings or an alternate exchange.
func delivers(t topology.Topology, exchange string) bool {
	return slices.ContainsFunc(t.Bindings, func(b topology.Binding) bool { return b.Exchange == exchange }) ||
		slices.ContainsFunc(t.Exchanges, func(e topology.Exchange) bool { return e.Name == exchange && e.Args["alternate-exchange"] != nil })
}

// exists reports whether a destination exists, or the user may not ask.
func (d destination) exists(ctx context.Context, client *reprise.Client) (bool, error) {
	var err error
	if d.exchange != "" {
		err = client.CheckExchange(ctx, d.exchange)
	} else {
		_, err = client.Depth(ctx, d.key)
	}
	if refusal, ok := errors.AsType[*reprise.QueueError](err); ok {
		return refusal.Code != 404, nil
	}
	if errors.Is(err, reprise.ErrUnroutable) {
		return false, nil
	}
	if _, ok := errors.AsType[*reprise.RefusedError](err); ok {
		return true, nil
	}
	return true, err
}
