// Package store defines the disk of a broker: [Store] keeps messages and documents, and reports when they are kept.
// Package diskstore implements it. This package imports the standard library only, so that a broker in memory needs no
// database.
//
// Changes are gathered and made durable together, in the order in which they were asked for:
//
//	Put, Delete, SetDocument, … ─► gathered ─► one batch, one fsync ─► Wait returns, Notify calls
//	                                   ▲                                        │
//	                                   └───────── meanwhile the next ───────────┘
//
// So one fsync serves everybody who is waiting, and the longer it takes, the more of them. When much is gathered publishers
// wait ([Store.Backlog]), so that a commit has a bound, and with it the time until an acknowledgement is kept. A message that is put and
// deleted while the same commit is gathered does not reach the disk at all: it was published, delivered and acknowledged,
// and nobody needs it any more.
//
// After a commit has failed nothing is kept any more, and nothing is said to be: what is on the disk then is known to
// nobody, least of all from the page cache. [Store.Err] tells why, and what was kept before is there after a restart.
package store

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Store keeps messages and documents. Its methods may be called at the same time. They do not wait for the disk, and may be
// called with locks held, but for those that say so.
type Store interface {
	// Put keeps a message in a queue. It is kept when the commit that the Ref names has succeeded: until then it may be
	// lost, though not before any that was put earlier. The entry's message is encoded later, and must not change.
	Put(Entry) Ref

	// Update puts a message in place of the one that has the same key, which is there until the new one is kept.
	Update(e Entry, old Ref) Ref

	// Delete forgets a message. It is forgotten when the commit being gathered has succeeded, which may be some
	// milliseconds later when nobody waits for it; until then it may come back. Bytes are those it was put with.
	Delete(k Key, r Ref, bytes int64)

	// Move is Delete of one key and Put at another in one step: the message is never lost in between, nor there twice.
	Move(from Key, old Ref, to Entry) Ref

	// DeleteRange forgets those messages of a level that come after one order and before another: n of them, all
	// committed. DeleteQueue forgets all there is in a queue.
	DeleteRange(queue uint64, level uint8, after, before uint64, n int, bytes int64)
	DeleteQueue(queue uint64)

	// SetDocument keeps a value under a name, and DeleteDocument forgets it, when the commit with that ticket has succeeded.
	SetDocument(name string, value []byte) Ticket
	DeleteDocument(name string) Ticket

	// Hold keeps together what is asked for before Release: either all of it is kept, or nothing. It may wait for a
	// moment, and must not be called twice, nor with a lock held that is taken between Hold and Release.
	Hold()
	Release()

	// Notify has the waiter called once, after the commit that is being gathered, whose ticket it returns.
	Notify(Waiter) Ticket

	// Wait blocks until a commit has succeeded. An error says that it has not: the context has ended before, or no commit
	// will ever succeed again.
	Wait(context.Context, Ticket) error

	// Flush is Wait for all that has been asked for so far.
	Flush(context.Context) error

	// Load reads the messages of a level that come after an order, as they were committed: no more than n, nor more than one
	// beyond so many bytes. It reads from the disk, and blocks.
	Load(queue uint64, level uint8, after uint64, n, bytes int) ([]Loaded, error)

	// Levels tells what was in a queue when the store was opened, from counts that are kept with the messages. It reads
	// from the disk, and blocks.
	Levels(queue uint64) ([]Level, error)

	// Queues tells which queues had messages when the store was opened. It reads from the disk, and blocks.
	Queues() ([]uint64, error)

	// Documents yields the names that begin with a prefix and their values, in the order of names, as they were committed.
	// It reads from the disk, and blocks.
	Documents(prefix string) iter.Seq2[Document, error]

	// Unclean reports whether the store was not closed in order the last time: what was delivered then is not known.
	Unclean() bool

	// MakeRoom gives the room back that deleted messages had, which otherwise happens in time while others are put. It
	// blocks, for long if there is much.
	MakeRoom(context.Context) error

	// Backlog returns nil while little is gathered, and else a channel that is closed when a commit takes it on. Publishers
	// wait for that: otherwise they could be faster than the disk for any time, and each commit larger than the one before
	// it. It is fast.
	Backlog() <-chan struct{}

	// Behind tells for how long the disk has been busy with a commit; zero: it is not.
	Behind() time.Duration

	// Failed is closed when the store has failed, and Err tells why; before that it returns nil.
	Failed() <-chan struct{}
	Err() error

	// Damaged is closed when a file was found damaged, or missing, after the store was opened. Whoever reads what is in it
	// gets an error that is ErrDamaged.
	Damaged() <-chan struct{}

	// Dir returns the directory of the store.
	Dir() string

	// Free tells how many bytes this user may still write to the file system. It asks the system, and blocks.
	Free() (uint64, error)

	// GiveUp has the store fail, for somebody who can wait no longer for a disk that is full, or hangs: what has not been
	// committed may not be kept.
	GiveUp(why error)

	// Backup writes a copy of all that was asked for before it was called into a directory, which it makes. The store may
	// be used meanwhile. It blocks.
	Backup(dir string) error

	// Close commits what there is, and lets go of the disk. It blocks. Clean says that all that was delivered is known
	// again; if it is not, a store that was Unclean stays so. Whoever still waits for a commit, or asks for one, is told
	// ErrClosed.
	Close(clean bool) error
}

// Key is the place of a message. Those of a level of a queue are kept in order.
type Key struct {
	Queue uint64
	Level uint8
	Order uint64
}

// Entry is a message to be put.
type Entry struct {
	Key
	State
	Message Message
}

// Message encodes itself, in another goroutine.
type Message interface {
	Append(dst []byte) []byte
}

// State is what a queue knows of a message in it.
type State struct {
	Deadline    int64 // when it expires, in Unix nanoseconds; 0: never
	Due         int64 // when it is to be ready again, likewise; 0: it is
	Bytes       int64 // that count against the queue's limit
	Deliveries  int64 // earlier ones that failed
	Acquired    int64 // all earlier ones
	Redelivered bool
	Transient   bool // it is on disk for want of memory only: when the store is opened again it is gone
}

// Loaded is a message as it was read.
type Loaded struct {
	Key
	State
	Message []byte // as it encoded itself; the receiver's own
}

// Level is what is in a level of a queue.
type Level struct {
	Level    uint8
	Messages int
	Bytes    int64  // that count against the queue's limit
	Last     uint64 // the highest order
}

// Document is a value with a name.
type Document struct {
	Name  string
	Value []byte
}

// Ref says where a change is until it is on disk, so that what would undo it can take it back instead. The zero Ref is for a
// message that was loaded.
type Ref struct {
	Ticket Ticket // the commit that puts it
	Slot   int    // among the changes of that commit
}

// Ticket is the number of a commit, from 1. Zero is one that has long succeeded.
type Ticket uint64

// Waiter is told of a commit.
type Waiter interface {
	// Committed is called, in the goroutine that commits, when all commits up to that one have succeeded, and never if one
	// has not. It must not block.
	Committed(upTo Ticket)
}

// The ways in which a data directory cannot be opened.
var (
	ErrInUse   = errors.New("another process is using it")
	ErrFormat  = errors.New("its format is not one that this version reads")
	ErrDamaged = errors.New("it is damaged")
)

// ErrClosed is for those who ask a store for something that has been closed.
var ErrClosed = errors.New("the store is closed")
