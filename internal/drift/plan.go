// Package drift compares the objects that workers declare with the objects of a broker. It changes nothing; [Plan.Missing]
// contains what a caller can create.
package drift

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/archive/design"
	"github.com/reprisemq/reprise/internal/doctor"
	"github.com/reprisemq/reprise/topology"
)

// Status is the relation of an object of the file to the broker. The strings are also the words of the text.
type Status string

// The statuses.
const (
	Create   Status = "create"          // it is missing, and can be created
	Change   Status = "change"          // it exists with other properties, and a declaration is refused or has another effect
	Conflict Status = "conflict"        // it cannot be declared, or needs an object that the file does not declare
	Extra    Status = "not in the file" // it exists, and belongs to an object of the file; not a difference
	Exists   Status = "exists"
)

var order = []Status{Conflict, Change, Create, Extra, Exists}

// Object is an object of the file, or an object of the broker that belongs to an object of the file.
type Object struct {
	Status Status `json:"status"`
	Kind   string `json:"kind"` // "exchange", "queue", "binding" or "broker"
	Name   string `json:"name"` // of a binding: its source and its destination

	// Of a binding. Exactly one of Queue and ToExchange is set.
	Exchange   string         `json:"exchange,omitempty"`
	Queue      string         `json:"queue,omitempty"`
	ToExchange string         `json:"to_exchange,omitempty"`
	RoutingKey *string        `json:"routing_key,omitempty"`
	Args       topology.Table `json:"arguments,omitempty"`

	Differences []Difference `json:"differences,omitempty"`
	Notes       []string     `json:"notes,omitempty"`
	Fix         string       `json:"fix,omitempty"` // what to do
}

// Difference is a property with different values in the file and on the broker.
type Difference struct {
	Property string `json:"property"` // such as "durable" or "x-message-ttl"
	File     any    `json:"file"`     // nil: none
	Broker   any    `json:"broker"`   // the effective value; nil: none
	Policy   string `json:"policy,omitempty"`
}

// Plan is the result of a comparison.
type Plan struct {
	Version     string   `json:"version"` // of RabbitMQ; "" if it is unknown
	VHost       string   `json:"vhost"`
	Differences int      `json:"differences"` // number of objects with another status than Extra and Exists
	Objects     []Object `json:"objects"`     // the most important first

	missing topology.Topology
}

// Missing returns the declarations of the objects with the status Create.
func (p *Plan) Missing() topology.Topology { return p.missing }

// Count returns the number of objects with a status.
func (p *Plan) Count(s Status) (n int) {
	for _, o := range p.Objects {
		if o.Status == s {
			n++
		}
	}
	return n
}

// Compare compares the declarations of workers with a virtual host of a broker. Wait queues that workers declare when they first
// use them are compared if they exist, and are not missing otherwise.
func Compare(workers []reprise.WorkerConfig, b *doctor.Broker, vhost string) *Plan {
	c := comparison{Plan: &Plan{Version: b.Version, VHost: vhost, Objects: []Object{}}, broker: b}
	c.declared = c.declared.Merge(design.Topologies(workers)...)
	var later []topology.Topology
	for _, w := range workers {
		later = append(later, waits(w, c.declared))
	}
	c.waits = c.waits.Merge(later...)
	if err := c.declared.For(b.Version); b.Version != "" && err != nil {
		c.add(Object{Status: Conflict, Kind: "broker", Name: "RabbitMQ " + b.Version, Notes: []string{strings.TrimPrefix(err.Error(), "topology: ")}})
	}
	for _, x := range c.declared.Exchanges {
		c.exchange(x, false)
	}
	for _, x := range c.waits.Exchanges {
		if !slices.ContainsFunc(c.declared.Exchanges, func(d topology.Exchange) bool { return d.Name == x.Name }) {
			c.exchange(x, true)
		}
	}
	for _, q := range c.declared.Queues {
		c.queue(q, false)
	}
	for _, q := range c.waits.Queues {
		if c.declares(q.Name) == nil {
			c.queue(q, true)
		}
	}
	for _, x := range c.declared.Bindings {
		c.binding(x)
	}
	c.deadLetterExchanges()
	c.extras()
	return c.plan()
}

// Declarations compares declarations with a virtual host of a broker.
func Declarations(t topology.Topology, b *doctor.Broker, vhost string) *Plan {
	c := comparison{Plan: &Plan{Version: b.Version, VHost: vhost, Objects: []Object{}}, broker: b, declared: t}
	for _, x := range t.Exchanges {
		c.exchange(x, false)
	}
	for _, q := range t.Queues {
		c.queue(q, false)
	}
	for _, x := range t.Bindings {
		c.binding(x)
	}
	return c.plan()
}

// plan sorts and counts the objects.
func (c *comparison) plan() *Plan {
	slices.SortStableFunc(c.Objects, func(a, b Object) int {
		return cmp.Compare(slices.Index(order, a.Status), slices.Index(order, b.Status))
	})
	for _, s := range []Status{Create, Change, Conflict} {
		c.Differences += c.Count(s)
	}
	return c.Plan
}

// maxExamined limits the examined attempts. A growing backoff reaches its longest delay in fewer attempts.
const maxExamined = 100

// waits returns the declarations that a worker makes for its retries.
func waits(w reprise.WorkerConfig, declared topology.Topology) topology.Topology {
	var all []topology.Topology
	policy := w.Policy.WithDefaults()
	route := w.Strategy.WithDefaults().Route
	arrivals := []topology.Delivery{{Queue: w.Queue, RoutingKey: w.Queue}}
	for _, b := range declared.Bindings {
		if b.Queue == w.Queue {
			arrivals = append(arrivals, topology.Delivery{Queue: w.Queue, Exchange: b.Exchange, RoutingKey: b.RoutingKey})
			break
		}
	}
	for attempt := 1; attempt < min(policy.MaxAttempts, maxExamined); attempt++ {
		low, high := backoff.Range(policy.Backoff, attempt)
		for _, d := range arrivals {
			for _, delay := range []time.Duration{low, high} {
				if hop, err := route.Wait(d, delay); err == nil {
					all = append(all, hop.Topology)
				}
			}
		}
	}
	return topology.Topology{}.Merge(all...)
}
