// Package throttle slows down clients that guess a password or a token. It guarantees that a client with the right password
// does not wait because of guesses from other addresses (with IPv6, from other /64 networks), or because of guesses for a
// few other names from its own address.
package throttle

import (
	"hash/maphash"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/bounded"
)

// The first FreeMistakes-1 mistakes have no effect, because users mistype passwords. The next mistake causes a wait of
// firstWait, and each further mistake doubles the wait, up to a maximum.
const (
	FreeMistakes    = 5
	firstWait       = time.Second
	mistakeLifetime = time.Hour // counted from the last mistake

	// MostAddresses is the maximum number of remembered addresses. At the maximum, the throttle forgets the address with the
	// oldest activity.
	MostAddresses = 4096
	// MostNames is the maximum number of names with separate counts at an address. Further names share one count, because
	// the client is probably trying out names.
	MostNames = 16
)

// Throttle counts mistakes for each address and name, so that a program with an old password does not slow down other
// programs at the same address. A right password does not end a wait, because the mistakes may come from another
// client. The methods are safe for concurrent use.
type Throttle struct {
	clock   func() time.Time
	longest time.Duration
	seed    maphash.Seed

	mu        sync.Mutex
	addresses *bounded.Map[netip.Prefix, *address]
}

// address holds the mistakes of an address.
type address struct {
	names  map[uint64]mistakes // the key is a hash, because names can be long
	others mistakes            // of all names beyond MostNames together
}

type mistakes struct {
	n           int
	last, until time.Time
}

// New returns a throttle without mistakes. longest is the maximum wait.
func New(clock func() time.Time, longest time.Duration) *Throttle {
	return &Throttle{
		clock: clock, longest: longest, seed: maphash.MakeSeed(), addresses: bounded.New[netip.Prefix, *address](MostAddresses),
	}
}

// Try records an attempt to log in. right reports whether the password was right. If Try returns a positive wait, the
// attempt does not count, and the caller must refuse it without revealing whether the password was right. A wrong
// password in an attempt that counts can delay the next attempt.
func (t *Throttle) Try(peer, name string, right bool) (wait time.Duration) {
	from, hash := Network(peer), maphash.String(t.seed, name)
	t.mu.Lock()
	defer t.mu.Unlock()
	a, known := t.addresses.Get(from)
	if !known && right {
		return 0
	}
	if !known {
		a = &address{names: make(map[uint64]mistakes)}
	}
	now := t.clock()
	own, known := a.names[hash]
	if !known && len(a.names) == MostNames {
		maps.DeleteFunc(a.names, func(_ uint64, m mistakes) bool { return m.expired(now) })
	}
	inOthers := !known && len(a.names) == MostNames
	if inOthers {
		own = a.others
	}
	wait = max(0, own.until.Sub(now))
	if wait == 0 && right {
		return 0
	}
	t.addresses.Put(from, a) // also during a wait, so that the throttle does not forget an active client
	if wait > 0 {
		return wait
	}
	own.add(now, t.longest)
	if inOthers {
		a.others = own
	} else {
		a.names[hash] = own
	}
	return 0
}

func (m *mistakes) expired(now time.Time) bool { return now.Sub(m.last) > mistakeLifetime }

func (m *mistakes) add(now time.Time, longest time.Duration) {
	if m.expired(now) {
		m.n = 0
	}
	m.n, m.last = m.n+1, now
	if over := m.n - FreeMistakes; over >= 0 {
		m.until = now.Add(min(longest, firstWait<<min(over, 10)))
	}
}

// Network returns the key for a peer, which is the address or, with IPv6, the /64 network. All peers without a port in their
// address, such as the peers of a Unix socket, share one key.
func Network(peer string) netip.Prefix {
	a, err := netip.ParseAddrPort(peer)
	if err != nil {
		return netip.Prefix{}
	}
	addr := a.Addr().Unmap().WithZone("")
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits) // bits is valid for the address
	return p
}
