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

// delivery is a message that a client has and has not settled.
type delivery struct {
	tag      uint64
	item     *queue.Item // nil: settled
	queue    *vhost.Queue
	consumer *consumer // nil: it was asked for by basic.get
	due      time.Time // when it has to be settled; zero: never
	released bool      // it was not, and is back in its queue: nothing is left of it but the tag
}

// unacked holds a channel's deliveries by tag. Tags only grow and are mostly settled in order, so they are a list, with
// holes where one was settled before its elders.
type unacked struct {
	list  []delivery
	from  int // the first that is not settled: those before it are gone
	holes int // behind it
	share budget.Share
}

// deliverySize is how much memory a delivery takes, beside the message.
const deliverySize = int64(unsafe.Sizeof(delivery{}))

// unackedKeep is how much room a channel keeps that has nothing unacked. While memory for connections, or for the unacked
// deliveries of this one, is scarce, it is unackedScarce.
const (
	unackedKeep   = 1024
	unackedScarce = 64
)

func (u *unacked) len() int { return len(u.list) - u.from - u.holes }

func (u *unacked) add(d delivery) {
	if len(u.list) == cap(u.list) && u.from >= len(u.list)/2 {
		u.compact() // makes room where others would grow
	}
	u.list = append(u.list, d)
	u.count()
}

func (u *unacked) count() { u.share.Set(int64(cap(u.list)) * deliverySize) }

// free lets go of the room of an empty list.
func (u *unacked) free() {
	u.list = nil
	u.count()
}

// take removes one delivery, or with multiple all up to that tag, where zero stands for all there are, and appends them to
// dst. It fails when the tag is not that of an unsettled delivery.
func (u *unacked) take(dst []delivery, tag uint64, multiple bool) ([]delivery, bool) {
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

// find returns where a tag is. Tags grow by one at least: that bounds how far it can be from the first one, which is the
// one looked for most of the time.
func (u *unacked) find(tag uint64) (i int, found bool) {
	live := u.list[u.from:]
	if len(live) == 0 || tag < live[0].tag {
		return 0, false
	}
	live = live[:min(uint64(len(live)), tag-live[0].tag+1)]
	i = sort.Search(len(live)-1, func(i int) bool { return live[i].tag >= tag })
	return u.from + i, live[i].tag == tag && !settled(live[i])
}

func (u *unacked) takeAll(dst []delivery) []delivery { return u.takeRange(dst, u.from, len(u.list)) }

func (u *unacked) takeRange(dst []delivery, from, to int) []delivery {
	for i := from; i < to; i++ {
		if d := &u.list[i]; !settled(*d) {
			dst = append(dst, *d)
			*d = delivery{tag: d.tag} // by which its neighbours are found
			u.holes++
		}
	}
	for u.from < len(u.list) && settled(u.list[u.from]) {
		u.from++
		u.holes--
	}
	if u.holes > u.len() || u.from == len(u.list) || u.roomy() {
		u.compact()
	}
	return dst
}

// scarce reports whether room that is not needed is to be given up.
func (u *unacked) scarce() bool { return u.share.Scarce() || u.share.Exceeds(unackedMuch) }

// roomy reports whether a list that has been long is mostly room while that is scarce, which keeps consumers from getting more.
func (u *unacked) roomy() bool {
	return cap(u.list) > unackedKeep && u.len() <= cap(u.list)/4 && u.scarce()
}

// compact closes the holes.
func (u *unacked) compact() {
	u.list = slices.DeleteFunc(u.list, settled)
	u.from, u.holes = 0, 0
	switch {
	case len(u.list) == 0 && (cap(u.list) > unackedKeep || cap(u.list) > unackedScarce && u.scarce()):
		u.free() // one burst must not keep its room for ever
	case u.roomy():
		u.list = append(make([]delivery, 0, 2*len(u.list)), u.list...)
		u.count()
	}
}

// putBack undoes take.
func (u *unacked) putBack(ds []delivery) {
	u.compact()
	u.list = append(u.list, ds...)
	u.count()
	slices.SortFunc(u.list, func(a, b delivery) int { return cmp.Compare(a.tag, b.tag) })
}

func settled(d delivery) bool { return d.item == nil }

// byConsumer compares deliveries by who has them: the consumers as they came, then whoever asked by basic.get. In this order
// they come back to a quorum queue when their channel ends; to a classic one they come back in their own.
func byConsumer(a, b delivery) int {
	number := func(d delivery) uint64 {
		if d.consumer == nil {
			return math.MaxUint64
		}
		return d.consumer.number
	}
	return cmp.Compare(number(a), number(b))
}
