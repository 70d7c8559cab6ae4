// Package logstore implements [store.Store] with a log of segments. It is a prototype: package diskstore stores the data of
// the broker. See docs/adr/0034-a-log-of-segments-instead-of-pebble.md.
//
// The directory of the log contains segments: 0000000001.seg, 0000000002.seg, …. The store appends to the newest segment
// only. The first frame of a segment lists the older segments that exist. Each further frame contains a part of a commit:
//
//	segment: frame (list) │ frame │ frame │ … │ frame (summary) │ trailer
//	frame:   CRC-32C, length, number of the segment │ records
//	record:  message │ document │ tombstones │ drop │ close
//
// A message or a document is live until a tombstone names its position (segment and offset). An update is a new message and
// a tombstone. The order of the records is therefore irrelevant for recovery, except for the list of segments: the live
// messages are all messages without a tombstone. In memory, the index has the position of each live message, in 3 to
// 12 bytes each.
//
// A full segment is sealed: its summary contains the keys and positions of its messages and all its tombstones, so that Open
// reads only the summaries and the newest segment. A segment is dropped when nothing in it lives and when no tombstone in it
// refers to another segment that exists. While more than half of the log is garbage, each commit copies a part of the segment
// with the least live data.
//
// A frame is written when the previous one is durable, except for the parts of a large commit. An unreadable frame before a
// readable one is therefore damage, and so is a segment that is missing, or an unreadable frame in a sealed segment. An
// unreadable end of the newest segment is the write that a crash interrupted, unless the store has recorded that this part was
// durable, at most half a second after its commit.
package logstore

import "github.com/reprisemq/reprise/broker/internal/store"

// Types of the interface that this package implements.
type (
	Store    = store.Store
	Key      = store.Key
	Entry    = store.Entry
	State    = store.State
	Message  = store.Message
	Loaded   = store.Loaded
	Level    = store.Level
	Document = store.Document
	Ref      = store.Ref
	Ticket   = store.Ticket
	Waiter   = store.Waiter
)

// Errors that [Open] and the methods of a [Store] return.
var (
	ErrInUse   = store.ErrInUse
	ErrFormat  = store.ErrFormat
	ErrDamaged = store.ErrDamaged
	ErrClosed  = store.ErrClosed
)
