package reprisetest

import (
	"maps"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Fault is a fault that a test has requested.
type Fault struct {
	broker *Broker
	what   string
	times  int

	happened int // guarded by Broker.mu
}

type faultKind int

const (
	publishLost faultKind = iota
	publishNacked
	publishDoubled
	confirmLost
	ackLost
	faultKinds
)

// LosePublishes loses the next n published messages. For each of them, the connection is cut just
// before the broker receives the message. A client that publishes the message again does not create a
// duplicate.
func (b *Broker) LosePublishes(n int) *Fault { return b.arm(publishLost, "publishes lost", n) }

// LoseConfirms loses the next n confirms. For each of them, the broker has the message, and the
// connection is cut before the client receives the confirm. A client that publishes the message again
// creates a duplicate with the same message id. (A broker may confirm several messages with one
// confirm.)
func (b *Broker) LoseConfirms(n int) *Fault { return b.arm(confirmLost, "confirms lost", n) }

// LoseAcks loses the next n acknowledgements. For each of them, the handler has returned, and the
// connection is cut before the broker receives the acknowledgement. The broker redelivers the message.
// If a copy of the message waits for a retry, the message is then duplicated. (A client may
// acknowledge several messages with one acknowledgement.)
func (b *Broker) LoseAcks(n int) *Fault { return b.arm(ackLost, "acknowledgements lost", n) }

// Nack makes the broker refuse the next n messages that are published with confirms, as it does if a queue with
// x-overflow reject-publish is full. The broker sends basic.nack, and does not enqueue the messages.
func (b *Broker) Nack(n int) *Fault { return b.arm(publishNacked, "publishes nacked", n) }

// Duplicate duplicates the next n published messages, with the same message id, like a publisher that
// did not receive its confirm and publishes again.
func (b *Broker) Duplicate(n int) *Fault { return b.arm(publishDoubled, "publishes duplicated", n) }

func (b *Broker) arm(kind faultKind, what string, n int) *Fault {
	f := &Fault{broker: b, what: what, times: n}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults[kind] = append(b.faults[kind], f)
	return f
}

// occurs reports whether a fault of this kind must occur now and, if so, counts it.
func (b *Broker) occurs(kind faultKind) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.faults[kind]) > 0 {
		f := b.faults[kind][0]
		if f.happened < f.times {
			f.happened++
			return true
		}
		b.faults[kind] = b.faults[kind][1:]
	}
	return false
}

// Happened returns the number of times that the fault has occurred so far.
func (f *Fault) Happened() int {
	f.broker.mu.Lock()
	defer f.broker.mu.Unlock()
	return f.happened
}

// Await waits until the fault has occurred as often as requested and, in a bubble, until its immediate
// effects are complete. If the wait exceeds Config.Timeout, the test fails.
func (f *Fault) Await(t TB) {
	t.Helper()
	if !f.broker.await(func() (bool, time.Time) { return f.Happened() >= f.times, time.Time{} }) {
		t.Fatalf("reprisetest: timed out after %s: got %d %s, want %d", f.broker.config.Timeout, f.Happened(), f.what, f.times)
	}
}

// Cut cuts all connections immediately and without an AMQP close, like an unplugged cable. The broker redelivers unacked
// messages. Clients may reconnect immediately, or after the period of [Broker.Refuse]. In a bubble, clients have detected
// the loss when Cut returns.
func (b *Broker) Cut() {
	b.mu.Lock()
	all := maps.Clone(b.conns)
	b.mu.Unlock()
	for c := range all {
		if !c.own {
			_ = c.sever()
		}
	}
	b.waitIdle()
}

// Refuse refuses new connections for the duration d. Existing connections stay open; [Broker.Cut] closes them. If d is
// 0 or negative, the broker accepts connections again.
func (b *Broker) Refuse(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refusing = time.Now().Add(d)
}

// refusedUntil returns the time until which the broker refuses connections, or zero if it accepts them.
func (b *Broker) refusedUntil() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Now().Before(b.refusing) {
		return b.refusing
	}
	return time.Time{}
}

// Block makes the broker block all publishers until [Broker.Unblock], like a broker that is short of
// memory (connection.blocked). [Broker.Publish] waits, too.
func (b *Broker) Block() {
	b.block(true)
	b.waitIdle()
}

// Unblock ends the effect of [Broker.Block]. In a bubble, the waiting messages have been published when Unblock
// returns.
func (b *Broker) Unblock() {
	b.block(false)
	b.waitIdle()
}

func (b *Broker) block(blocked bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.blocked == blocked {
		return
	}
	b.blocked = blocked
	b.inside.Block(blocked)
}

// Heal unblocks publishers, accepts connections again, and removes pending faults.
func (b *Broker) Heal() {
	b.block(false)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refusing = time.Time{}
	b.faults = [faultKinds][]*Fault{}
}

// fullQueue is the name of a queue that refuses all messages.
const fullQueue = "reprisetest.full"

// full declares a queue that refuses all messages, and returns its name.
func (b *Broker) full(host string) string {
	b.inside.Declare(host, &amqpwire.QueueDeclare{Queue: fullQueue, Arguments: amqpwire.Table{
		{Name: "x-max-length", Value: int32(0)}, {Name: "x-overflow", Value: "reject-publish"},
	}})
	return fullQueue
}
