package vhost

import (
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/route"
)

// Trial returns a copy of the virtual host with the names and the types of its exchanges and queues. The copies do not
// count toward the limits in config.
func (v *VHost) Trial(config Config) *VHost {
	t := newVHost(v.name, config)
	t.about = v.About()
	for _, operator := range []bool{false, true} {
		for _, p := range v.Policies(operator) {
			t.policiesFor(operator)[p.Name] = p
		}
	}
	for _, x := range v.Exchanges() {
		rule, _ := v.exchangeRule(x.Name, x.Kind, x.Arguments) // checked before
		t.routes.Add(route.Exchange[*Queue]{
			Name: x.Name, Kind: x.Kind, Rule: rule, Durable: x.Durable, AutoDelete: x.AutoDelete, Internal: x.Internal, Arguments: x.Arguments,
		})
	}
	for _, q := range v.Queues() {
		config := queue.Defaults(q.Name())
		config.Quorum = q.Config().Quorum
		config.Expired = func() {} // a policy can set a queue TTL
		t.queues[q.Name()] = &Queue{Queue: queue.New(config), vhost: t, Durable: q.Durable, Owner: q.Owner}
	}
	return t
}
