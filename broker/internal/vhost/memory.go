package vhost

import (
	"maps"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/broker/internal/budget"
	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/route"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Approximate memory of objects, without names and arguments.
const (
	queueSize    = 1536
	quorumSize   = 4 << 10 // additional, for priorities and requeued messages
	prioritySize = 320     // for each priority of a classic queue
	exchangeSize = 384
	policySize   = 512
	bindingSize  = 768
	wordSize     = 384 // for each word of the key of a binding to a topic exchange
)

// Owner is the connection that owns exclusive queues. The memory of an exclusive queue counts against the limit of its
// connection, because the broker deletes the queue with the connection. The memory of all other objects has a separate
// limit.
type Owner interface {
	Account() *budget.Account
}

func accountOf(owner any) *budget.Account {
	if o, ok := owner.(Owner); ok {
		return o.Account()
	}
	return nil
}

func sizeOfQueue(c *queue.Config, args amqpwire.Table) int64 {
	n := queueSize + int64(len(c.Name)) + args.Footprint() + prioritySize*int64(c.MaxPriority)
	if c.Quorum {
		n += quorumSize
	}
	return n
}

func sizeOfExchange(name, kind string, args amqpwire.Table) int64 {
	n := exchangeSize + int64(len(name)) + args.Footprint()
	if route.Kind(kind) == route.Delayed {
		n += queueSize
	}
	return n
}

func sizeOfBinding(x *route.Exchange[*Queue], b route.Binding[*Queue]) int64 {
	args, _ := b.Arguments.(amqpwire.Table)
	n := bindingSize + int64(len(b.Key)+len(b.Encoded)) + args.Footprint()
	if x.Kind == route.Topic {
		n += wordSize * int64(1+strings.Count(b.Key, "."))
	}
	return n
}

// addOwned makes a new queue an exclusive queue of a connection.
func (v *VHost) addOwned(q *Queue, owner any) {
	v.sizes.Lock()
	defer v.sizes.Unlock()
	q.Owner, q.account, q.owned = owner, accountOf(owner), true
	if v.owned[owner] == nil {
		v.owned[owner] = make(map[*Queue]struct{})
	}
	v.owned[owner][q] = struct{}{}
}

// ownedBy returns the exclusive queues of a connection.
func (v *VHost) ownedBy(owner any) []*Queue {
	v.sizes.Lock()
	defer v.sizes.Unlock()
	return slices.Collect(maps.Keys(v.owned[owner]))
}

// release removes a queue from its owner. If transactions of other connections still refer to the queue, its remaining
// memory counts against the limit of the topology.
func (v *VHost) release(q *Queue) {
	v.sizes.Lock()
	defer v.sizes.Unlock()
	if !q.owned {
		return
	}
	left := q.size
	v.count(-left, q)
	q.owned = false
	v.count(left, q)
	delete(v.owned[q.Owner], q)
	if len(v.owned[q.Owner]) == 0 {
		delete(v.owned, q.Owner)
	}
}

// reserve reserves memory for a new object. If the object belongs to an exclusive queue, the memory counts against the
// limit of the queue's connection. Otherwise it counts against the limit of the topology. While objects are loaded from
// disk, and after the virtual host is closed, reserve ignores the limit.
func (v *VHost) reserve(n int64, of *Queue, what string) error {
	v.sizes.Lock()
	defer v.sizes.Unlock()
	if of != nil && of.owned || v.loading || v.ended {
		v.count(n, of)
		return nil
	}
	if !v.config.Topology.Take(n) {
		return exception.New(exception.PreconditionFailed, "cannot declare %s: memory limit for queues, exchanges and bindings "+
			"(%d bytes) is reached; to raise it, set TopologyMemoryLimit or --topology-memory-limit", what, v.config.Topology.Most())
	}
	v.size += n
	return nil
}

// free releases memory that reserve reserved.
func (v *VHost) free(n int64, of *Queue) {
	v.sizes.Lock()
	defer v.sizes.Unlock()
	v.count(-n, of)
}

func (v *VHost) count(n int64, of *Queue) {
	switch {
	case of != nil && of.owned:
		of.size += n
		of.account.Take(budget.Queues, n)
	case !v.ended:
		v.size += n
		v.config.Topology.Force(n)
	}
}

// freeAll releases the memory of all objects when the virtual host is closed.
func (v *VHost) freeAll(queues map[string]*Queue) {
	v.sizes.Lock()
	defer v.sizes.Unlock()
	for _, q := range queues {
		if q.owned {
			v.count(-q.size, q)
		}
	}
	v.count(-v.size, nil)
	v.ended = true
}

func (v *VHost) unbound(x *route.Exchange[*Queue], b route.Binding[*Queue]) {
	v.deleteSavedBinding(x, b)
	v.free(sizeOfBinding(x, b), b.Destination.Queue)
}

func (v *VHost) exchangeDeleted(x *route.Exchange[*Queue]) {
	v.deleteSavedExchange(x)
	delete(v.exchangePolicies, x.Name)
	v.config.ExchangeDeleted(v.name, x.Name)
	args, _ := x.Arguments.(amqpwire.Table)
	v.free(sizeOfExchange(x.Name, string(x.Kind), args), nil)
	if x.Rule.Varies() {
		v.varying.Add(-1)
	}
	if x.Waiting != nil {
		x.Waiting.Delete(queue.Condition{})
	}
	if h := v.histories[x]; h != nil {
		h.clear()
		delete(v.histories, x)
	}
}
