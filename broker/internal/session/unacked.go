package session

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"
	"unsafe"

	"github.com/reprisemq/reprise/broker/internal/budget"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/vhost"
)

// delivery is an unacked message of a client.
type delivery struct {
	tag      uint64
	item     *queue.Item // nil: settled
	queue    *vhost.Queue
	consumer *consumer // nil: delivered by basic.get
	due      time.Time // deadline of the acknowledgement timeout; zero: none
	released bool      // requeued after a timeout; only the tag is valid
}

// unackedDeliveries holds the deliveries of a channel, sorted by tag. Tags only grow, and clients usually settle them in
// order. The list therefore has holes only where a delivery was settled before an earlier delivery.
type unackedDeliveries struct {
	list  []delivery
	from  int // index of the first unsettled delivery
	holes int // number of settled deliveries after from
	share budget.Share
}

// deliverySize is the memory of a delivery, without its message.
const deliverySize = int64(unsafe.Sizeof(delivery{}))

// unackedKeep is the maximum list capacity that a channel keeps while it has no unacked messages. The maximum is
// unackedScarce while memory is scarce, either for all connections or for the unacked deliveries of this connection.
const (
	unackedKeep   = 1024
	unackedScarce = 64
)

func (u *unackedDeliveries) len() int { return len(u.list) - u.from - u.holes }

func (u *unackedDeliveries) add(d delivery) {
	if len(u.list) == cap(u.list) && u.from >= len(u.list)/2 {
		u.compact() // reuse free space instead of growing
	}
	u.list = append(u.list, d)
	u.count()
}

func (u *unackedDeliveries) count() { u.share.Set(int64(cap(u.list)) * deliverySize) }

// free releases the memory of an empty list.
func (u *unackedDeliveries) free() {
	u.list = nil
	u.count()
}

// take removes the delivery with the given tag and appends it to dst. If multiple is set, take removes all deliveries
// up to the tag, or all deliveries if the tag is 0. It returns false if no unsettled delivery has the tag, unless the
// tag is 0 and multiple is set.
func (u *unackedDeliveries) take(dst []delivery, tag uint64, multiple bool) ([]delivery, bool) {
	if multiple && tag == 0 {
		return u.takeAll(dst), true
	}
	i, found := u.find(tag)
	if !found {
		return dst, false
	}
	first := i
	if multiple {
		first = u.from
	}
	return u.takeRange(dst, first, i+1), true
}

// find returns the index of the delivery with the given tag. Tags grow by at least one, so two deliveries are never further
// apart in the list than their tags. Most searches find the first delivery.
func (u *unackedDeliveries) find(tag uint64) (i int, found bool) {
	live := u.list[u.from:]
	if len(live) == 0 || tag < live[0].tag {
		return 0, false
	}
	live = live[:min(uint64(len(live)), tag-live[0].tag+1)]
	i = sort.Search(len(live)-1, func(i int) bool { return live[i].tag >= tag })
	return u.from + i, live[i].tag == tag && !settled(live[i])
}

func (u *unackedDeliveries) takeAll(dst []delivery) []delivery {
	return u.takeRange(dst, u.from, len(u.list))
}

func (u *unackedDeliveries) takeRange(dst []delivery, from, to int) []delivery {
	for i := from; i < to; i++ {
		if d := &u.list[i]; !settled(*d) {
			dst = append(dst, *d)
			*d = delivery{tag: d.tag} // keep the tag for searches
			u.holes++
		}
	}
	for u.from < len(u.list) && settled(u.list[u.from]) {
		u.from++
		u.holes--
	}
	if u.holes > u.len() || u.from == len(u.list) || u.isSparse() {
		u.compact()
	}
	return dst
}

// scarce reports whether the list should release unused capacity.
func (u *unackedDeliveries) scarce() bool {
	return u.share.Scarce() || u.share.Exceeds(throttlePercent)
}

// isSparse reports whether most of a long list is unused while memory is scarce. The unused capacity would prevent
// deliveries to consumers.
func (u *unackedDeliveries) isSparse() bool {
	return cap(u.list) > unackedKeep && u.len() <= cap(u.list)/4 && u.scarce()
}

// compact removes the holes.
func (u *unackedDeliveries) compact() {
	u.list = slices.DeleteFunc(u.list, settled)
	u.from, u.holes = 0, 0
	switch {
	case len(u.list) == 0 && (cap(u.list) > unackedKeep || cap(u.list) > unackedScarce && u.scarce()):
		u.free() // release the memory of a past burst
	case u.isSparse():
		u.list = append(make([]delivery, 0, 2*len(u.list)), u.list...)
		u.count()
	}
}

// restore reverts take.
func (u *unackedDeliveries) restore(ds []delivery) {
	u.compact()
	u.list = append(u.list, ds...)
	u.count()
	slices.SortFunc(u.list, func(a, b delivery) int { return cmp.Compare(a.tag, b.tag) })
}

func settled(d delivery) bool { return d.item == nil }

// byConsumer compares deliveries by their consumers, in the order of subscription. Messages from basic.get come last.
// When a channel is closed, its messages return to a quorum queue in this order. A classic queue restores the
// original order.
func byConsumer(a, b delivery) int {
	number := func(d delivery) uint64 {
		if d.consumer == nil {
			return math.MaxUint64
		}
		return d.consumer.number
	}
	return cmp.Compare(number(a), number(b))
}
