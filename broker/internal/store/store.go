// Package store defines the persistent storage of a broker. A [Store] saves messages and documents, and reports when they
// are durable. Package diskstore implements the interface. This package imports only the standard library, so that an
// in-memory broker does not need a database.
//
// The store collects changes and commits them together, in the order of the calls:
//
//	Put, Delete, SetDocument, … ─► pending ─► one batch, one fsync ─► Wait returns, Notify calls
//	                                   ▲                                        │
//	                                   └─────── the next changes collect ───────┘
//
// One fsync therefore serves all waiting callers, and a slower fsync serves more of them. Publishers wait while many changes
// are pending ([Store.Backlog]). The wait limits the size of a commit, and therefore the time until an acknowledgement is
// durable. If Put and Delete of a message are part of the same commit, the store never writes the message.
//
// After a failed commit, the content of the disk is unknown, and the page cache does not reveal it. The store therefore does
// not save or confirm further changes. [Store.Err] returns the cause. Earlier commits are available after a restart.
package store

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Store saves messages and documents. It is safe for concurrent use. Unless documented otherwise, a method does not wait for
// the disk, and the caller may hold locks.
type Store interface {
	// Put saves a message in a queue. The message is durable when the commit in the Ref has succeeded. A crash before
	// that may lose the message. If the message survives, all earlier changes survive. The store encodes the message
	// later, so the caller must not change it.
	Put(Entry) Ref

	// Update replaces the message with the same key. The old message stays on disk until the new one is durable.
	Update(e Entry, old Ref) Ref

	// Delete removes a message. The removal is durable when the pending commit has succeeded, which may take some
	// milliseconds if no caller waits for it. A crash before that may restore the message. The argument bytes must equal
	// Entry.Bytes.
	Delete(k Key, r Ref, bytes int64)

	// Move deletes one key and puts another atomically. A crash cannot lose or duplicate the message.
	Move(from Key, old Ref, to Entry) Ref

	// DeleteRange removes the n messages of a level for which after < Key.Order < before. All of them must be committed.
	DeleteRange(queue uint64, level uint8, after, before uint64, n int, bytes int64)
	// DeleteQueue removes all messages of a queue.
	DeleteQueue(queue uint64)

	// SetDocument saves a value under a name. The change is durable when the commit with the returned ticket has succeeded.
	SetDocument(name string, value []byte) Ticket
	// DeleteDocument removes a document. The change is durable when the commit with the returned ticket has succeeded.
	DeleteDocument(name string) Ticket

	// Hold makes the following changes atomic, up to Release: the store saves all of them or none. Hold may block
	// briefly. The caller must not nest Hold, and must not call Hold while it holds a lock that it also takes between
	// Hold and Release.
	Hold()
	// Release completes the atomic changes that began with Hold.
	Release()

	// Notify returns the ticket of the pending commit, and calls the waiter once when that commit has succeeded.
	Notify(Waiter) Ticket

	// Wait blocks until a commit has succeeded. It returns an error if the context is canceled first, or if the store has
	// failed or was closed.
	Wait(context.Context, Ticket) error

	// Flush waits until all changes made before the call are durable.
	Flush(context.Context) error

	// Load reads the committed messages of a level for which Key.Order > after. It returns at most n messages, and stops
	// after the message that raises their total size above bytes. It blocks while it reads from the disk.
	Load(queue uint64, level uint8, after uint64, n, bytes int) ([]Loaded, error)

	// Levels returns the levels that a queue had when the store was opened, from counts that the store saves with the
	// messages. It blocks while it reads from the disk.
	Levels(queue uint64) ([]Level, error)

	// Queues returns the queues that had messages when the store was opened. It blocks while it reads from the disk.
	Queues() ([]uint64, error)

	// Documents yields the committed documents whose names have the prefix, sorted by name. The iteration blocks while
	// it reads from the disk.
	Documents(prefix string) iter.Seq2[Document, error]

	// Unclean reports whether the previous process did not close the store cleanly. If so, the deliveries of that process
	// are unknown.
	Unclean() bool

	// MakeRoom frees the disk space of deleted messages. Without MakeRoom, the store frees the space gradually, while it
	// saves new messages. MakeRoom blocks, possibly for a long time if it can free a lot of space.
	MakeRoom(context.Context) error

	// Backlog returns nil while few changes are pending. Otherwise it returns a channel that is closed when a commit of
	// these changes starts. Publishers wait for that channel, because they could otherwise outpace the disk
	// indefinitely, and each commit would be larger than the previous one. Backlog is cheap.
	Backlog() <-chan struct{}

	// Behind returns the time that the current commit has taken so far, or 0 if no commit is running.
	Behind() time.Duration

	// Failed returns a channel that is closed when the store fails.
	Failed() <-chan struct{}
	// Err returns the cause of the failure, or nil before the failure.
	Err() error

	// Damaged returns a channel that is closed if the open store finds a damaged or missing file. Reads of that file
	// return an error that wraps ErrDamaged.
	Damaged() <-chan struct{}

	// Dir returns the directory of the store.
	Dir() string

	// Free returns the number of bytes that the user of the process can still write to the file system. It makes a system
	// call and may block.
	Free() (uint64, error)

	// GiveUp makes the store fail, so that the caller does not have to wait for a disk that is full or does not respond.
	// Changes that are not committed may be lost.
	GiveUp(why error)

	// Backup creates the directory dir, which must not exist, and copies the store into it, with all changes made before
	// the call. Other callers may use the store at the same time. Backup blocks.
	Backup(dir string) error

	// Close commits the pending changes and releases the directory. It blocks. The argument clean states that the broker has
	// recorded all deliveries. If clean is false, a store that was unclean when it was opened stays unclean. Callers that
	// wait for a later commit get ErrClosed.
	Close(clean bool) error
}

