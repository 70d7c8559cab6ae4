package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/pcre"
	"github.com/reprisemq/reprise/topology"
)

// Plan describes a migration before it begins, or the rest of an interrupted migration.
type Plan struct {
	Queue     string         `json:"queue"`
	To        string         `json:"to"`
	From      topology.Table `json:"from_arguments"` // of the old queue
	Args      topology.Table `json:"arguments"`      // of the new queue
	Changes   []string       `json:"changes"`        // of the arguments
	Messages  int64          `json:"messages"`       // according to the management API, which is some seconds late
	Consumers int            `json:"consumers"`
	Continues bool           `json:"continues,omitempty"` // an earlier run was interrupted
	Done      bool           `json:"done,omitempty"`      // the queue has the wanted arguments
	Policy    string         `json:"policy,omitempty"`    // command that has the same effect without moving messages
	Steps     []string       `json:"steps,omitempty"`
	Notes     []string       `json:"notes,omitempty"`    // changes of other objects and programs
	Problems  []string       `json:"problems,omitempty"` // the migration cannot begin

	record   record
	old      *queue
	bindings []topology.Binding
}

// Err returns an error if the migration cannot begin.
func (p *Plan) Err() error {
	if len(p.Problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(p.Problems, "; "))
}

func (p *Plan) problem(format string, args ...any) {
	p.Problems = append(p.Problems, fmt.Sprintf(format, args...))
}

func (p *Plan) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

func (p *Plan) step(format string, args ...any) {
	p.Steps = append(p.Steps, fmt.Sprintf(format, args...))
}

// NewPlan reads the broker and returns the plan of a change. It changes nothing.
func NewPlan(ctx context.Context, api mgmtapi.API, c Change) (*Plan, error) {
	b := broker{api}
	p := &Plan{Queue: c.Queue, To: c.To}
	if c.keepsName() {
		p.To = c.Queue
	}
	rec, found, err := b.record(ctx, c.Queue)
	if err != nil {
		return nil, err
	}
	if p.old, err = b.queue(ctx, c.Queue); err != nil {
		return nil, err
	}
	p.Messages, p.Consumers = p.old.Ready+p.old.Unacked, len(p.old.Consumers)
	if found {
		if err := rec.conflict(c); err != nil {
			return nil, err
		}
		rec.Ordered, rec.Disconnect, rec.Delete = rec.Ordered || c.Ordered, rec.Disconnect || c.Disconnect, rec.Delete || c.Delete
		p.record, p.Continues, p.To, p.From, p.Args = rec, true, rec.To, p.old.Args, rec.Args
		if c.Undo && p.old.Found && p.To == p.Queue && !p.old.equals(rec.wanted()) {
			p.Args = p.From
			p.step("move the bindings and messages of %s back to %s, and delete it", p.Queue+holding, p.Queue)
			return p, nil
		}
		p.steps()
		return p, nil
	}
	return p, p.first(ctx, b, c)
}

// first plans a migration that has not begun.
func (p *Plan) first(ctx context.Context, b broker, c Change) error {
	target, err := b.queue(ctx, p.To)
	if err != nil {
		return err
	}
	if !p.old.Found {
		if p.To != p.Queue && target.Found {
			p.Done = true
			return nil
		}
		p.problem("queue %q not found", p.Queue)
		return nil
	}
	p.From = p.old.Args
	p.record = record{Queue: p.Queue, To: p.To, Transient: !p.old.Durable, Ordered: c.Ordered, Disconnect: c.Disconnect, Delete: c.Delete}
	args := maps.Clone(p.old.Args)
	maps.Copy(args, c.Set)
	for _, k := range c.Unset {
		delete(args, k)
	}
	if kind := kindOf(args); args[queueType] == nil && kind != p.old.Kind {
		args[queueType] = p.old.Kind
	}
	if kindOf(args) == "quorum" {
		p.record.Transient = false
	}
	p.record.Args, p.record.Dead, p.Args = args, deadLetters(args, p.old.Effective), args
	wanted := p.record.wanted()
	if p.To == p.Queue && p.old.equals(wanted) {
		p.Done = true
		return nil
	}
	if len(c.Set) == 0 && len(c.Unset) == 0 && p.To == p.Queue {
		p.problem("no migration of queue %q was interrupted, and no flag changes it", p.Queue)
	}
	if p.bindings, err = b.bindings(ctx, p.Queue); err != nil {
		return err
	}
	// By default (rates_mode basic), RabbitMQ does not tell the exchange of published messages.
	detailed, version, err := b.overview(ctx)
	if err != nil {
		return err
	}
	p.old.ByName = p.old.ByName || p.old.Published && len(p.bindings) == 0
	p.record.ByName, p.record.Unseen = p.old.ByName, !detailed
	p.record.Unlimited = !strings.HasPrefix(version, "3.") // version 4.0 introduced a default limit of 20, and -1
	p.refuse(c, target, wanted)
	p.deliveries(c)
	p.steps()
	return p.others(ctx, b, c)
}

