package move

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/doctor"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/pcre"
)

// effective are the keys of policies with an effect on the messages of a queue.
var effective = []string{
	"message-ttl", "expires", "max-length", "max-length-bytes", "overflow", "dead-letter-exchange", "dead-letter-routing-key",
	"dead-letter-strategy", "delivery-limit",
}

// carryPolicies adds the policies of the moved objects that are missing on the target. It refuses a policy if a queue would have other
// settings than on the source.
func (p *planner) carryPolicies(ctx context.Context) error {
	for _, policy := range slices.Concat(p.from.Policies, p.to.Policies) {
		if _, err := pcre.Compile(policy.Pattern, false); err != nil {
			p.problem("the pattern of %v cannot be evaluated: %v", &policy, err)
			return nil
		}
	}
	names := map[string]bool{}
	for _, q := range p.queues {
		_, name := p.from.PolicyOf(q.VHost, q.Name, q.Kind) // the management API returns it some seconds late
		names[name] = true
	}
	for _, x := range p.all.Exchanges {
		names[p.from.Exchange(p.cfg.From.vhost(), x.Name).PolicyName] = true
	}
	vhost := p.cfg.To.vhost()
	next := *p.to
	next.Policies = slices.Clone(p.to.Policies)
	for _, policy := range p.from.Policies {
		if policy.Operator || !names[policy.Name] || !p.withoutMirroring(&policy) {
			continue
		}
		policy.VHost = vhost
		i := slices.IndexFunc(p.to.Policies, func(t doctor.Policy) bool { return !t.Operator && t.Name == policy.Name })
		if i < 0 {
			next.Policies = append(next.Policies, policy)
			p.policies = append(p.policies, policy)
			p.Create = append(p.Create, policy.String())
		} else if is := p.to.Policies[i]; !same(is, policy) {
			p.problem("%v exists on the target with another pattern, priority or definition", &policy)
		}
	}
	for _, q := range p.queues {
		was, _ := p.from.PolicyOf(q.VHost, q.Name, q.Kind)
		is, name := next.PolicyOf(vhost, q.Name, q.Kind)
		for _, key := range effective {
			if !reflect.DeepEqual(was[key], is[key]) {
				p.problem("queue %s would have %s %s on the target through policies (%s), on the source %s", q.Name, key, value(is[key]), value(name), value(was[key]))
			}
		}
	}
	for _, q := range p.to.Queues {
		_, was := p.to.PolicyOf(vhost, q.Name, q.Kind)
		if _, is := next.PolicyOf(vhost, q.Name, q.Kind); is != was && p.queues[q.Name] == nil && q.Name != lock {
			p.problem("policy %s would also apply to queue %s of the target, which is not moved", is, q.Name)
		}
	}
	if len(p.policies) == 0 {
		return nil
	}
	var user struct {
		Tags mgmtapi.Field[[]string] `json:"tags"`
	}
	if err := p.cfg.To.API.Get(ctx, "whoami", &user); err != nil {
		return err
	}
	if tags := user.Tags; tags.Known && !slices.Contains(tags.Value, "administrator") && !slices.Contains(tags.Value, "policymaker") {
		p.problem("user %s may not create %v on the target: grant the tag policymaker", p.cfg.To.API.User, &p.policies[0])
	}
	return nil
}

// mirroring are the keys of policies about mirrored queues, which RabbitMQ 4 refuses. They have no effect on messages.
var mirroring = []string{
	"ha-mode", "ha-params", "ha-sync-mode", "ha-sync-batch-size", "ha-promote-on-shutdown", "ha-promote-on-failure", "queue-master-locator",
}

// withoutMirroring removes settings that the target does not know, and reports whether the policy has others.
func (p *planner) withoutMirroring(policy *doctor.Policy) bool {
	if strings.HasPrefix(p.to.Version, "3.") {
		return true
	}
	definition := maps.Clone(policy.Definition)
	var removed []string
	for _, key := range mirroring {
		if _, set := definition[key]; set {
			removed = append(removed, key)
			delete(definition, key)
		}
	}
	if removed == nil {
		return true
	}
	p.note("%v is moved without %s, which the target does not support (quorum queues are replicated)", policy, strings.Join(removed, ", "))
	policy.Definition = definition
	return len(definition) > 0
}

func same(a, b doctor.Policy) bool {
	return a.Pattern == b.Pattern && cmp.Or(a.ApplyTo, "all") == cmp.Or(b.ApplyTo, "all") && a.Priority == b.Priority && reflect.DeepEqual(a.Definition, b.Definition)
}