// Key identifies a message. The store sorts the messages of a level by Order.
type Key struct {
	Queue uint64
	Level uint8
	Order uint64
}

// Entry is a message with its key and state, as passed to Put.
type Entry struct {
	Key
	State
	Message Message
}

// Message encodes itself. The store calls Append in another goroutine.
type Message interface {
	Append(dst []byte) []byte
}

// State is the state of a message in its queue.
type State struct {
	Deadline    int64 // expiry in Unix nanoseconds; 0: none
	Due         int64 // time at which the message becomes ready, in Unix nanoseconds; 0: ready now
	Bytes       int64 // size that counts against the size limit of the queue
	Deliveries  int64 // number of earlier failed deliveries
	Acquired    int64 // number of all earlier deliveries
	Redelivered bool
	Transient   bool // on disk only because memory was scarce; does not survive a restart
}

// Loaded is a message from the disk.
type Loaded struct {
	Key
	State
	Message []byte // encoded by [Message].Append; the receiver owns the slice
}

// Level describes the messages in one level of a queue.
type Level struct {
	Level    uint8
	Messages int
	Bytes    int64  // size that counts against the size limit of the queue
	Last     uint64 // highest order
}

// Document is a value with a name.
type Document struct {
	Name  string
	Value []byte
}

// Ref locates a change that is not yet on disk, so that a later change can cancel it. The zero Ref belongs to a message that
// was loaded.
type Ref struct {
	Ticket Ticket // commit that includes the change
	Slot   int    // index among the changes of the commit
}

// Ticket is the number of a commit, starting at 1. The zero Ticket counts as committed.
type Ticket uint64

// Waiter is notified of successful commits.
type Waiter interface {
	// Committed runs in the committing goroutine after all commits up to the ticket have succeeded. The store does not call
	// it after a failed commit. It must not block.
	Committed(upTo Ticket)
}

// Errors for a data directory that cannot be opened or is damaged.
var (
	ErrInUse   = errors.New("another process is using it")
	ErrFormat  = errors.New("format is not supported by this version")
	ErrDamaged = errors.New("data is damaged")
)

// ErrClosed is returned by Wait and Flush if the store was closed before the commit.
var ErrClosed = errors.New("store closed")
