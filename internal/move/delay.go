package move

import (
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/topology"
)

// expiryHeader is an argument of a consumer of the embedded broker, and the header that the broker then adds: see
// queue.ExpiryArgument in broker/internal/queue.
const expiryHeader = "x-reprise-expiry"

// takeExpiry removes expiryHeader, and returns its time. RabbitMQ does not write it, so there a publisher has.
func takeExpiry(m *reprise.Message) (expiry time.Time) {
	if ms, ok := amqpvalue.Integer(m.Headers[expiryHeader]); ok {
		expiry = time.UnixMilli(ms)
	}
	delete(m.Headers, expiryHeader)
	return expiry
}

// waiting describes the expiry of messages in a queue of the source.
type waiting struct {
	ttl  time.Duration // of the queue; 0: none
	dead bool          // the queue dead-letters expired messages
	to   string        // the queue to which it dead-letters them by its name, or ""
}

// shorten sets the expiration of a message that has waited in the source to the rest of its delay. The message must never be
// early. If the rest is unknown, the message waits for its complete delay again:
//
//   - The embedded broker tells when each message expires (expiry, otherwise zero).
//   - Otherwise, the copy of a worker has the time of the last error, which is the beginning of the delay, unless the broker has
//     dead-lettered the copy since then.
//   - A message with an expiration keeps it, unless Reprise counted its attempts: from x-death, where the broker records
//     the expiration, programs compute the next delay (topology.Expirations).
func (w waiting) shorten(m *reprise.Message, expiry, now time.Time) {
	h := topology.Trail{}.Read(topology.Delivery{Headers: m.Headers})
	_, grows := m.Headers[topology.HeaderWaits]
	ttl := m.Expiration
	if w.ttl > 0 && (ttl == 0 || w.ttl < ttl) {
		ttl = w.ttl
	}
	copied := len(h.Errors) > 0 && h.Queue != "" && h.Queue == w.to // by a worker, into its wait queue
	if ttl == 0 || m.Expiration > 0 && w.dead && (!copied || grows) {
		return
	}
	due := expiry
	if due.IsZero() {
		_, moved := m.Headers["x-death"]
		if !copied || moved || h.Errors[len(h.Errors)-1].Time.IsZero() {
			return
		}
		failed := h.Errors[len(h.Errors)-1].Time // in whole seconds
		due = failed.Add(time.Second + ttl)
		if ms, ok := amqpvalue.Integer(m.Headers[protocol.HeaderDue]); ok && time.UnixMilli(ms).After(failed) {
			due = time.UnixMilli(ms)
		}
	}
	rest := due.Sub(now)
	if rest >= ttl { // also if the clock of the worker is ahead
		return
	}
	m.Expiration = max(time.Millisecond, (rest + time.Millisecond - 1).Truncate(time.Millisecond))
	if copied {
		m.Headers[protocol.HeaderDue] = due.UnixMilli()
	}
}

// milliseconds returns a setting of a queue in milliseconds, or 0.
func milliseconds(v any) time.Duration {
	ms, _ := mgmtapi.Integer(v)
	return time.Duration(ms) * time.Millisecond
}
