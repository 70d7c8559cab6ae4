package idempotent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise"
)

// A Store remembers the completed keys and the keys that a handler is working on.
//
//	free ──Claim──► claimed ──Complete──► done
//	  ▲                │ Release            │
//	  │                │ the lease ends     │ the retention ends
//	  └────────────────┴────────────────────┘
//
// A key is claimed with a token, which identifies one run of a handler. The token is a fencing token: after the lease
// has expired and another run has claimed the key, the first run can no longer complete or release it.
//
// For each key, the calls of all users of the store are ordered and atomic. The clock of the store decides whether a
// lease or a retention has expired. All users of the store share this clock.
//
// All methods are safe for concurrent use. They return soon after ctx is canceled. If ctx was canceled before the call,
// they do nothing and return the error of ctx. After any other error except ErrLost, the call may have taken effect.
// Calls are idempotent: repeating a failed call with the same arguments has the effect that the first call should have
// had.
//
// Keys and tokens are valid UTF-8 without control characters. Keys have 1 to 1024 bytes, tokens 1 to 64. Leases and
// retentions are longer than 0. A store may round them up to whole milliseconds.
//
// Package storetest contains tests for Store implementations.
type Store interface {
	// Claim claims a key for token.
	//
	// If the key is free, Claim claims it for the duration lease and returns Claimed. If token has already claimed the
	// key, Claim starts the lease again and returns Claimed. Callers extend a lease in this way. If another token has
	// claimed the key, Claim returns Busy. If the key was completed, even by the same token, Claim returns Done. Busy
	// and Done do not change the key.
	Claim(ctx context.Context, key, token string, lease time.Duration) (Claim, error)

	// Complete marks a key as done for the duration retention. When Complete returns nil, the key is as durable as all
	// other data of the store.
	//
	// Usually, token has claimed the key. Complete also marks a free key, because its lease may have expired without
	// another claim, and the effect that has happened must be remembered. If token has already completed the key,
	// Complete starts the retention again. If another token has claimed or completed the key, Complete changes nothing
	// and returns an error that wraps ErrLost.
	Complete(ctx context.Context, key, token string, retention time.Duration) error

	// Release frees a key that token has claimed. In any other case it changes nothing and returns nil.
	Release(ctx context.Context, key, token string) error
}

// Claim is the result of Store.Claim.
type Claim struct {
	State State

	// If State is Busy, Left is the remaining lease of the other token. It is longer than 0. The other token may extend
	// the lease.
	Left time.Duration
}

// State is the state of a key in a Claim.
type State int

// The states in a Claim.
const (
	Claimed State = iota + 1 // the token has claimed the key
	Done                     // the key was completed before
	Busy                     // another token has claimed the key
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

// Check for these errors with errors.Is.
var (
	// ErrBusy is returned if another run of a handler has claimed the key of the message. The message is retried. The
	// error also matches reprise.ErrNotAttempted, so a Breaker does not count it.
	ErrBusy error = busy{}

	// ErrLost is returned by Store.Complete if another token has claimed or completed the key. It is also the
	// cancellation cause of a handler's context after its claim was lost.
	ErrLost = errors.New("idempotent: claim was lost to another run")

	// ErrFull is returned by a Memory that contains MaxKeys keys, all of them claimed.
	ErrFull = errors.New("idempotent: store is full (all keys are claimed)")

	// ErrNoKey is the reason for parking a message without a key, if Config.Keyless is ParkKeyless.
	ErrNoKey = errors.New("idempotent: key of message is empty (set a message id in the publisher, or configure another key)")
)

type busy struct{}

func (busy) Error() string { return "idempotent: another run is handling the message" }

func (busy) Is(target error) bool { return target == reprise.ErrNotAttempted }

// StoreError reports that a Store failed. The handler has not run, unless Op is "commit". The message is retried.
type StoreError struct {
	Op  string // "claim"; for Tx "begin", "claim" or "commit"
	Key string
	Err error // the error of the store
}

func (e *StoreError) Error() string {
	return fmt.Sprintf("idempotent: %s of %q: %v", e.Op, e.Key, e.Err)
}

func (e *StoreError) Unwrap() error { return e.Err }
