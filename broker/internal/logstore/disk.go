package logstore

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/reprisemq/reprise/broker/internal/alarm"
	"github.com/reprisemq/reprise/internal/loglimit"
)

// commitDelay is the delay after which the store commits changes for which no caller waits, unless an earlier commit
// includes these changes. Most of them are acknowledgements. If the broker crashes before an acknowledgement is
// durable, the message is redelivered, like a message whose acknowledgement was in flight.
const commitDelay = 10 * time.Millisecond

// disk implements [Store].
//
// The lock order is hold, mu, and reading, places.
type disk struct {
	fs      vfs.FS
	dir     string // data directory
	logDir  string // directory of the segments
	log     *slog.Logger
	lock    *pebble.Lock
	unclean bool

	hold sync.RWMutex // write-locked while seal takes the pending changes

	mu        sync.Mutex
	pending   changeSet
	partBytes int64 // the constant partBytes, except in tests
	holders   int   // number of callers between Hold and Release
	committed Ticket
	progress  *sync.Cond // signals changes of committed or err
	err       error      // reason why no further commit can succeed; nil while the store is usable
	cause     error      // the failed write, if any

	reading  sync.RWMutex // read-locked while records are read, so that their segments are not removed
	places   sync.RWMutex // protects index and segments; only the goroutine of run changes them after Open
	index    index
	segments map[uint32]*segment // all segments that are not dropped

	writer writer       // used by the goroutine of run
	pinned atomic.Int64 // number of backups, which need the files of dropped segments

	backlog    alarm.Alarm // raised while the size of pending exceeds backlogBytes
	running    atomic.Bool // false during Open and Close
	damageOnce sync.Once   // closes damaged
	loggedFull loglimit.Limit

	commitStarted atomic.Int64  // start of the running commit in Unix nanoseconds, or 0
	wake          chan struct{} // requests a commit
	requests      chan request  // work for the goroutine of run
	delayTimer    *time.Timer   // writes to wake after commitDelay
	closing       chan struct{}
	stopped       chan struct{} // closed when the method run returns
	failed        chan struct{}
	damaged       chan struct{}

	everything   bool // Open reads all files
	segmentBytes int64
	reserve      int64
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
	from  int   // index of its first change
	bytes int64 // approximate total size of its messages
}

// part is the content of one frame: numbers of changes and others up to the end of this part.
type part struct{ changes, others int }

// partBytes is the size of a part above which the next part begins. All changes between Hold and Release belong to the
// same part.
const partBytes = 64 << 20

const (
	// backlogBytes is the size of pending changes above which publishers wait until the next commit begins. It limits
	// the duration of a commit, and therefore the time until an acknowledgement is durable, because an acknowledgement
	// waits for the running commit and the next one. A lower value would reduce the throughput, because the disk and
	// the publishers would wait for each other in turn.
	backlogBytes = 16 << 20
	// changeBytes is the approximate overhead of a change, in addition to the message.
	changeBytes = 128
)

// change is the put, update or deletion of one message. An undone change has no effect. The order of the changes in a part
// is irrelevant.
type change struct {
	kind  kind
	entry Entry // a deletion sets only the key and the bytes
}

// other is a change of a range of messages, a queue or a document.
type other struct {
	kind          kind
	level         level
	after, before uint64
	name          string
	value         []byte
}

type kind uint8

const (
	undone kind = iota
	put         // puts a new key
	update      // updates an existing key
	deletion
	rangeDeletion
	queueDeletion
	documentPut
	documentDeletion
)

// Put implements [store.Store].
func (d *disk) Put(e Entry) Ref {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limitPart()
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
	d.undo(k, r, bytes)
}

// Move implements [store.Store].
func (d *disk) Move(from Key, old Ref, to Entry) Ref {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limitPart()
	// Without replacement, a message that moves repeatedly would add a change for each move, without limit while the disk
	// does not respond.
	if d.undoable(old) && d.pending.changes[old.Slot].kind == put {
		d.pending.changes[old.Slot].entry = to
		return old
	}
	d.undo(from, old, to.Bytes)
	return d.put(put, to)
}

// limitPart begins the next part if the current part is large, unless a caller is between Hold and Release. A caller of
// limitPart then makes all changes that a part must not separate.
func (d *disk) limitPart() {
	if d.pending.bytes > d.partBytes && d.holders == 0 {
		d.pending.cut()
	}
}

// cut completes the current part of the change set.
func (g *changeSet) cut() {
	g.parts = append(g.parts, part{changes: len(g.changes), others: len(g.others)})
	g.from, g.bytes = len(g.changes), 0
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
func (d *disk) undo(k Key, r Ref, bytes int64) {
	g := &d.pending
	if d.err != nil {
		return
	}
	deleted := change{deletion, Entry{Key: k, State: State{Bytes: bytes}}}
	if d.undoable(r) {
		c := &g.changes[r.Slot]
		switch c.kind {
		case update:
			d.grow(-c.entry.Bytes)
			*c = deleted
		case put:
			d.grow(-c.entry.Bytes - changeBytes)
			*c = change{}
			g.dropped++
		}
		return
	}
	g.changes = append(g.changes, deleted)
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
func (d *disk) DeleteRange(queue uint64, l uint8, after, before uint64, _ int, _ int64) {
	d.other(0, other{kind: rangeDeletion, level: level{queue, l}, after: after, before: before})
}

// DeleteQueue implements [store.Store].
func (d *disk) DeleteQueue(queue uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g := &d.pending
	for i := g.from; i < len(g.changes); i++ { // the deletion removes what earlier parts have written
		if c := &g.changes[i]; c.kind != undone && c.entry.Queue == queue {
			d.grow(-c.entry.Bytes - changeBytes)
			*c = change{}
			g.dropped++
		}
	}
	d.addOther(0, other{kind: queueDeletion, level: level{queue: queue}})
}

// SetDocument implements [store.Store].
func (d *disk) SetDocument(name string, value []byte) Ticket {
	return d.other(len(name)+len(value), other{kind: documentPut, name: name, value: value})
}

// DeleteDocument implements [store.Store].
func (d *disk) DeleteDocument(name string) Ticket {
	return d.other(len(name), other{kind: documentDeletion, name: name})
}

// other adds a change that is not tied to a single message.
func (d *disk) other(bytes int, o other) Ticket {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.addOther(bytes, o)
}

func (d *disk) addOther(bytes int, o other) Ticket {
	g := &d.pending
	if d.err != nil {
		return g.ticket
	}
	g.others = append(g.others, o)
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
