package reprise

import (
	"fmt"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/bounded"
	"github.com/reprisemq/reprise/internal/publish"
	"github.com/reprisemq/reprise/topology"
)

// unroutedPause is the time for which a missing destination may still appear, for example during an import of definitions.
const unroutedPause = time.Minute

// fullPause is the time after which a worker reports a full queue that refuses copies, and processes the messages behind them.
const fullPause = time.Minute

// refusedPause is the minimum time between two attempts to publish a copy that the broker has refused permanently.
const refusedPause = time.Minute

// held counts the held messages. It also contains the outcomes of messages that were held until the broker took them
// back. If the broker redelivers such a message soon, the worker settles it with this outcome and does not call the handler
// again.
type held struct {
	mu       sync.Mutex
	count    int
	reason   error                               // reason of the newest refusal
	outcomes *bounded.Map[attemptKey, outcomeAt] // nil: none
	unrouted *bounded.Map[hopKey, time.Time]     // when copies to a missing destination were first returned; nil: none
}

// attemptKey identifies an attempt of a message with an ID. Because some publishers use an ID for different messages, it
// contains the identity of the message.
type attemptKey struct {
	identity uint64
	attempt  int
}

// outcomeAt is the outcome of an attempt, and the time when the broker took back the message.
type outcomeAt struct {
	result
	at time.Time
}

const (
	maxOutcomes    = 1000             // maximum number of remembered outcomes
	outcomeExpires = 30 * time.Minute // later, a redelivered message with the same ID and content may be another one
	maxUnrouted    = 1000             // maximum number of remembered destinations
)

// add changes the number of held messages.
func (x *held) add(n int, reason error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.count += n
	if reason != nil {
		x.reason = reason
	}
}

// err returns ErrCopyRefused with the reason if messages are held.
func (x *held) err() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.count == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d messages can be neither retried nor parked: %w", ErrCopyRefused, x.count, x.reason)
}

// classify returns the refusal of a copy. A missing destination counts as refused if neither declarations nor other programs
// have created it for a while.
func (x *held) classify(hop topology.Hop, err error) publish.Refusal {
	refusal := publish.Classify(err)
	if refusal == publish.Unrouted && x.missing(hop, time.Now()) >= unroutedPause {
		return publish.DestinationRefused
	}
	return refusal
}

// missing records that the broker has returned a copy, and returns the time since the first of such copies to the same
// destination.
func (x *held) missing(hop topology.Hop, now time.Time) time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.unrouted == nil {
		x.unrouted = bounded.New[hopKey, time.Time](maxUnrouted)
	}
	since, known := x.unrouted.Get(keyOf(hop))
	if !known {
		since = now
		x.unrouted.Put(keyOf(hop), now)
	}
	return now.Sub(since)
}

// found records that the broker has confirmed a copy.
func (x *held) found(hop topology.Hop) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.unrouted != nil {
		x.unrouted.Drop(keyOf(hop))
	}
}

// remember stores the outcome of a message that the broker takes back.
func (x *held) remember(d *delivery) {
	if d.MessageID == "" {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.outcomes == nil {
		x.outcomes = bounded.New[attemptKey, outcomeAt](maxOutcomes)
	}
	x.outcomes.Put(attemptKey{d.Identity(), d.Attempt}, outcomeAt{d.result, time.Now()})
}

// recall sets the result of a redelivered message to its remembered outcome, and forgets it.
func (x *held) recall(d *delivery) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.outcomes == nil || !d.Redelivered || d.MessageID == "" {
		return false
	}
	key := attemptKey{d.Identity(), d.Attempt}
	o, found := x.outcomes.Get(key)
	if found {
		x.outcomes.Drop(key)
	}
	if !found || time.Since(o.at) >= outcomeExpires {
		return false
	}
	d.result = o.result
	return true
}
