// Package throttle slows down who guesses a password or a token. Its only promise to whoever knows the right one: guesses
// from other addresses cost them nothing, nor do guesses for a few other names from their own.
package throttle

import (
	"hash/maphash"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/bounded"
)

// The first mistakes are free, since people mistype. Then each makes the next try wait for twice as long.
const (
	FreeMistakes = 5
	firstWait    = time.Second
	kept         = time.Hour // for which a mistake counts

	// MostAddresses is how many addresses are remembered. The address that has been quiet for longest is forgotten.
	MostAddresses = 4096
	// MostNames is how many names count for themselves at an address. Beyond it somebody tries out names, and all others
	// from there count as one.
	MostNames = 16
)

// Throttle counts mistakes by address and, at an address, by name: a program with an old password does not slow down the
// programs beside it. A right password ends no wait, since it may be somebody else's. The methods may be called at the
// same time.
type Throttle struct {
	clock   func() time.Time
	longest time.Duration
	seed    maphash.Seed

	mu        sync.Mutex
	addresses *bounded.Map[netip.Prefix, *address]
}

// address has the mistakes of an address.
type address struct {
	names  map[uint64]mistakes // by a hash, since names can be long
	others mistakes            // of names that are too many
}

type mistakes struct {
	n           int
	last, until time.Time
}

// New returns a throttle that knows of no mistakes. No wait is longer than longest.
func New(clock func() time.Time, longest time.Duration) *Throttle {
	return &Throttle{
		clock: clock, longest: longest, seed: maphash.MakeSeed(), addresses: bounded.New[netip.Prefix, *address](MostAddresses),
	}
}

// Try decides whether a try counts that was right or wrong. If it has to wait, it does not count, and nobody may be told
// whether it was right. A wrong try that counts makes the next one wait.
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
		maps.DeleteFunc(a.names, func(_ uint64, m mistakes) bool { return m.over(now) })
	}
	inOthers := !known && len(a.names) == MostNames
	if inOthers {
		own = a.others
	}
	wait = max(0, own.until.Sub(now))
	if wait == 0 && right {
		return 0
	}
	t.addresses.Put(from, a) // also while it waits: whoever goes on is not forgotten
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

// over reports whether mistakes count no more.
func (m *mistakes) over(now time.Time) bool { return now.Sub(m.last) > kept }

func (m *mistakes) add(now time.Time, longest time.Duration) {
	if m.over(now) {
		m.n = 0
	}
	m.n, m.last = m.n+1, now
	if over := m.n - FreeMistakes; over >= 0 {
		m.until = now.Add(min(longest, firstWait<<min(over, 10)))
	}
}

// Network returns what stands for a peer: its address or, with IPv6, the network that one subscriber has. All peers whose
// address has no port, such as those of a Unix socket, are one.
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
	p, _ := addr.Prefix(bits) // the bits suit the address
	return p
}
