package background

import (
	"time"

	"github.com/reprisemq/reprise/backoff"
)

// StoreBackoff determines the delay after consecutive failures of the store.
var StoreBackoff = backoff.Equal(backoff.Exponential{Initial: 100 * time.Millisecond, Max: 30 * time.Second})

// DrainTimeout is the time after ctx is done within which a worker must store the messages in flight.
const DrainTimeout = 5 * time.Second

// NoteGrace is the additional time for writes to the database after ctx is done.
const NoteGrace = 5 * time.Second

// DefaultBatch is the default number of messages in a transaction.
const DefaultBatch = 100

// DefaultLease is the default duration of a lease.
const DefaultLease = 15 * time.Second
