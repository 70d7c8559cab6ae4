package vhost

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/broker/internal/erlang"
	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/route"
	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/pcre"
)

// Policy determines settings of the queues and exchanges whose names match a pattern
// (https://www.rabbitmq.com/docs/policies). Only the policy with the highest priority applies to an object. An operator policy
// applies in addition.
type Policy struct {
	Name       string
	Operator   bool
	Pattern    string // regular expression, which matches a part of a name
	ApplyTo    string // "all", "queues", "classic_queues", "quorum_queues", "streams" or "exchanges"
	Priority   float64
	Definition Definition

	pattern *pcre.Regexp
	size    int64 // in memory
}

// Applied are the policies that apply to a queue or an exchange. A field is nil if there is no such policy.
type Applied struct {
	Policy, Operator *Policy
}

// Names returns the names of the policies, or "".
func (a Applied) Names() (policy, operator string) {
	if a.Policy != nil {
		policy = a.Policy.Name
	}
	if a.Operator != nil {
		operator = a.Operator.Name
	}
	return policy, operator
}

// Definition returns the effective definition of both policies. It returns nil if no policy applies.
func (a Applied) Definition() Definition {
	switch {
	case a.Policy == nil && a.Operator == nil:
		return nil
	case a.Policy == nil:
		return a.Operator.Definition
	case a.Operator == nil:
		return a.Policy.Definition
	}
	return merged(a.Policy.Definition, a.Operator.Definition)
}

// prepare compiles the policy, or returns all its mistakes in RabbitMQ's order.
func (p *Policy) prepare() error {
	var wrong exception.Invalid
	if problem := p.Definition.check(p.Operator); problem != "" {
		wrong = append(wrong, problem)
	}
	if !slices.Contains([]string{"all", "queues", "classic_queues", "quorum_queues", "streams", "exchanges"}, p.ApplyTo) {
		wrong = append(wrong, "apply-to '"+p.ApplyTo+"' unrecognised; should be one of: 'queues', 'classic_queues', "+
			" 'quorum_queues', 'streams', 'exchanges', or 'all'")
	}
	var err error
	if p.pattern, err = pcre.Compile(p.Pattern, false); err != nil {
		wrong = append(wrong, "pattern should be regular expression but is invalid: "+erlang.Term(err.Error()))
	}
	if wrong != nil {
		return wrong
	}
	text, _ := json.Marshal(p.Definition) // cannot fail, because its values come from JSON
	p.size = policySize + int64(len(p.Name)+len(p.Pattern)+len(text))
	return nil
}

// policies are policies by name.
type policies map[string]*Policy

func (v *VHost) policiesFor(operator bool) policies {
	if operator {
		return v.operatorPolicies
	}
	return v.policies
}

// Policies returns the policies or the operator policies, sorted by name.
func (v *VHost) Policies(operator bool) []*Policy {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return slices.SortedFunc(maps.Values(v.policiesFor(operator)), func(a, b *Policy) int { return cmp.Compare(a.Name, b.Name) })
}

// SetPolicy adds or replaces a policy, applies it to existing queues and exchanges, and saves it. It reports whether it replaced
// a policy. It returns an [exception.Invalid] if the policy is invalid.
func (v *VHost) SetPolicy(p Policy) (replaced bool, err error) {
	if err := p.prepare(); err != nil {
		return false, err
	}
	if !v.affords(&p) {
		return false, exception.Invalid{"pattern needs too many steps for the names of the queues and exchanges"}
	}
	v.change.Lock()
	defer v.change.Unlock()
	all := v.policiesFor(p.Operator)
	before, more := all[p.Name], p.size
	if before != nil {
		more -= before.size
	}
	if err := v.reserve(max(0, more), nil, "policy '"+p.Name+"' in vhost '"+v.name+"'"); err != nil {
		return false, err
	}
	v.free(max(0, -more), nil)
	v.savePolicy(&p)
	v.mu.Lock()
	all[p.Name] = &p
	v.mu.Unlock()
	v.applyPolicies()
	return before != nil, nil
}

// policySteps limits the steps in which the pattern of a policy may match all names, to about two seconds. The matches hold up
// declarations and deletions.
const policySteps = 40 * pcre.MaxSteps

// affords reports whether the pattern of a new policy matches all names within policySteps.
func (v *VHost) affords(p *Policy) bool {
	remaining := policySteps
	for _, q := range v.Queues() {
		p.pattern.MatchWithin(&remaining, q.Name())
	}
	for _, x := range v.Exchanges() {
		p.pattern.MatchWithin(&remaining, x.Name)
	}
	return remaining > 0
}

