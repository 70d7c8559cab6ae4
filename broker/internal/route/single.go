package route

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"github.com/reprisemq/reprise/broker/internal/erlang"
)

// single is the matcher of exchanges that route a message to one of their bindings, regardless of the binding keys. Like
// RabbitMQ, it counts a destination once for each of its bindings.
type single[Q comparable] struct {
	bound  refs[Q]
	sorted atomic.Pointer[[]Destination[Q]] // nil after a change

	queueName func(Q) string
	choose    func(n int, key string, more []string) int
}

// randomly implements [LocalRandom] and [Random].
func randomly(n int, _ string, _ []string) int { return rand.IntN(n) }

// byHash implements [ModulusHash]. Messages with the same keys have the same destination.
func byHash(n int, key string, more []string) int { return int(erlang.Hash(key, more...)) % n }

func (m *single[Q]) add(b Binding[Q]) {
	m.bound.add(b.Destination)
	m.sorted.Store(nil)
}

func (m *single[Q]) remove(b Binding[Q]) {
	m.bound.remove(b.Destination)
	m.sorted.Store(nil)
}

func (m *single[Q]) match(dst []Destination[Q], _ string, message Message) []Destination[Q] {
	all := m.sorted.Load()
	if all == nil {
		all = new(m.sort())
		m.sorted.Store(all)
	}
	if len(*all) == 0 {
		return dst
	}
	return append(dst, (*all)[m.choose(len(*all), message.Key, message.More)])
}

// sort returns the destinations of all bindings in the order of RabbitMQ: exchanges before queues, then by name.
func (m *single[Q]) sort() []Destination[Q] {
	var all []Destination[Q]
	for d, n := range m.bound {
		all = append(all, slices.Repeat([]Destination[Q]{d}, n)...)
	}
	slices.SortFunc(all, func(a, b Destination[Q]) int {
		switch {
		case a.Exchange != nil && b.Exchange != nil:
			return cmp.Compare(a.Exchange.Name, b.Exchange.Name)
		case a.Exchange != nil:
			return -1
		case b.Exchange != nil:
			return 1
		}
		return cmp.Compare(m.queueName(a.Queue), m.queueName(b.Queue))
	})
	return all
}
