package idempotent

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpvalue"
)

// HeaderBusy is the header that counts, as a 64-bit integer, the deliveries of a message at which another run had
// claimed the key. Copies in wait queues have the header. Handlers do not see it.
const HeaderBusy = "x-reprise-busy"

// formerBusy is an earlier name of HeaderBusy. The package reads it if HeaderBusy is missing.
const formerBusy = "x-idempotent-busy"

// takeBusy removes the busy count before the message is handled.
func takeBusy(m *reprise.Delivery) {
	delete(m.Headers, HeaderBusy)
	delete(m.Headers, formerBusy)
}

// busyBefore returns the busy count of a message.
func busyBefore(m *reprise.Delivery) int64 {
	value, found := m.Headers[HeaderBusy]
	if !found {
		value = m.Headers[formerBusy]
	}
	before, _ := amqpvalue.Integer(value)
	return min(max(0, before), 1000) // limited, because any publisher can write headers
}

// longestBusy is the maximum delay of a message with a busy key, unless the remaining lease is longer.
const longestBusy = time.Hour

// refused returns the outcome of a message whose key is busy or done.
func refused(log *slog.Logger, m *reprise.Delivery, key string, got Claim) error {
	log = log.With("queue", m.Queue, "message_id", m.MessageID, "key", key)
	switch got.State {
	case Done:
		log.Info("duplicate")
		return nil
	case Busy:
		before := busyBefore(m)
		delay := backOff(got.Left, before)
		level := slog.LevelInfo
		if got.Left > longestBusy { // the clock was wrong at the time of the claim, or the lease is very long
			level = slog.LevelWarn
		}
		log.Log(context.Background(), level, "busy", "left", got.Left, "delay", delay)
		err := fmt.Errorf("%w: key %q stays claimed for %s", ErrBusy, key, got.Left)
		return reprise.Annotate(reprise.RetryAfter(delay, err), map[string]any{HeaderBusy: before + 1})
	}
	return &StoreError{Op: "claim", Key: key, Err: fmt.Errorf("state must be Claimed, Done or Busy: got %s", got.State)}
}

// backOff returns the delay of a message whose key is busy. The parameter left is the remaining lease, and before is the
// number of earlier deliveries with a busy key. The first delay ends with the lease of the other run, which suffices if
// that run has crashed. A live run extends its lease, and each retry counts as an attempt of the message, so the
// remaining lease is doubled for each earlier delivery.
func backOff(left time.Duration, before int64) time.Duration {
	delay := left
	for ; before > 0 && delay < longestBusy; before-- {
		delay = min(2*delay, longestBusy)
	}
	return delay
}
