package idempotent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise"
)

// A Store remembers which keys are done, and which ones somebody is at work on.
//
//	free ──Claim──► claimed ──Complete──► done
//	  ▲                │ Release            │
//	  │                │ the lease ends     │ the retention ends
//	  └────────────────┴────────────────────┘
//
// A key is claimed with a token, which names one run of a handler. It is the
// fence: whoever's lease ended and whose key was taken over can no longer
// complete it, nor release what is another's.
//
// For each key, the calls of all who share the store have an order, and each
// happens as a whole or not at all. Whether a lease or a retention has ended is
// for the store's clock to say, one clock for all who share it.
//
// All methods may be called from any number of goroutines. They return soon after
// ctx has ended, and do nothing if it had ended before. With any other error, what
// was asked for may have happened or not: each method may be called again with the
// same arguments, and then does what it would have done.
//
// Keys and tokens are valid UTF-8 without control characters. Keys have 1 to 1024
// bytes, tokens 1 to 64. Leases and retentions are longer than 0; a store may round
// them up to whole milliseconds.
//
// Package storetest has the tests for a Store of your own.
type Store interface {
	// Claim asks for a key.
	//
	// A free key is now claimed by token until lease has passed: Claimed. So
	// is one that token has claimed already: its lease begins anew, which is how
	// a lease is extended. A key that another token has claimed is Busy, and one
	// that is done is Done, also with the token that has completed it; neither
	// changes.
	Claim(ctx context.Context, key, token string, lease time.Duration) (Claim, error)

	// Complete makes a key done until retention has passed. When it returns nil,
	// the key is as durable as anything in the store.
	//
	// The key is claimed by token; or it is free, since the lease has ended and
	// nobody else has the key: what is done is done, and is to be remembered. A
	// key that token has completed already stays done, its retention begins anew.
	// If another token has claimed or completed the key, Complete changes nothing
	// and returns an error for which errors.Is(err, ErrLost) holds.
	Complete(ctx context.Context, key, token string, retention time.Duration) error

	// Release frees a key that token has claimed. Of any other key it changes
	// nothing and returns nil.
	Release(ctx context.Context, key, token string) error
}

// Claim is a Store's answer to who asks for a key.
type Claim struct {
	State State

	// Left is how long the other's lease still runs where State is Busy: longer
	// than 0, and longer still if it is extended.
	Left time.Duration
}

// State is what a Claim found.
type State int

// The states of a Claim.
const (
	Claimed State = iota + 1 // the key is the caller's
	Done                     // it was completed before
	Busy                     // somebody else has it
)

func (s State) String() string {
	switch s {
	case Claimed:
		return "claimed"
	case Done:
		return "done"
	case Busy:
		return "busy"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Test for these errors with errors.Is.
var (
	// ErrBusy: another run of a handler has claimed the message's key. The
	// message comes back. It is a reprise.ErrNotAttempted, too: to a Breaker it says
	// nothing.
	ErrBusy error = busy{}

	// ErrLost: another has the key. It is the cause with which the context of a
	// handler ends whose claim is lost, and what Store.Complete returns then.
	ErrLost = errors.New("idempotent: the claim was lost to another")

	// ErrFull: a Memory holds as many claims as it may hold keys.
	ErrFull = errors.New("idempotent: no room for another claim")

	// ErrNoKey: the message has no key, and Config.Keyless says to park it.
	ErrNoKey = errors.New("idempotent: the message has no key, by which a duplicate could be told: have its publisher set a message id, or name another key")
)

type busy struct{}

func (busy) Error() string { return "idempotent: the message is being handled" }

func (busy) Is(target error) bool { return target == reprise.ErrNotAttempted }

// StoreError says that a Store failed. The handler has not run, and the message
// comes back.
type StoreError struct {
	Op  string // "claim", or of Tx: "begin", "claim", "commit"
	Key string
	Err error // the store's own error
}

func (e *StoreError) Error() string {
	return fmt.Sprintf("idempotent: %s of %q: %v", e.Op, e.Key, e.Err)
}

func (e *StoreError) Unwrap() error { return e.Err }