// deadLetters returns the arguments that lead the dead letters of a queue to the same exchange.
func deadLetters(args, policy topology.Table) topology.Table {
	kind, dead := kindOf(args), topology.Table{}
	if _, set := mgmtapi.Effective(kind, args, policy, "dead-letter-exchange"); !set {
		return nil
	}
	keys := []string{"dead-letter-exchange", "dead-letter-routing-key"}
	if kind == "quorum" {
		keys = append(keys, "dead-letter-strategy", "overflow")
	}
	for _, key := range keys {
		if v, set := mgmtapi.Effective(kind, args, policy, key); set {
			dead["x-"+key] = v
		}
	}
	return dead
}

// refuse adds problems.
func (p *Plan) refuse(c Change, target *queue, wanted topology.Queue) {
	switch {
	case p.old.Kind != "classic" && p.old.Kind != "quorum", kindOf(wanted.Args) != "classic" && kindOf(wanted.Args) != "quorum":
		p.problem("only classic and quorum queues can be migrated")
	case p.old.Exclusive:
		p.problem("queue %q is exclusive: it belongs to one connection, which has to declare it differently", p.Queue)
	case p.old.AutoDelete:
		p.problem("queue %q has the property auto-delete, so the broker deletes it with its last consumer: declare it differently when it starts", p.Queue)
	}
	if p.To != p.Queue && target.Found && !target.equals(wanted) {
		p.problem("queue %q exists with other arguments (%s)", p.To, describe(target.Args))
	}
	switch {
	case c.Ordered && !c.Disconnect && p.To == p.Queue:
		p.problem("the order can be kept only while no program publishes (--disconnect), or with a new name (--to)")
	case c.Disconnect && !c.Ordered && p.To != p.Queue:
		p.problem("a migration to a new name needs --disconnect only with --ordered")
	case p.To == p.Queue && !c.Disconnect && p.old.ByName:
		p.problem("programs have published to %q by its name, and RabbitMQ would drop messages that they publish while it does not exist: use --disconnect, which stops them for that time, or --to with a new name", p.Queue)
	case p.To == p.Queue && !c.Disconnect && !c.Delete && p.record.Unseen:
		p.problem("the broker does not tell whether programs publish to %q by its name (rates_mode is not detailed), and RabbitMQ would drop messages that they publish while it does not exist: use --disconnect, which stops all programs for that time, or --delete if no program does", p.Queue)
	}
}

// MinLimit is the delivery limit from which on a queue is expected to keep a message that several interrupted runs return.
const MinLimit = 5

const deliveryLimit = "x-delivery-limit"

// limit returns the delivery limit of a quorum queue, if it is set.
func (q *queue) limit() (n int64, set bool) {
	if q.Kind != "quorum" {
		return 0, false
	}
	value, _ := mgmtapi.Effective(q.Kind, q.Args, q.Effective, "delivery-limit")
	n, ok := mgmtapi.Integer(value)
	return n, ok && n >= 0
}

