package reprisetest

import (
	"maps"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Fault is something that was told to go wrong.
type Fault struct {
	broker *Broker
	what   string
	times  int

	happened int // guarded by the broker's lock
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

// LosePublishes loses the next n messages that are published: each is lost with
// its connection, just before the broker has it. A client that publishes it again
// makes no duplicate.
func (b *Broker) LosePublishes(n int) *Fault { return b.arm(publishLost, "publishes lost", n) }

// LoseConfirms loses the next n confirms: the broker has the message, and the
// connection is cut before the client hears of it. A client that publishes it
// again makes a duplicate, with the same message id. (A broker may confirm
// several messages at once.)
func (b *Broker) LoseConfirms(n int) *Fault { return b.arm(confirmLost, "confirms lost", n) }

// LoseAcks loses the next n acknowledgements: the handler is done, and the
// connection is cut before the broker hears of it. The message is delivered
// again, redelivered; where a copy of it waits to be retried, there are two now.
// (A client may acknowledge several messages at once.)
func (b *Broker) LoseAcks(n int) *Fault { return b.arm(ackLost, "acknowledgements lost", n) }

// Nack has the broker refuse the next n messages that are published with
// confirms, as it does when a queue is full: it answers with basic.nack, and no
// queue has them.
func (b *Broker) Nack(n int) *Fault { return b.arm(publishNacked, "publishes nacked", n) }

// Duplicate has the next n messages that are published arrive twice, with the
// same message id, as after a publisher that was not told of its success.
func (b *Broker) Duplicate(n int) *Fault { return b.arm(publishDoubled, "publishes doubled", n) }

func (b *Broker) arm(kind faultKind, what string, n int) *Fault {
	f := &Fault{broker: b, what: what, times: n}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults[kind] = append(b.faults[kind], f)
	return f
}

// strikes reports whether a fault is to happen now.
func (b *Broker) strikes(kind faultKind) bool {
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

// Happened is how many times it has happened so far.
func (f *Fault) Happened() int {
	f.broker.mu.Lock()
	defer f.broker.mu.Unlock()
	return f.happened
}

// Await waits until it has happened as often as it was to, and all that follows
// at once has been done. The test fails if that takes longer than
// Config.Patience.
func (f *Fault) Await(t TB) {
	t.Helper()
	if !f.broker.await(func() (bool, time.Time) { return f.Happened() >= f.times, time.Time{} }) {
		t.Fatalf("reprisetest: after %s: %d %s, not %d", f.broker.config.Patience, f.Happened(), f.what, f.times)
	}
}

// Cut cuts all connections at once, as an unplugged cable does: nobody says a
// word, and what was unsettled is delivered again. Clients may come back as soon
// as they like; after [Broker.Refuse], not before that is over. In a bubble they
// know of it when Cut returns.
func (b *Broker) Cut() {
	b.mu.Lock()
	all := maps.Clone(b.conns)
	b.mu.Unlock()
	for c := range all {
		if !c.own {
			_ = c.sever()
		}
	}
	b.still()
}

// Refuse refuses connections for d from now on. Those there are stay; [Broker.Cut]
// ends them. A negative d accepts connections again.
func (b *Broker) Refuse(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refusing = time.Now().Add(d)
}

// refusedUntil is how long connections are refused; zero: they are not.
func (b *Broker) refusedUntil() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Now().Before(b.refusing) {
		return b.refusing
	}
	return time.Time{}
}

// Block has the broker block all that publish, as it does when it is short of
// memory (connection.blocked), until [Broker.Unblock]. Publish of this package
// waits, too.
func (b *Broker) Block() {
	b.block(true)
	b.still()
}

// Unblock ends [Broker.Block]. In a bubble, what waited has been published when it
// returns.
func (b *Broker) Unblock() {
	b.block(false)
	b.still()
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

// Heal ends all faults: it unblocks publishers, accepts connections, and forgets
// what has not happened.
func (b *Broker) Heal() {
	b.block(false)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refusing = time.Time{}
	b.faults = [faultKinds][]*Fault{}
}

// fullQueue is a queue that takes nothing.
const fullQueue = "reprisetest.full"

// full returns the name of a queue that refuses all, which it makes.
func (b *Broker) full(host string) string {
	b.inside.Declare(host, &amqpwire.QueueDeclare{Queue: fullQueue, Arguments: amqpwire.Table{
		{Name: "x-max-length", Value: int32(0)}, {Name: "x-overflow", Value: "reject-publish"},
	}})
	return fullQueue
}
