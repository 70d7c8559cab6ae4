package idempotent

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpvalue"
)

// HeaderBusy counts, as 64 bits, how often a message has come while its key was
// claimed. It is on the copies that wait; handlers do not see it.
const HeaderBusy = "x-reprise-busy"

// formerBusy is an earlier name of HeaderBusy. It is read where HeaderBusy is missing.
const formerBusy = "x-idempotent-busy"

// takeBusy removes the count from a message that is to be handled.
func takeBusy(m *reprise.Message) {
	delete(m.Headers, HeaderBusy)
	delete(m.Headers, formerBusy)
}

// busyBefore returns the count on a message.
func busyBefore(m *reprise.Message) int64 {
	value, found := m.Headers[HeaderBusy]
	if !found {
		value = m.Headers[formerBusy]
	}
	before, _ := amqpvalue.Integer(value)
	return min(max(0, before), 1000) // any publisher can write headers
}

// longestBusy bounds how long a message waits for another to be done.
const longestBusy = time.Hour

// refused is the outcome of a message whose key somebody else has, or had.
func refused(log *slog.Logger, m *reprise.Message, key string, got Claim) error {
	log = log.With("queue", m.Queue, "message_id", m.MessageID, "key", key)
	switch got.State {
	case Done:
		log.Info("duplicate")
		return nil
	case Busy:
		before := busyBefore(m)
		delay := backOff(got.Left, before)
		log.Info("busy", "left", got.Left, "delay", delay)
		err := fmt.Errorf("%w: %q is claimed for another %s", ErrBusy, key, got.Left)
		return reprise.Annotate(reprise.RetryAfter(delay, err), map[string]any{HeaderBusy: before + 1})
	}
	return &StoreError{Op: "claim", Key: key, Err: fmt.Errorf("the store answered %s", got.State)}
}

// backOff is when a message that was busy so often before is to come again. The
// first time it is when the other's lease ends, which it does if the other is
// dead. One that is alive extends its lease, and each time costs the message an
// attempt: so twice as late each time.
func backOff(left time.Duration, before int64) time.Duration {
	delay := left
	for ; before > 0 && delay < longestBusy; before-- {
		delay = min(2*delay, longestBusy)
	}
	return delay
}