// deliveries notes that an interrupted run counts as a failed delivery, and refuses to lose a message that has not failed before.
func (p *Plan) deliveries(c Change) {
	limit, set := p.old.limit()
	if !set || c.Ordered && !c.Disconnect { // no message moves
		return
	}
	_, kept := mgmtapi.Effective(p.old.Kind, p.old.Args, p.old.Effective, "dead-letter-exchange")
	effect := "drops"
	if kept {
		effect = "dead-letters"
	}
	if limit == 0 && !kept {
		p.problem("the delivery limit of %q is 0, so an interrupted run would lose a message: set dead-letter-exchange with a policy, or let the consumers empty the queue (--to with --ordered)", p.Queue)
	}
	n := DefaultBatch
	if limit < MinLimit {
		n = 1
	}
	p.note("if a run is killed, RabbitMQ counts a failed delivery for up to %d messages, and %s a message with more than %d", n, effect, limit)
}

// steps describes the steps.
func (p *Plan) steps() {
	rec := p.record
	p.Changes = changes(p.From, p.Args)
	if rec.Disconnect && rec.Ordered {
		p.step("refuse and close all other connections of the virtual host until the end")
	}
	overlap := "; a message that arrives in between reaches both queues (possible duplicates)"
	if rec.Disconnect && rec.Ordered {
		overlap = ""
	}
	first, second := p.To, ""
	if p.To == p.Queue {
		first, second = p.Queue+holding, p.Queue
	}
	p.step("declare %s, and move %d bindings to it%s", first, len(p.bindings), overlap)
	if rec.Ordered && !rec.Disconnect {
		p.step("wait until the consumers of %s have emptied it; start the consumers of %s only after that", p.Queue, p.To)
	} else {
		p.step("move all messages to %s: publish, confirm, acknowledge (an interruption can duplicate %d)", first, DefaultBatch)
	}
	switch {
	case second == "" && !rec.Delete && (rec.Unseen || rec.ByName):
		p.step("wait until %s is empty and has no consumers, and stop: --delete deletes it", p.Queue)
		return
	case second == "":
		p.step("wait until %s is empty and has no consumers, and delete it", p.Queue)
		return
	case rec.Disconnect && !rec.Ordered:
		p.step("refuse new connections to the virtual host for 6 s, then close all others; move the last messages")
		p.step("delete %s, declare it with the new arguments, and permit connections: a pause of about a second", p.Queue)
	default:
		p.step("wait until %s is empty and has no consumers, and delete it", p.Queue)
		p.step("declare %s with the new arguments", p.Queue)
	}
	p.step("move the bindings and messages of %s back, and delete it", first)
}

// changes describes the differences of arguments.
func changes(from, to topology.Table) (all []string) {
	for k, v := range to {
		switch was, found := from[k]; {
		case !found:
			all = append(all, fmt.Sprintf("%s: %v (was not set)", k, v))
		case !equal(was, v):
			all = append(all, fmt.Sprintf("%s: %v (was %v)", k, v, was))
		}
	}
	for k, v := range from {
		if _, found := to[k]; !found {
			all = append(all, fmt.Sprintf("%s: removed (was %v)", k, v))
		}
	}
	slices.Sort(all)
	return all
}

// policyKeys are the arguments that a policy can set.
var policyKeys = map[string]bool{
	"x-message-ttl": true, "x-expires": true, "x-max-length": true, "x-max-length-bytes": true, "x-overflow": true,
	"x-dead-letter-exchange": true, "x-dead-letter-routing-key": true, "x-delivery-limit": true, "x-dead-letter-strategy": true,
}