// DeletePolicy removes a policy from the virtual host and from its queues and exchanges. It reports whether the policy existed.
func (v *VHost) DeletePolicy(name string, operator bool) bool {
	v.change.Lock()
	defer v.change.Unlock()
	all := v.policiesFor(operator)
	p := all[name]
	if p == nil {
		return false
	}
	v.free(p.size, nil)
	v.deleteSavedPolicy(p)
	v.mu.Lock()
	delete(all, name)
	v.mu.Unlock()
	v.applyPolicies()
	return true
}

// applyPolicies updates all queues and exchanges after a change of the policies. The caller holds the lock change.
func (v *VHost) applyPolicies() {
	for _, q := range v.Queues() {
		applied := v.policiesOfQueue(q.Name(), q.kind())
		if applied == q.applied {
			continue
		}
		v.mu.Lock()
		q.applied = applied
		v.mu.Unlock()
		q.Apply(v.settings(q.kind(), q.arguments, applied))
	}
	all := make(map[string]Applied) // matched before locking mu, which delays publishers
	for _, x := range v.Exchanges() {
		all[x.Name] = v.policiesOfExchange(x.Name)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for x := range v.routes.Exchanges() {
		v.applyToExchange(x, all[x.Name])
	}
}

// policiesOfExchange returns the policies that apply to an exchange. The caller holds the lock change.
func (v *VHost) policiesOfExchange(name string) Applied {
	return v.matching(func(p *Policy) bool {
		return (p.ApplyTo == "all" || p.ApplyTo == "exchanges") && p.pattern.MatchString(name)
	})
}

// applyToExchange sets the policies of an exchange. The caller holds the locks change and mu.
func (v *VHost) applyToExchange(x *route.Exchange[*Queue], applied Applied) {
	if applied == (Applied{}) {
		delete(v.exchangePolicies, x.Name)
	} else {
		v.exchangePolicies[x.Name] = applied
	}
	args, _ := x.Arguments.(amqpwire.Table)
	alternate, given := args.Get(alternateExchange)
	if !given {
		alternate = applied.Definition()[alternateExchange]
	}
	x.Alternate, _ = alternate.(string)
}

// policiesOfQueue returns the policies that apply to a queue. The caller holds the lock change.
func (v *VHost) policiesOfQueue(name string, kind kinds) Applied {
	target := "classic_queues"
	if kind == quorum {
		target = "quorum_queues"
	}
	return v.matching(func(p *Policy) bool {
		return (p.ApplyTo == "all" || p.ApplyTo == "queues" || p.ApplyTo == target) && p.Definition.suits(kind) && p.pattern.MatchString(name)
	})
}

// matching returns the applicable policies with the highest priorities.
func (v *VHost) matching(applies func(*Policy) bool) Applied {
	return Applied{v.policies.best(applies), v.operatorPolicies.best(applies)}
}

// best returns the applicable policy with the highest priority. RabbitMQ does not determine which of several policies with the same priority
// applies; here, it is the first by name.
func (all policies) best(applies func(*Policy) bool) (best *Policy) {
	for _, p := range all {
		better := best == nil || p.Priority > best.Priority || p.Priority == best.Priority && p.Name < best.Name
		if better && applies(p) {
			best = p
		}
	}
	return best
}

// Policy returns a policy, or nil.
func (v *VHost) Policy(name string, operator bool) *Policy {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.policiesFor(operator)[name]
}

// Applied returns the policies that apply to the queue.
func (q *Queue) Applied() Applied {
	q.vhost.mu.RLock()
	defer q.vhost.mu.RUnlock()
	return q.applied
}

// settings returns the settings of a queue that result from its arguments and its policies.
func (v *VHost) settings(kind kinds, args amqpwire.Table, applied Applied) queue.Settings {
	c := queue.Defaults("")
	setKind(&c, kind)
	definition := applied.Definition()
	for _, a := range arguments {
		if a.for_&kind == 0 || a.set == nil {
			continue
		}
		value, given := args.Get(a.name)
		name := strings.TrimPrefix(a.name, "x-")
		switch policy, found := definition[name]; {
		case found && given:
			value = effective(name, kind, policy, value)
		case found:
			value = policy
		case !given:
			continue
		}
		// A value from a policy may be too large for an argument, for example a TTL of 20 years. It has no effect.
		if changed := c; a.set(&changed, value) == "" {
			c = changed
		}
	}
	reconcile(&c)
	return c.Settings
}
