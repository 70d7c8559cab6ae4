package move

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/doctor"
	"github.com/reprisemq/reprise/internal/drift"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/migrate"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/topology"
)

// Plan describes a move before it begins.
type Plan struct {
	Queues   []Queue  `json:"queues"`
	Create   []string `json:"create"` // objects that are missing on the target
	Notes    []string `json:"notes,omitempty"`
	Problems []string `json:"problems,omitempty"` // the move cannot begin

	missing  topology.Topology
	policies []doctor.Policy // that are missing on the target
}

// Queue is a queue that is moved.
type Queue struct {
	Name     string `json:"name"`
	Messages int64  `json:"messages"`         // on the source, according to the management API, which is some seconds late
	Exists   bool   `json:"exists,omitempty"` // on the target
	Held     int64  `json:"held,omitempty"`   // number of messages on the target

	kind string
	// 0: default. A queue with a low delivery limit would remove more messages after interruptions, and a full queue could refuse a
	// message and accept the next one.
	batch int
	waiting
}

// ProblemsError lists why a move cannot begin.
type ProblemsError struct{ Problems []string }

func (e *ProblemsError) Error() string { return strings.Join(e.Problems, "; ") }

// Err returns a *ProblemsError if the move cannot begin.
func (p *Plan) Err() error {
	if len(p.Problems) == 0 {
		return nil
	}
	return &ProblemsError{p.Problems}
}

func (p *Plan) problem(format string, args ...any) {
	p.Problems = append(p.Problems, fmt.Sprintf(format, args...))
}

func (p *Plan) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// planner is the state of a plan.
type planner struct {
	*Plan
	cfg      Config
	from, to *doctor.Broker
	queues   map[string]*doctor.Queue // the selected queues of the source
	all      topology.Topology        // of the source, as far as it is moved
}

// plan compares the brokers. It changes nothing.
func plan(ctx context.Context, cfg Config, from, to *doctor.Broker) (*Plan, error) {
	p := &planner{Plan: &Plan{Queues: []Queue{}, Create: []string{}}, cfg: cfg, from: from, to: to, queues: map[string]*doctor.Queue{}}
	if err := p.selectQueues(); err != nil {
		return nil, err
	}
	if len(p.queues) == 0 {
		p.problem("the source has no queues")
	}
	if cfg.Delete {
		p.keepTargets()
	}
	p.topology()
	compared := drift.Declarations(p.all, to, cfg.To.vhost())
	p.missing = compared.Missing()
	for _, o := range compared.Objects {
		switch o.Status {
		case drift.Create:
			p.Create = append(p.Create, o.String())
		case drift.Change:
			if text := differences(o); text != "" {
				p.problem("%s exists on the target with other properties: %s", o, text)
			}
		case drift.Conflict:
			p.problem("%s cannot be declared on the target: %s", o, strings.Join(o.Notes, ", "))
		}
	}
	if err := p.types(ctx); err != nil {
		return nil, err
	}
	if err := p.carryPolicies(ctx); err != nil {
		return nil, err
	}
	p.describe()
	return p.Plan, nil
}

// differences describes the differences of arguments and properties.
func differences(o drift.Object) string {
	var all []string
	for _, d := range o.Differences {
		if d.Policy == "" { // see carryPolicies
			all = append(all, fmt.Sprintf("%s is %s, on the source %s", d.Property, value(d.Broker), value(d.File)))
		}
	}
	return strings.Join(all, "; ")
}

func value(v any) string {
	switch v {
	case nil:
		return "not set"
	case "":
		return `""`
	}
	return brief.Visible(fmt.Sprint(v))
}