// others adds the policy that has the same effect, and notes about other objects and programs.
func (p *Plan) others(ctx context.Context, b broker, c Change) error {
	if p.To == p.Queue {
		p.note("change the arguments also in the programs that declare %s: RabbitMQ refuses the old ones with 406", p.Queue)
	} else {
		p.note("change the consumers, and the programs that publish by the name of the queue, from %s to %s", p.Queue, p.To)
	}
	if p.Consumers > 0 && !p.record.Disconnect {
		p.note("stop the consumers of %s (%d) when its last messages have moved; the command waits for it", p.Queue, p.Consumers)
	}
	sources, err := b.namedBy(ctx, p.Queue)
	if err != nil {
		return err
	}
	if len(sources) > 0 && p.To != p.Queue {
		p.note("the dead letters of %s go to %s by its name: migrate these queues too; %[2]s is not deleted before", strings.Join(sources, ", "), p.Queue)
	} else if len(sources) > 0 {
		p.note("the messages in %s return to %s by its name: stop the consumers, and the command waits until these queues are empty", strings.Join(sources, ", "), p.Queue)
	}
	if ttl, set := mgmtapi.Effective(p.old.Kind, p.old.Args, p.old.Effective, "message-ttl"); set {
		p.note("the TTL of moved messages begins again (%v ms)", ttl)
	}
	if expires, set := p.Args["x-expires"]; set {
		p.note("with x-expires, the broker deletes %s and its messages unless a consumer starts within %v ms", p.To, expires)
	}
	return p.policies(ctx, b, c)
}

// policies notes the policies that match only some of the names, and refuses a policy that would delete the holding queue.
func (p *Plan) policies(ctx context.Context, b broker, c Change) error {
	priority := ""
	defer func() { p.Policy = p.policy(b, c, priority) }()
	var found []struct {
		Priority   int64  `json:"priority"`
		Name       string `json:"name"`
		Pattern    string `json:"pattern"`
		ApplyTo    string `json:"apply-to"`
		Definition object `json:"definition"`
	}
	if err := b.get(ctx, "policies"+b.api.Within(), &found); err != nil {
		p.note("the policies are unknown: %s", err)
		return nil
	}
	for _, policy := range found {
		if policy.Name == p.old.Policy {
			priority = fmt.Sprintf("--priority %d ", policy.Priority+1)
		}
		pattern, err := pcre.Compile(policy.Pattern, false)
		if policy.ApplyTo == "exchanges" {
			continue
		}
		if err != nil {
			p.note("check the pattern of policy %s", policy.Name)
			continue
		}
		old, next := pattern.MatchString(p.Queue), pattern.MatchString(p.To)
		switch {
		case old && !next:
			p.note("policy %s applies to %s, but not to %s", policy.Name, p.Queue, p.To)
		case !old && next:
			p.note("policy %s applies to %s, but not to %s", policy.Name, p.To, p.Queue)
		}
		if p.To != p.Queue || !pattern.MatchString(p.Queue+holding) {
			continue
		}
		if key := losing(table(policy.Definition)); key != "" {
			p.problem("policy %s sets %s also for %s, so messages could be lost there: limit its pattern to ^%s$ during the migration", policy.Name, key, p.Queue+holding, regexp.QuoteMeta(p.Queue))
		}
	}
	return nil
}

// losing returns a key of a policy that removes messages, or "".
func losing(definition topology.Table) string {
	for _, key := range []string{"expires", "message-ttl", "max-length", "max-length-bytes"} {
		if _, set := definition[key]; set {
			return key
		}
	}
	if n, set := mgmtapi.Integer(definition["delivery-limit"]); set && 0 <= n && n < MinLimit {
		return "delivery-limit"
	}
	return ""
}

// policy returns the command for a policy that has the same effect, or "".
func (p *Plan) policy(b broker, c Change, priority string) string {
	if len(c.Set) == 0 || len(c.Unset) > 0 || p.To != p.Queue {
		return ""
	}
	definition := maps.Clone(p.old.Effective)
	for k, v := range c.Set {
		if _, declared := p.old.Args[k]; declared || !policyKeys[k] {
			return ""
		}
		definition[strings.TrimPrefix(k, "x-")] = v
	}
	text, err := json.Marshal(definition)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("rabbitmqctl set_policy -p %s --apply-to queues %s%s %s %s", brief.Shell(b.api.VirtualHost()), priority,
		brief.Shell(p.Queue), brief.Shell("^"+regexp.QuoteMeta(p.Queue)+"$"), brief.Shell(string(text)))
}
