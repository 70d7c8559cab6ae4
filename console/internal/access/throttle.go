package access

import (
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/reprisemq/reprise/console/internal/fault"
)

// Wrong logins of an address are free at first, since people mistype. Then each one
// makes the next wait for twice as long.
const (
	FreeMistakes  = 5
	firstWait     = time.Second
	LongestWait   = time.Minute
	mistakesKept  = time.Hour // after the last one
	mostAddresses = 4096
)

// throttle slows down who guesses, by address. It protects tokens that somebody made up, and
// the log; those of NewToken need no protection, see Guard.check. A right token ends no wait:
// behind a proxy it is somebody else's. The number of addresses is bounded: the one that has
// been quiet for longest is forgotten.
type throttle struct {
	clock func() time.Time

	mu        sync.Mutex
	addresses *bounded[netip.Prefix, mistakes]
}

type mistakes struct {
	n           int
	last, until time.Time
}

// NewThrottle returns a throttle that knows of no mistakes.
func NewThrottle(clock func() time.Time) *throttle {
	return &throttle{clock: clock, addresses: newBounded[netip.Prefix, mistakes](mostAddresses)}
}

// throttleKey is what stands for a peer: its address or, with IPv6, the network that
// one subscriber has.
func throttleKey(peer string) netip.Prefix {
	a, err := netip.ParseAddrPort(peer)
	if err != nil {
		return netip.Prefix{} // a Unix socket: all are one
	}
	addr := a.Addr().Unmap().WithZone("")
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits) // the bits suit the address
	return p
}

// wait returns how long an address must not try again.
func (t *throttle) wait(from netip.Prefix) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, _ := t.addresses.get(from)
	return max(0, m.until.Sub(t.clock()))
}

// note counts a wrong login.
func (t *throttle) note(from netip.Prefix) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock()
	m, _ := t.addresses.get(from)
	if now.Sub(m.last) > mistakesKept {
		m.n = 0
	}
	m.n, m.last = m.n+1, now
	if over := m.n - FreeMistakes; over >= 0 {
		m.until = now.Add(min(LongestWait, firstWait<<min(over, 10)))
	}
	t.addresses.put(from, m)
}

func tooOften(wait time.Duration) *fault.Failure {
	seconds := int((wait + time.Second - 1) / time.Second)
	return &fault.Failure{
		Status:     http.StatusTooManyRequests,
		RetryAfter: seconds,
		Text:       "too many wrong tokens from your address",
		Advice:     fmt.Sprintf("try again in %d s", seconds),
	}
}
