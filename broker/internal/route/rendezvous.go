package route

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
)

// rendezvous is the matcher of exchanges of the type [ConsistentHash]. It routes a message to one destination, by the hash
// of a key, a header or a property. The share of a destination is proportional to its weight, which is the binding key.
//
// RabbitMQ assigns the hashes to numbered buckets. Weighted rendezvous hashing has two advantages: the destination of a
// hash does not depend on the order of the bindings, which differs after a restart, and a change of one destination moves
// only messages to or from this destination.
type rendezvous[Q comparable] struct {
	candidates []candidate[Q]
	queueName  func(Q) string
	hashed     func(Message) any // the value that determines the destination
}

// candidate is a destination. Like RabbitMQ, the matcher ignores the weights of its later bindings.
type candidate[Q comparable] struct {
	to      Destination[Q]
	hash    uint64
	weights []int
}

// MaxWeight is the maximum weight of a binding.
const MaxWeight = 10_000

// Weight returns the weight of a binding to an exchange of the type [ConsistentHash]. If the key is not an integer, ok is
// false. An integer that exceeds the range of an int becomes the nearest int.
func Weight(key string) (weight int, ok bool) {
	weight, err := strconv.Atoi(key)
	if err != nil {
		e, _ := err.(*strconv.NumError)
		return weight, e.Err == strconv.ErrRange
	}
	return weight, true
}

// Arguments of an exchange of the type [ConsistentHash].
const (
	HashHeader   = "hash-header"
	HashProperty = "hash-property"
)

// HashProperties contains the permitted values of [HashProperty] and the names of these properties.
var HashProperties = map[string]string{
	"correlation_id": "correlation-id", "message_id": "message-id", "timestamp": "timestamp",
}

// hashedBy returns a function that returns the value that determines the destination of a message.
func hashedBy(args Arguments) func(Message) any {
	if args == nil {
		return func(m Message) any { return m.Key }
	}
	if name, _ := args.Get(HashHeader); name != nil {
		header, _ := text(name)
		return func(m Message) any {
			if m.Headers == nil {
				return nil
			}
			value, _ := m.Headers.Get(header)
			return value
		}
	}
	if name, _ := args.Get(HashProperty); name != nil {
		property, _ := text(name)
		return func(m Message) any { return m.Source.Property(HashProperties[property]) }
	}
	return func(m Message) any { return m.Key }
}

func (r *rendezvous[Q]) index(d Destination[Q]) int {
	return slices.IndexFunc(r.candidates, func(c candidate[Q]) bool { return c.to == d })
}

func (r *rendezvous[Q]) add(b Binding[Q]) {
	weight, _ := Weight(b.Key)
	if i := r.index(b.Destination); i >= 0 {
		r.candidates[i].weights = append(r.candidates[i].weights, weight)
		return
	}
	name := "queue "
	if x := b.Destination.Exchange; x != nil {
		name = "exchange " + x.Name
	} else {
		name += r.queueName(b.Destination.Queue)
	}
	r.candidates = append(r.candidates, candidate[Q]{b.Destination, hash(name), []int{weight}})
}

func (r *rendezvous[Q]) remove(b Binding[Q]) {
	i := r.index(b.Destination)
	c := &r.candidates[i]
	weight, _ := Weight(b.Key)
	at := slices.Index(c.weights, weight)
	c.weights = slices.Delete(c.weights, at, at+1)
	if len(c.weights) == 0 {
		r.candidates = slices.Delete(r.candidates, i, i+1)
	}
}

func (r *rendezvous[Q]) match(dst []Destination[Q], _ string, m Message) []Destination[Q] {
	if len(r.candidates) == 0 {
		return dst
	}
	key, best, highest := hash(hashText(r.hashed(m))), 0, math.Inf(-1)
	for i, c := range r.candidates {
		// The score of the destination is -weight/ln(u), with u uniform in (0, 1).
		u := (float64(mix(key^c.hash)>>11) + 0.5) / (1 << 53)
		if score := -float64(c.weights[0]) / math.Log(u); score > highest {
			best, highest = i, score
		}
	}
	return append(dst, r.candidates[best].to)
}

// hashText returns a text for a value, so that equal values have equal texts.
func hashText(v any) string {
	if s, ok := text(v); ok {
		return s
	}
	if n, ok := integer(v); ok {
		return "integer " + strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%T %v", v, v)
}

func hash(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // never fails
	return mix(h.Sum64())
}

// mix distributes the bits of a hash (the finalizer of MurmurHash3).
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
