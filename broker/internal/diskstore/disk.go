package diskstore

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/reprisemq/reprise/broker/internal/alarm"
	"github.com/reprisemq/reprise/internal/loglimit"
)

// commitDelay is the delay after which the store commits changes for which no caller waits, unless an earlier commit
// includes these changes. Most of them are acknowledgements. If the broker crashes before an acknowledgement is
// durable, the message is redelivered, like a message whose acknowledgement was in flight.
const commitDelay = 10 * time.Millisecond

// disk implements [Store] with the database Pebble (https://github.com/cockroachdb/pebble).
//
// The lock order is hold, mu.
type disk struct {
	db      *pebble.DB
	fs      *guard
	dir     string
	log     *slog.Logger
	lock    *pebble.Lock
	unclean bool

	hold sync.RWMutex // write-locked while seal takes the pending changes

	mu        sync.Mutex
	pending   changeSet
	partBytes int64               // the constant partBytes, except in tests
	holders   int                 // number of callers between Hold and Release
	counts    map[uint64][]*count // by queue
	committed Ticket
	progress  *sync.Cond // signals changes of committed or err
	err       error      // reason why no further commit can succeed; nil while the store is usable
	cause     error      // the failed write, if any

	backlog    alarm.Alarm // raised while the size of pending exceeds backlogBytes
	running    atomic.Bool // false during Open and Close
	corrupt    sync.Map    // damaged files already logged
	damageOnce sync.Once   // closes damaged

	loggedBackground loglimit.Limit // log messages about failed background work

	commitStarted atomic.Int64  // start of the running commit in Unix nanoseconds, or 0
	wake          chan struct{} // requests a commit
	delayTimer    *time.Timer   // writes to wake after commitDelay
	closing       chan struct{}
	stopped       chan struct{} // closed when the method run returns
	failed        chan struct{}
	damaged       chan struct{}

	everything bool // Open reads all files
	memTable   int  // Options.MemTable
	reserve    int64
}

// changeSet contains the pending changes for the next commit.
type changeSet struct {
	ticket  Ticket
	changes []change
	dropped int   // number of changes that were undone before they were written
	size    int64 // approximate size of the changes that are not undone
	others  []other
	parts   []part
	waiters []Waiter
	delayed bool // delayTimer is running for these changes

	// The current part:
	from   int      // index of its first change
	bytes  int64    // approximate total size of its messages
	counts []*count // changed counts
}

// part is the content of one batch. Most commits have one part. A batch is limited to 4 GiB and should be much smaller,
// because it is a copy of the data.
type part struct {
	changes, others int // numbers of changes and others up to the end of this part
	counts          []tally
}

// partBytes is the size of a part above which the next part begins. All changes between Hold and Release belong to the
// same part.
const partBytes = 64 << 20

const (
	// backlogBytes is the size of pending changes above which publishers wait until the next commit begins. It limits
	// the duration of a commit, and therefore the time until an acknowledgement is durable, because an acknowledgement
	// waits for the running commit and the next one. A lower value would reduce the throughput, because the disk and
	// the publishers would wait for each other in turn. It is less than half of memTableSize, because Pebble sorts and
	// stores each larger batch separately.
	backlogBytes = 3 << 20
	// changeBytes is the approximate overhead of a change, in addition to the message.
	changeBytes = 128
)

// change is the put, update or deletion of one message. An undone change has no effect.
type change struct {
	kind  kind
	entry Entry // a deletion sets only the key
}

// other is a change that is not tied to a single message.
type other struct {
	before int // index of the first change that must be written after this one
	do     func(*pebble.Batch) error
}

type kind uint8

const (
	undone kind = iota
	put         // puts a new key
	update      // updates an existing key
	deletion
)

// Put implements [store.Store].
func (d *disk) Put(e Entry) Ref {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limitPart()
	d.count(e.Key, 1, e.Bytes, e.Transient)
	return d.put(put, e)
}

// Update implements [store.Store].
func (d *disk) Update(e Entry, old Ref) Ref {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.undoable(old) {
		d.pending.changes[old.Slot].entry = e
		return old
	}
	d.limitPart()
	return d.put(update, e)
}

// Delete implements [store.Store].
func (d *disk) Delete(k Key, r Ref, bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count(k, -1, -bytes, false)
	d.undo(k, r)
}

// Move implements [store.Store].
func (d *disk) Move(from Key, old Ref, to Entry) Ref {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limitPart()
	d.count(from, -1, -to.Bytes, false)
	d.count(to.Key, 1, to.Bytes, to.Transient)
	if d.replaceable(old) {
		d.pending.changes[old.Slot].entry = to
		return old
	}
	d.undo(from, old)
	return d.put(put, to)
}

// replaceable reports whether a new put can replace the pending change r. The change r must be a put that is still
// undoable, and all changes in others must precede r. Without replacement, a message that moves repeatedly would add a
// change for each move, without limit while the disk does not respond.
func (d *disk) replaceable(r Ref) bool {
	g := &d.pending
	return d.undoable(r) && g.changes[r.Slot].kind == put && (len(g.others) == 0 || g.others[len(g.others)-1].before <= r.Slot)
}

// limitPart begins the next part if the current part is large, unless a caller is between Hold and Release. A caller of
// limitPart then makes all changes that a part must not separate: the changes of a move, and of the counts.
func (d *disk) limitPart() {
	if d.pending.bytes > d.partBytes && d.holders == 0 {
		d.pending.cut()
	}
}

func (d *disk) put(how kind, e Entry) Ref {
	g := &d.pending
	if d.err != nil {
		// A failed store does not collect changes. Callers that wait for the ticket get the error.
		return Ref{Ticket: g.ticket, Slot: -1}
	}
	g.bytes += e.Bytes
	g.changes = append(g.changes, change{how, e})
	d.grow(e.Bytes + changeBytes)
	d.commitSoon(e.Transient)
	return Ref{Ticket: g.ticket, Slot: len(g.changes) - 1}
}

// undo reverts the pending change r, which put or updated the message k. If r can no longer be reverted, undo adds a
// deletion. An update becomes a deletion, because the previous version of the message is on disk.
func (d *disk) undo(k Key, r Ref) {
	g := &d.pending
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

// grow adds bytes, which may be negative, to the size of the pending changes, and updates the alarm that makes
// publishers wait.
func (d *disk) grow(bytes int64) {
	d.pending.size += bytes
	if full := d.pending.size > backlogBytes; full != (d.backlog.Raised() != nil) {
		d.backlog.Set(full)
	}
}

func (d *disk) undoable(r Ref) bool {
	return r.Ticket == d.pending.ticket && r.Slot >= d.pending.from
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
		c.deleted = true
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

// other adds a change that is not tied to a single message.
func (d *disk) other(bytes int, do func(*pebble.Batch) error) Ticket {
	g := &d.pending
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