// selectQueues selects the queues that match a pattern, and their wait queues and failed queues.
func (p *planner) selectQueues() error {
	for _, pattern := range p.cfg.Queues {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("%s is not a pattern (* matches any text, ? one character)", brief.Quoted(pattern))
		}
	}
	matched := map[string]bool{}
	for i := range p.from.Queues {
		q := &p.from.Queues[i]
		selected := len(p.cfg.Queues) == 0
		for _, pattern := range p.cfg.Queues {
			if ok, _ := path.Match(strings.ReplaceAll(pattern, "/", "\x00"), strings.ReplaceAll(q.Name, "/", "\x00")); ok {
				selected, matched[pattern] = true, true
			}
		}
		if selected {
			p.add(q)
		}
	}
	for _, pattern := range p.cfg.Queues {
		if !matched[pattern] {
			return fmt.Errorf("no queue of the source matches %s", brief.Quoted(pattern))
		}
	}
	if len(p.cfg.Queues) > 0 {
		for _, q := range slices.Collect(maps.Values(p.queues)) {
			p.related(q)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.queues)) {
		q := p.queues[name]
		ttl, _ := q.Get("message-ttl")
		exchange, dead := q.Get("dead-letter-exchange")
		one := Queue{Name: name, Messages: q.Messages, kind: q.Kind, waiting: waiting{ttl: milliseconds(ttl), dead: dead}}
		if key, _ := q.Get("dead-letter-routing-key"); exchange == "" {
			one.to, _ = key.(string)
		}
		is := p.to.Queue(p.cfg.To.vhost(), name)
		if is != nil {
			one.Exists, one.Held = true, is.Messages
		} else {
			is = &doctor.Queue{}
		}
		p.limits(&one, q, is)
		p.Queues = append(p.Queues, one)
	}
	return nil
}

// limits sets the batch according to the limits of a queue, and refuses those that would remove messages.
func (p *planner) limits(one *Queue, q, is *doctor.Queue) {
	limit := func(key string) (int64, bool) {
		v, _ := q.Get(key)
		n, set := mgmtapi.Integer(v)
		return n, set && n >= 0
	}
	if n, set := limit("delivery-limit"); set && n < migrate.MinLimit {
		one.batch = 1
		if n == 0 && q.Kind == "quorum" && !one.dead {
			p.problem("the delivery limit of queue %s is 0, so an interrupted move would lose a message: set dead-letter-exchange with a policy", q.Name)
		}
	}
	overflow, _ := q.Get("overflow")
	text, _ := overflow.(string)
	for key, n := range map[string]int64{"max-length": q.Messages + is.Messages, "max-length-bytes": q.Bytes + is.Bytes} {
		switch most, set := limit(key); {
		case !set:
		case strings.HasPrefix(text, "reject-publish"):
			one.batch = 1
		case n > most && !one.dead:
			p.problem("queue %s of the target would drop its oldest messages: %s is %d, and both brokers have %d (let the consumers empty it first)", q.Name, key, most, n)
		}
	}
}

// add selects a queue, unless it belongs to a connection or to the programs themselves.
func (p *planner) add(q *doctor.Queue) bool {
	switch {
	case p.queues[q.Name] != nil, q.Exclusive, protocol.IsControlQueue(q.Name):
		return false
	case q.AutoDelete:
		p.note("queue %s is not moved: it is auto-delete, so the source would delete it when the move stops consuming", q.Name)
		return false
	}
	p.queues[q.Name] = q
	return true
}

// related selects the queues from which messages return to a queue, and those that receive its dead letters.
func (p *planner) related(q *doctor.Queue) {
	to, from := p.from.Dead(q)
	for _, f := range from {
		_, ttl := f.Get("message-ttl")
		exchange, _ := f.Get("dead-letter-exchange")
		waits := f.Consumers == 0 && (ttl || exchange == "") && q.Name != topology.FailedQueue(f.Name)
		if (waits || amqpvalue.IsWaitQueue(f.Name)) && p.add(f) {
			p.related(f)
		}
	}
	for _, t := range to {
		p.add(t)
	}
	if failed := p.from.Queue(p.cfg.From.vhost(), topology.FailedQueue(q.Name)); failed != nil {
		p.add(failed)
	}
}

// keepTargets refuses to delete a queue to which another queue dead-letters: its messages would be lost.
func (p *planner) keepTargets() {
	for i := range p.from.Queues {
		q := &p.from.Queues[i]
		if p.queues[q.Name] != nil {
			continue
		}
		to, _ := p.from.Dead(q)
		for _, t := range to {
			if p.queues[t.Name] != nil {
				p.problem("--delete is not possible, because dead letters of queue %s, which is not moved, go to queue %s", q.Name, t.Name)
			}
		}
	}
}

