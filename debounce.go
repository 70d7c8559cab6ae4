package reprise

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Debounce handles one of many equal messages that arrive in a burst: the first
// waits for Window; whatever equals it and arrives meanwhile joins it; then the
// newest of them is handled, and what is said about it settles all. None is
// acknowledged before that: when the newest is retried or parked, it stands for
// the others, and when the worker ends or its connection is lost, all are
// delivered again.
//
//	arrive    a   a  b a                        a
//	handle             └── Window ──► a  b      └── Window ──► a
//
// What waits is unsettled: it counts towards Prefetch, which bounds how large a
// burst can be seen as one. Only what reaches the same worker is compared.
type Debounce struct {
	// Window is how long the first of a burst waits for others. Required.
	Window time.Duration

	// Key tells what is equal: of messages with the same key only one is handled.
	// ContentKey will do where messages that say the same ask for the same thing. A
	// message with the key "" is handled without waiting. It must return at once:
	// consuming waits for it. Required.
	Key func(*Message) string
}

// validate reports a Window that is none, or in which the broker loses patience, and
// a Key that is missing.
func (d Debounce) validate(patience time.Duration) error {
	if d.Key == nil {
		return errors.New("reprise: Debounce.Key is nil: say what makes messages equal, such as reprise.ContentKey, to which message ids are nothing")
	}
	if d.Window <= 0 || d.Window > patience/2 {
		return fmt.Errorf("reprise: Debounce.Window %s: use a positive duration such as 10s, up to half of the time after which messages are given back, which is %s: see ConsumerTimeout", d.Window, patience)
	}
	return nil
}

// ContentKey is a Debounce.Key: messages are equal if they have the same body, Type,
// CorrelationID and ReplyTo, and were published to the same exchange with the same
// routing key. MessageID, Timestamp and headers are not looked at, since they differ
// each time an event is published (headers because of tracing). So it suits messages
// that say that something has changed, and not those that each ask for something to be
// done, such as a payment.
func ContentKey(m *Message) string {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(m.Exchange), []byte(m.RoutingKey), []byte(m.Type), []byte(m.CorrelationID), []byte(m.ReplyTo), m.Body} {
		_, _ = h.Write(binary.AppendUvarint(nil, uint64(len(part)))) // a hash does not fail
		_, _ = h.Write(part)
	}
	return string(h.Sum(nil))
}

// debouncer gathers bursts. One goroutine for each waits for its window to end.
type debouncer struct {
	worker *Worker
	window time.Duration
	key    func(*Message) string

	mu     sync.Mutex
	bursts map[string]*burst
	flush  chan struct{} // closed, and replaced, when all are to go back
}

// burst is what has arrived so far of equal messages. The newest stands for all:
// the session it came on is the last of theirs to go.
type burst struct {
	newest *delivery
	others []*delivery
}

func newDebouncer(w *Worker, d Debounce) *debouncer {
	return &debouncer{worker: w, window: d.Window, key: d.Key, bursts: map[string]*burst{}, flush: make(chan struct{})}
}

// add has a delivery wait for others like it. It belongs to the debouncer then.
func (b *debouncer) add(alive context.Context, d *delivery) {
	w := b.worker
	d.read()
	key := ""
	if d.err == nil {
		err := guard("debounce key", func() error {
			key = b.key(w.message(d))
			return nil
		})
		if err != nil {
			d.err = err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if key == "" {
		flush := b.flush
		w.attempts.Go(func() { w.begin(alive, flush, d) })
		return
	}
	if same, found := b.bursts[key]; found {
		same.others = append(same.others, same.newest)
		same.newest = d
		return
	}
	b.bursts[key] = &burst{newest: d}
	flush := b.flush
	w.attempts.Go(func() { b.gather(alive, flush, key) })
}

// gather waits for a window to end, and has what has arrived by then handled.
func (b *debouncer) gather(alive context.Context, flush <-chan struct{}, key string) {
	timer := time.NewTimer(b.window)
	defer timer.Stop()
	over := false
	select {
	case <-timer.C:
		over = true
	case <-flush:
	case <-alive.Done():
	}
	b.mu.Lock()
	equal := b.bursts[key]
	delete(b.bursts, key)
	b.mu.Unlock()
	d := equal.newest
	d.burst = equal.others
	if len(d.burst) > 0 {
		d.arrived = d.burst[0].arrived // the broker's patience is with each of them
	}
	if !over {
		d.giveBack()
		return
	}
	b.worker.begin(alive, flush, d)
}

// giveBack gives back all that waits.
func (b *debouncer) giveBack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.flush)
	b.flush = make(chan struct{})
}

// begin has a delivery attempted as soon as there is a slot and the gate is open,
// or gives it back.
func (w *Worker) begin(alive context.Context, flush <-chan struct{}, d *delivery) {
	patience := time.NewTimer(max(0, w.cfg.overdue().after-time.Since(d.arrived)))
	defer patience.Stop()
	next := w.entry(alive, 1)
	defer next.end()
	var resumed <-chan time.Time // at the end of a pause; nil: there is none
	for alive.Err() == nil {
		free, paused := next.free(), w.gate.paused()
		if resumed != nil {
			free, paused = nil, nil
		}
		select {
		case slot := <-free:
			next.take(slot)
		case yes := <-next.leave:
			next.answered(yes)
		case <-paused:
			next.end()
			left, _ := w.gate.left()
			if left > 0 && !d.session.countsNacks {
				d.giveBack()
				return
			}
			resumed = time.After(left) // to go back would cost it a delivery
			continue
		case <-resumed:
			resumed = nil
			continue
		case <-patience.C:
			d.giveBack()
			return
		case <-flush:
			d.giveBack()
			return
		case <-alive.Done():
			continue
		}
		if !next.ready() {
			continue
		}
		if taken, record, ok := next.begin(); ok {
			w.attempt(d, taken, record)
			return
		}
	}
	d.giveBack() // where the session is gone, the broker has done so
}
