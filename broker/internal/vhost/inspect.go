package vhost

import (
	"cmp"
	"slices"

	"github.com/reprisemq/reprise/broker/internal/route"
	"github.com/reprisemq/reprise/broker/internal/stats"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// About is the metadata of a virtual host.
type About struct {
	Description string
	Tags        []string
	QueueType   string // type of new queues that are declared without a type: "quorum", or "" for classic
	Protected   *bool  // whether the management API refuses to delete the virtual host; nil if it was never set
}

// About returns the description set by SetAbout.
func (v *VHost) About() About {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.about
}

// SetAbout sets and saves the description.
func (v *VHost) SetAbout(about About) {
	v.change.Lock()
	defer v.change.Unlock()
	v.saveHost(about)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.about = about
}

// Messages returns the message totals of the channels of this virtual host.
func (v *VHost) Messages() *stats.Totals { return &v.messages }

// ExchangeInfo contains the declared properties of an exchange.
type ExchangeInfo struct {
	Name                          string
	Kind                          route.Kind
	Durable, AutoDelete, Internal bool
	Arguments                     amqpwire.Table
	Applied                       Applied
	Waiting                       *Queue // queue of the delayed messages, or nil
}

// Delayed returns the number of messages whose delay is not over, and of messages that target queues have refused. It
// returns false if the exchange does not delay messages.
func (x ExchangeInfo) Delayed() (n int, ok bool) {
	if x.Waiting == nil {
		return 0, false
	}
	s := x.Waiting.Stats()
	return s.Delayed + s.Dead, true
}

// Exchanges returns the exchanges, sorted by name.
func (v *VHost) Exchanges() []ExchangeInfo {
	v.mu.RLock()
	var all []ExchangeInfo
	for x := range v.routes.Exchanges() {
		all = append(all, v.exchangeInfo(x))
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

// Exchange returns the named exchange, and reports whether it exists.
func (v *VHost) Exchange(name string) (ExchangeInfo, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	x := v.routes.Exchange(name)
	if x == nil {
		return ExchangeInfo{}, false
	}
	return v.exchangeInfo(x), true
}

// WithExchange calls do if the exchange exists. The exchange is not deleted during the call, which must not use the virtual
// host.
func (v *VHost) WithExchange(name string, do func()) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.routes.Exchange(name) != nil {
		do()
	}
}

// exchangeInfo describes an exchange. The caller holds the lock mu.
func (v *VHost) exchangeInfo(x *route.Exchange[*Queue]) ExchangeInfo {
	args, _ := x.Arguments.(amqpwire.Table)
	return ExchangeInfo{
		Name: x.Name, Kind: x.Kind, Durable: x.Durable, AutoDelete: x.AutoDelete, Internal: x.Internal, Arguments: args,
		Applied: v.exchangePolicies[x.Name],
		Waiting: x.Waiting,
	}
}

// Queues returns the queues, sorted by name. It omits the queues of direct reply-to.
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

// FindQueue returns the named queue, regardless of its owner. It returns nil if the queue does not exist or is a
// queue of direct reply-to.
func (v *VHost) FindQueue(name string) *Queue {
	if isReply(name) {
		return nil
	}
	return v.lookupQueue(name)
}

// Bindings returns the explicit bindings, sorted by source, destination and key. The default exchange has no bindings.
func (v *VHost) Bindings() []BindingInfo {
	return v.BindingsWhere(func(BindingInfo) bool { return true })
}

// BindingsWhere returns the bindings for which wanted returns true, in the order of Bindings. The function wanted
// must not call methods of the virtual host.
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
