package diskstore

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/reprisemq/reprise/broker/internal/alarm"
)

// linger is how long changes that nobody waits for are gathered: acknowledgements, mostly. While a commit is being written
// they wait for its end, too, and then for that of the commit that has them. A broker that dies before has those messages
// delivered again, as redelivered, which can happen to any acknowledgement on its way.
const linger = 10 * time.Millisecond

// disk is the Store on a file system, in Pebble (https://github.com/cockroachdb/pebble).
//
// Locks are taken in this order: hold, mu.
type disk struct {
	db      *pebble.DB
	fs      *guard
	dir     string
	log     *slog.Logger
	lock    *pebble.Lock
	unclean bool

	hold sync.RWMutex // locked for writing while a commit is sealed

	mu        sync.Mutex
	gathering gathering
	partBytes int64               // but for tests, the constant of that name
	holders   int                 // between Hold and Release
	counts    map[uint64][]*count // by queue
	committed Ticket
	progress  *sync.Cond // committed or err has changed
	err       error      // why there will be no more commits
	cause     error      // the write that failed, if one has

	backlog alarm.Alarm   // raised while more than backlogBytes are gathered
	running atomic.Bool   // neither being opened nor closed
	corrupt sync.Map      // files that have been complained of
	harm    sync.Once     // closes damaged
	began   atomic.Int64  // when the commit began that is being written, in Unix nanoseconds; 0: there is none
	wake    chan struct{} // there is something to be committed
	lazy    *time.Timer   // wakes after linger
	closing chan struct{}
	stopped chan struct{} // the committing goroutine has ended
	failed  chan struct{}
	damaged chan struct{} // closed by harmed

	everything bool // is read before the store is opened
}

// gathering is what the next commit will make durable.
type gathering struct {
	ticket  Ticket
	changes []change
	dropped int   // of the changes, undone before they were written
	size    int64 // of all the changes that are not undone, about
	others  []other
	parts   []part
	waiters []Waiter
	lazily  bool // lazy is running

	// Of the part that is not complete:
	from   int      // its first change
	bytes  int64    // of messages, about
	counts []*count // that have changed
}

// part is what is written in one batch. There is mostly one; a batch cannot be larger than 4 GiB, and had better be a good
// deal smaller, since it is a copy.
type part struct {
	changes, others int // their number, with those of the parts before
	counts          []tally
}

// partBytes is how large a part may get before the next one begins, unless what belongs together is being asked for.
const partBytes = 64 << 20

const (
	// backlogBytes is how much is gathered before publishers wait for the commit to begin. An acknowledgement is on disk when
	// the running commit and the next one are written, so this bounds its delay. A smaller bound costs throughput: it leaves
	// the disk idle while publishers catch up, and the publishers while the disk does.
	backlogBytes = 16 << 20
	// changeBytes is about what a change takes besides the message.
	changeBytes = 128
)

// change is what happens to a message. It puts or deletes the entry's key, or if it was undone does nothing.
type change struct {
	kind  kind
	entry Entry // of a deletion, only the key
}

// other is a change that is not of one message.
type other struct {
	before int // which of the changes it comes
	do     func(*pebble.Batch) error
}

type kind uint8

const (
	undone kind = iota
	put         // of a key that is not there
	update      // of one that is
	deletion
)

// Put implements [store.Store].
func (d *disk) Put(e Entry) Ref {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count(e.Key, 1, e.Bytes, e.Transient)
	return d.put(put, e)
}

// Update implements [store.Store].
func (d *disk) Update(e Entry, old Ref) Ref {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.undoable(old) {
		d.gathering.changes[old.Slot].entry = e
		return old
	}
	return d.put(update, e)
}

// Delete implements [store.Store].
func (d *disk) Delete(k Key, r Ref, bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count(k, -1, -bytes, false)
	d.forget(k, r)
}

// Move implements [store.Store].
func (d *disk) Move(from Key, old Ref, to Entry) Ref {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count(from, -1, -to.Bytes, false)
	d.count(to.Key, 1, to.Bytes, to.Transient)
	if d.replaceable(old) {
		d.gathering.changes[old.Slot].entry = to
		return old
	}
	d.forget(from, old)
	return d.put(put, to)
}

