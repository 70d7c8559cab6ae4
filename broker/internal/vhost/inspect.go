package vhost

import (
	"cmp"
	"slices"

	"github.com/reprisemq/reprise/broker/internal/route"
	"github.com/reprisemq/reprise/broker/internal/stats"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// About is what people say about a virtual host. It changes nothing.
type About struct {
	Description string
	Tags        []string
}

// About returns what SetAbout was told.
func (v *VHost) About() About {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.about
}

// SetAbout keeps a description.
func (v *VHost) SetAbout(about About) {
	v.change.Lock()
	defer v.change.Unlock()
	v.keepHost(about)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.about = about
}

// Messages counts the messages of the channels to this virtual host.
func (v *VHost) Messages() *stats.Totals { return &v.messages }

// ExchangeInfo is what an exchange was declared as.
type ExchangeInfo struct {
	Name                          string
	Kind                          route.Kind
	Durable, AutoDelete, Internal bool
	Arguments                     amqpwire.Table
}

// Exchanges returns the exchanges by name.
func (v *VHost) Exchanges() []ExchangeInfo {
	v.mu.RLock()
	var all []ExchangeInfo
	for x := range v.routes.Exchanges() {
		all = append(all, exchangeInfo(x))
	}
	v.mu.RUnlock()
	slices.SortFunc(all, func(a, b ExchangeInfo) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// ExchangeCount returns the number of exchanges.
func (v *VHost) ExchangeCount() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.routes.Len()
}

// Exchange returns the exchange with that name.
func (v *VHost) Exchange(name string) (ExchangeInfo, bool) {
	x := v.lookupExchange(name)
	if x == nil {
		return ExchangeInfo{}, false
	}
	return exchangeInfo(x), true
}

func exchangeInfo(x *route.Exchange[*Queue]) ExchangeInfo {
	args, _ := x.Arguments.(amqpwire.Table)
	return ExchangeInfo{
		Name: x.Name, Kind: x.Kind, Durable: x.Durable, AutoDelete: x.AutoDelete, Internal: x.Internal, Arguments: args,
	}
}

// Queues returns the queues by name, but for those that stand for direct replies.
func (v *VHost) Queues() []*Queue {
	v.mu.RLock()
	var all []*Queue
	for name, q := range v.queues {
		if !isReply(name) {
			all = append(all, q)
		}
	}
	v.mu.RUnlock()
	slices.SortFunc(all, func(a, b *Queue) int { return cmp.Compare(a.Name(), b.Name()) })
	return all
}

// FindQueue returns the queue with that name, whoever it belongs to; nil: there is none.
func (v *VHost) FindQueue(name string) *Queue {
	if isReply(name) {
		return nil
	}
	return v.lookupQueue(name)
}

// Bindings returns the bindings that were made, ordered by where they lead from and to. The default exchange has none.
func (v *VHost) Bindings() []BindingInfo {
	return v.BindingsWhere(func(BindingInfo) bool { return true })
}

// BindingsWhere returns the bindings that are wanted, in the same order. The function must not use the virtual host.
func (v *VHost) BindingsWhere(wanted func(BindingInfo) bool) []BindingInfo {
	v.mu.RLock()
	var all []BindingInfo
	for x := range v.routes.Exchanges() {
		for b := range x.Bindings() {
			info := BindingInfo{Source: x.Name, Key: b.Key}
			info.Arguments, _ = b.Arguments.(amqpwire.Table)
			if to := b.Destination.Exchange; to != nil {
				info.Destination, info.ToExchange = to.Name, true
			} else {
				info.Destination = b.Destination.Queue.Name()
			}
			if wanted(info) {
				all = append(all, info)
			}
		}
	}
	v.mu.RUnlock()
	slices.SortFunc(all, func(a, b BindingInfo) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Destination, b.Destination), cmp.Compare(a.Key, b.Key))
	})
	return all
}
