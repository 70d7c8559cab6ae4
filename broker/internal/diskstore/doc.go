// Package diskstore implements [store.Store] with the database Pebble (https://github.com/cockroachdb/pebble).
//
// It guarantees that the data of a successful commit survives a crash of the process or the machine, and that damaged
// data is detected before it is used. See docs/adr/0010-an-inventory-of-the-data-directory.md. Outside of tests and
// the simulation, only this package imports Pebble.
package diskstore

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