// replaceable reports whether a change can be made another of the same kind: it has not been written, nothing is asked for
// since that must come before it. Otherwise what goes round and round would be remembered for each time, until a disk that
// hangs has come to itself.
func (d *disk) replaceable(r Ref) bool {
	g := &d.gathering
	return d.undoable(r) && g.changes[r.Slot].kind == put && (len(g.others) == 0 || g.others[len(g.others)-1].before <= r.Slot)
}

func (d *disk) put(how kind, e Entry) Ref {
	g := &d.gathering
	if d.err != nil {
		// Nothing is gathered that nobody will commit, and nobody is told that there is nothing to wait for.
		return Ref{Ticket: g.ticket, Slot: -1}
	}
	if g.bytes > d.partBytes && d.holders == 0 {
		g.cut()
	}
	g.bytes += e.Bytes
	g.changes = append(g.changes, change{how, e})
	d.grow(e.Bytes + changeBytes)
	d.commitSoon(e.Transient)
	return Ref{Ticket: g.ticket, Slot: len(g.changes) - 1}
}

// forget takes back the change that put a message, if it has not been written, and otherwise deletes the message. An update
// that is taken back becomes a deletion: the message that it was to replace is on disk already.
func (d *disk) forget(k Key, r Ref) {
	g := &d.gathering
	if d.err != nil {
		return
	}
	if d.undoable(r) {
		c := &g.changes[r.Slot]
		d.grow(-c.entry.Bytes)
		if c.kind == update {
			*c = change{deletion, Entry{Key: k}}
		} else {
			*c = change{}
			d.grow(-changeBytes)
			g.dropped++
		}
		return
	}
	g.changes = append(g.changes, change{deletion, Entry{Key: k}})
	d.grow(changeBytes)
	d.commitSoon(true)
}

// grow counts what has been gathered, or taken back, and has publishers wait while it is much.
func (d *disk) grow(bytes int64) {
	d.gathering.size += bytes
	if full := d.gathering.size > backlogBytes; full != (d.backlog.Raised() != nil) {
		d.backlog.Set(full)
	}
}

func (d *disk) undoable(r Ref) bool {
	return r.Ticket == d.gathering.ticket && r.Slot >= d.gathering.from
}

// DeleteRange implements [store.Store].
func (d *disk) DeleteRange(queue uint64, l uint8, after, before uint64, n int, bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count(Key{Queue: queue, Level: l}, -n, -bytes, false)
	from, to := messageKey(keyOf(queue, l, after+1)), messageKey(keyOf(queue, l, before))
	d.other(0, func(b *pebble.Batch) error { return b.DeleteRange(from, to, nil) })
}

// DeleteQueue implements [store.Store].
func (d *disk) DeleteQueue(queue uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.counts[queue] {
		c.gone = true
	}
	delete(d.counts, queue)
	d.other(0, func(b *pebble.Batch) error {
		if err := b.DeleteRange(queueKey(prefixMessage, queue), queueKey(prefixMessage, queue+1), nil); err != nil {
			return err
		}
		return b.DeleteRange(queueKey(prefixCount, queue), queueKey(prefixCount, queue+1), nil)
	})
}

// SetDocument implements [store.Store].
func (d *disk) SetDocument(name string, value []byte) Ticket {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.other(len(name)+len(value), func(b *pebble.Batch) error { return b.Set(documentKey(name), value, nil) })
}

// DeleteDocument implements [store.Store].
func (d *disk) DeleteDocument(name string) Ticket {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.other(len(name), func(b *pebble.Batch) error { return b.Delete(documentKey(name), nil) })
}

// other asks for a change that is not of one message.
func (d *disk) other(bytes int, do func(*pebble.Batch) error) Ticket {
	g := &d.gathering
	if d.err != nil {
		return g.ticket
	}
	g.others = append(g.others, other{len(g.changes), do})
	d.grow(int64(bytes) + changeBytes)
	d.commitSoon(false)
	return g.ticket
}

// Hold implements [store.Store].
func (d *disk) Hold() {
	d.hold.RLock()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holders++
}

// Release implements [store.Store].
func (d *disk) Release() {
	d.mu.Lock()
	d.holders--
	d.mu.Unlock()
	d.hold.RUnlock()
}
