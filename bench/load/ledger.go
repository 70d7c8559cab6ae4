package load

import (
	"fmt"
	"math/bits"
)

// flow identifies the messages of one publisher in one queue.
type flow struct {
	queue     int
	publisher uint16
}

// receivedSet contains the numbers of the received messages of a flow.
type receivedSet struct {
	numbers bitset
	highest int64 // the last received number, or -1; numbers must ascend
}

// ledger records the messages that a consumer has received, and detects duplicates and reordered messages. At the
// end, the function settle finds lost messages.
type ledger struct {
	run   uint16
	flows map[flow]*receivedSet

	last     flow // the flow of the last lookup in flows
	lastSeen *receivedSet
}

func newLedger(run uint16) *ledger { return &ledger{run: run, flows: make(map[flow]*receivedSet)} }

// furthest is the maximum gap between a received number and the previous one. A larger gap is reported as an error,
// before it could make the bitset too large.
const furthest = 1 << 26

// receive records a message from a queue.
func (l *ledger) receive(queue int, s stamp) error {
	if s.run != l.run {
		return fmt.Errorf("queue %d has a message that this run has not published", queue)
	}
	f := flow{queue, s.publisher}
	if f != l.last || l.lastSeen == nil {
		if l.last, l.lastSeen = f, l.flows[f]; l.lastSeen == nil {
			l.lastSeen = &receivedSet{highest: -1}
			l.flows[f] = l.lastSeen
		}
	}
	got, n := l.lastSeen, int64(s.number)
	switch {
	case n > got.highest+furthest:
		return fmt.Errorf("queue %d: message %d of publisher %d after %d", queue, n, s.publisher, got.highest)
	case !got.numbers.add(n):
		return fmt.Errorf("queue %d: message %d of publisher %d was delivered twice", queue, n, s.publisher)
	case n < got.highest:
		return fmt.Errorf("queue %d: message %d of publisher %d was delivered after message %d", queue, n, s.publisher, got.highest)
	}
	got.highest = n
	return nil
}

// settle checks that the consumers together have received each published message of each flow exactly once.
func settle(published map[flow]int64, ledgers []*ledger) error {
	all := make(map[flow]*bitset)
	for _, l := range ledgers {
		for f, got := range l.flows {
			if all[f] == nil {
				all[f] = new(bitset)
			}
			if n, twice := all[f].merge(&got.numbers); twice {
				return fmt.Errorf("queue %d: message %d of publisher %d was delivered to two consumers", f.queue, n, f.publisher)
			}
		}
	}
	for f, n := range published {
		got := all[f]
		if got == nil {
			got = new(bitset)
		}
		if missing := got.missing(n); missing > 0 {
			return fmt.Errorf("queue %d: %d of %d messages of publisher %d were lost", f.queue, missing, n, f.publisher)
		}
	}
	for f, got := range all {
		if n := int64(got.count()); n != published[f] {
			return fmt.Errorf("queue %d: got %d messages of publisher %d, which published %d", f.queue, n, f.publisher, published[f])
		}
	}
	return nil
}

// bitset is a set of small non-negative integers.
type bitset []uint64

// add adds n and reports whether n is new to the set.
func (b *bitset) add(n int64) bool {
	word, bit := int(n/64), uint64(1)<<(n%64)
	if word >= len(*b) {
		*b = append(*b, make([]uint64, word+1-len(*b))...)
	}
	if (*b)[word]&bit != 0 {
		return false
	}
	(*b)[word] |= bit
	return true
}

// merge adds the elements of o to b. If the sets have an element in common, merge stops and returns that element and
// true.
func (b *bitset) merge(o *bitset) (n int64, twice bool) {
	if len(*o) > len(*b) {
		*b = append(*b, make([]uint64, len(*o)-len(*b))...)
	}
	for i, word := range *o {
		if both := (*b)[i] & word; both != 0 {
			return int64(i)*64 + int64(bits.TrailingZeros64(both)), true
		}
		(*b)[i] |= word
	}
	return 0, false
}

// missing returns the number of non-negative integers below n that the set does not contain.
func (b *bitset) missing(n int64) (missing int64) {
	missing = n
	for i, word := range *b {
		if below := n - int64(i)*64; below < 64 {
			word &= 1<<max(below, 0) - 1
		}
		missing -= int64(bits.OnesCount64(word))
	}
	return missing
}

func (b *bitset) count() (n int) {
	for _, word := range *b {
		n += bits.OnesCount64(word)
	}
	return n
}
