package queue

import (
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/reprisemq/reprise/internal/store"
)

// A queue reads its messages back a chunk at a time, a small one first, larger ones while they are asked for.
const (
	chunkMin   = 16
	chunkMax   = 1024
	chunkBytes = 256 << 10
)

// roomFor is how many messages a queue may have in memory however little of it there is.
const roomFor = 64

// maxDead is how many dead letters are waiting to be sent when no more messages are read that may only add to them.
const maxDead = 4 * lettersAtATime

// retryLoad is how long it takes until what could not be read is tried again.
const retryLoad = 5 * time.Second

// errMissing tells of a mistake, of ours or of whoever changed the files. To wait for what is not there would hold up those
// behind it.
var errMissing = errors.New("messages were counted that are not there")

// segment is the messages of a level that are on disk only.
type segment struct {
	n       int
	bytes   int64
	after   uint64 // an order: they come after it
	chunk   int    // how many were asked for last
	loading bool
	load    uint64 // which one it is: another one began if the queue was purged meanwhile
}

// enter adds a message to those that are ready, and to the store if it has to be there.
func (q *Queue) enter(it *Item) {
	if q.spills(it) {
		q.keep(it)
		q.ready.pushTail(it)
		q.awaitDisk()
		return
	}
	if q.keeps(it.Message) {
		q.keep(it)
	}
	q.ready.push(it)
}

// spills reports whether there is no room in memory for a message, or there was none for the one before it.
func (q *Queue) spills(it *Item) bool {
	if q.config.Store == nil {
		return false
	}
	l := q.ready.level(it.priority)
	return l.spilled() || l.fresh.len() >= roomFor && q.config.Meter.Used() > q.config.Resident
}

// awaitDisk has [Queue.Committed] called when the messages in the tails are on disk.
func (q *Queue) awaitDisk() {
	if !q.awaiting {
		q.awaiting = true
		q.config.Store.Notify(q)
	}
}

// Committed implements [store.Waiter]: it lets go of messages that are on disk now.
func (q *Queue) Committed(upTo store.Ticket) {
	q.mu.Lock()
	defer q.unlock()
	q.awaiting = false
	if q.deleted {
		return
	}
	left := false
	for p := range q.ready.levels {
		l := &q.ready.levels[p]
		for it := l.tail.head(); it != nil && it.ref.Ticket <= upTo; it = l.tail.head() {
			q.ready.spill(l)
			q.config.Meter.Add(-it.Message.Size())
		}
		left = left || l.tail.len() > 0
	}
	if left {
		q.awaitDisk()
	}
}

// fetch has messages read that are soon to be at the head.
func (q *Queue) fetch() {
	if q.ready.onDisk == 0 || q.deleted || q.closed || len(q.dead.next)+len(q.dead.stranded) > maxDead {
		return
	}
	for p := range q.ready.levels {
		l := &q.ready.levels[p]
		if l.disk.n > 0 && !l.disk.loading && l.fresh.len() <= l.disk.chunk/2 {
			l.disk.loading = true
			q.config.Go(func() { q.load(uint8(p)) })
		}
	}
}

// load reads a chunk.
func (q *Queue) load(p uint8) {
	q.mu.Lock()
	l := q.ready.level(p)
	disk := &l.disk
	disk.chunk = min(max(chunkMin, 2*disk.chunk), chunkMax)
	q.loads++
	disk.load = q.loads
	was, before := *disk, q.order+1
	if it := l.tail.head(); it != nil {
		before = it.order
	}
	q.mu.Unlock()

	items, err := q.read(p, was.after, before, min(was.chunk, was.n))

	q.mu.Lock()
	defer q.unlock()
	defer q.arrived.Broadcast()
	disk = &q.ready.level(p).disk
	switch {
	case q.deleted || q.closed:
	case disk.load != was.load: // what was read has been purged
	case errors.Is(err, errMissing):
		disk.loading = false
		q.config.Trouble(fmt.Errorf("%w: %d messages", err, was.n))
		q.config.Store.DeleteRange(q.config.ID, p, was.after, was.after+1, was.n, was.bytes)
		q.ready.lose(p, was)
		q.loaded(p, nil)
	case err != nil:
		// It may pass, and others may still be readable: nothing is given up.
		q.config.Trouble(err)
		time.AfterFunc(retryLoad, func() { q.loadAgain(p, was.load) })
	default:
		disk.loading = false
		q.loaded(p, items)
	}
}

func (q *Queue) loadAgain(p uint8, load uint64) {
	q.mu.Lock()
	defer q.unlock()
	if disk := &q.ready.level(p).disk; disk.load == load {
		disk.loading = false
	}
}

// read reads messages whose order is between two others.
func (q *Queue) read(p uint8, after, before uint64, n int) ([]*Item, error) {
	if n == 0 {
		return nil, nil
	}
	read, err := q.config.Store.Load(q.config.ID, p, after, n, chunkBytes)
	if err != nil {
		return nil, err
	}
	read = read[:sort.Search(len(read), func(i int) bool { return read[i].Order >= before })]
	if len(read) == 0 {
		return nil, errMissing
	}
	items := make([]*Item, len(read))
	for i, r := range read {
		if items[i], err = q.restored(r); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// loaded takes messages back into memory.
func (q *Queue) loaded(p uint8, items []*Item) {
	l := q.ready.level(p)
	for _, it := range items {
		q.ready.load(l, it)
		q.config.Meter.Add(it.Message.Size())
	}
	l.catchUp()
	q.dispatch()
	q.trim()
}
