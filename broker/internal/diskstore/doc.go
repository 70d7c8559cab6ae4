// Package diskstore is the [store.Store] on a file system, in Pebble (https://github.com/cockroachdb/pebble).
//
// It promises that data of a successful commit survives a crash of the process and of the machine, and that damage is found
// before it is used: see docs/adr/0010-an-inventory-of-the-data-directory.md. It is the only package that imports Pebble.
package diskstore

import "github.com/reprisemq/reprise/broker/internal/store"

// The types of the interface that this package implements.
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

// The errors of opening a data directory, and of using a store that has been closed.
var (
	ErrInUse   = store.ErrInUse
	ErrFormat  = store.ErrFormat
	ErrDamaged = store.ErrDamaged
	ErrClosed  = store.ErrClosed
)