// topology collects the declarations: all objects of the virtual host or, if queues are selected, those that lead to them.
func (p *planner) topology() {
	exchanges := map[string]bool{}
	var add func(name string)
	add = func(name string) {
		x := p.from.Exchange(p.cfg.From.vhost(), name)
		if x == nil || exchanges[name] || name == "" || strings.HasPrefix(name, markerPrefix) {
			return
		}
		exchanges[name] = true
		add(x.Alternate)
		for _, b := range p.from.Bindings {
			if b.Kind == "exchange" && b.Destination == name {
				add(b.Source)
			}
		}
	}
	for _, x := range p.from.Exchanges {
		if len(p.cfg.Queues) == 0 && !strings.HasPrefix(x.Name, "amq.") {
			add(x.Name)
		}
	}
	for _, q := range p.queues {
		exchange, _ := q.Get("dead-letter-exchange")
		name, _ := exchange.(string)
		add(name)
	}
	for _, b := range p.from.Bindings {
		if b.Kind == "queue" && p.queues[b.Destination] != nil {
			add(b.Source)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(exchanges)) {
		if x := p.from.Exchange(p.cfg.From.vhost(), name); !strings.HasPrefix(name, "amq.") {
			p.all.Exchanges = append(p.all.Exchanges, topology.Exchange{
				Name: name, Kind: x.Kind, Transient: !x.Durable, AutoDelete: x.AutoDelete, Internal: x.Internal, Args: arguments(x.Args),
			})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.queues)) {
		p.all.Queues = append(p.all.Queues, p.declaration(p.queues[name]))
	}
	for _, b := range p.from.Bindings {
		one := topology.Binding{Exchange: b.Source, RoutingKey: b.Key, Queue: b.Destination, Args: arguments(b.Args)}
		if b.Kind == "exchange" {
			one.Queue, one.ToExchange = "", b.Destination
		}
		if exchanges[b.Source] && (exchanges[one.ToExchange] || p.queues[one.Queue] != nil) {
			p.all.Bindings = append(p.all.Bindings, one)
		}
	}
}

// declaration returns the declaration of a queue. It has a type only if the target would otherwise use another one.
func (p *planner) declaration(q *doctor.Queue) topology.Queue {
	args := arguments(q.Args)
	usual := p.to.DefaultQueueType(p.cfg.To.vhost())
	if args["x-queue-type"] == nil && q.Kind != usual && (usual != "" || q.Kind != "classic") {
		args["x-queue-type"] = q.Kind
	}
	return topology.Queue{Name: q.Name, Transient: !q.Durable, Args: args}
}

// arguments converts arguments of JSON.
func arguments(from map[string]any) topology.Table {
	t := topology.Table{}
	for k, v := range from {
		if n, ok := mgmtapi.Integer(v); ok {
			v = n
		}
		t[k] = v
	}
	return t
}

// types refuses types of queues that cannot be moved, and types of exchanges that the target does not have.
func (p *planner) types(ctx context.Context) error {
	var overview struct {
		Types []struct {
			Name string `json:"name"`
		} `json:"exchange_types"`
	}
	if err := p.cfg.To.API.Get(ctx, "overview", &overview); err != nil {
		return err
	}
	known := map[string]bool{}
	for _, t := range overview.Types {
		known[t.Name] = true
	}
	for _, x := range p.missing.Exchanges {
		if !known[x.Kind] && len(known) > 0 {
			p.problem("exchange %s has the type %s, which the target does not support", x.Name, x.Kind)
		}
	}
	for _, q := range p.Queues {
		if q.kind != "classic" && q.kind != "quorum" {
			p.problem("queue %s has the type %s, which cannot be moved (exclude it with --queue)", q.Name, q.kind)
		}
	}
	return nil
}

// describe adds notes about effects that the user may not expect.
func (p *planner) describe() {
	var full, expires []string
	own := false
	for _, q := range p.Queues {
		if q.ttl > 0 && p.cfg.From.rabbitMQ {
			full = append(full, q.Name)
		}
		own = own || q.dead && q.Messages > 0
		if v, set := p.queues[q.Name].Get("expires"); set && v != nil {
			expires = append(expires, q.Name)
		}
	}
	if len(full) > 0 {
		p.note("messages of %s begin their delay again, except copies of Reprise workers: RabbitMQ does not tell when a message arrived", list(full))
	}
	if own {
		p.note("messages that other programs have published with an expiration begin it again, because programs compute the next delay from it")
	}
	if len(expires) > 0 {
		p.note("the target deletes %s with their messages if no consumer starts in time (x-expires)", list(expires))
	}
	for _, x := range p.from.Exchanges {
		if x.Kind == "x-delayed-message" {
			p.note("messages that wait in exchange %s (x-delayed-message) stay: no client can read them; when they are due, they reach the source, so run the command again", x.Name)
			if p.cfg.Delete {
				p.problem("--delete is not possible, because messages may wait in exchange %s (x-delayed-message)", x.Name)
			}
		}
	}
	p.note("users, permissions, operator policies and limits are not moved; consumers and publishers have to change their URL")
}

func list(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more queues", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
