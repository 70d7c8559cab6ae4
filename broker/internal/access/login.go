package access

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/bounded"
	"github.com/reprisemq/reprise/internal/throttle"
)

const (
	// longestWait is the maximum delay of a login after wrong passwords. Clients time out after ten seconds or more.
	longestWait = 5 * time.Second
	// mostHeld is the maximum number of delayed logins from an address. Further logins that must wait are refused immediately. All
	// addresses together have no limit, because attackers could use it up for other users. A delayed login uses no more resources
	// than any other connection.
	mostHeld = 100
	// mostBeside is the maximum number of delayed logins from an address at which a known user still gets in without a delay.
	mostBeside = mostHeld / 2
	// knownFor is the time for which a user is known at an address after a login.
	knownFor = 24 * time.Hour
	// mostKnown is the maximum number of pairs of a known user and an address.
	mostKnown = 4096
)

// place is a user at an address.
type place struct {
	from netip.Prefix
	user string
}

// known has the users that have logged in.
type known struct {
	mu     sync.Mutex
	places *bounded.Map[place, time.Time]
}

// has reports whether a user has recently logged in from an address. Then a correct password is probably from the user and not from
// an attacker, and the login is not delayed: workers with a new password can log in although another worker at the address repeats
// the old password. An attacker at this address gains little, because only a few logins from there can be delayed at a time.
func (k *known) has(p place) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	last, ok := k.places.Get(p)
	return ok && time.Since(last) < knownFor
}

func (k *known) add(p place) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.places.Put(p, time.Now())
}

// held counts the delayed logins by address.
type held struct {
	mu sync.Mutex
	at map[netip.Prefix]int
}

func (h *held) count(from netip.Prefix) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at[from]
}

// begin counts one more delayed login, unless there are too many.
func (h *held) begin(from netip.Prefix) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at[from] == mostHeld {
		return false
	}
	h.at[from]++
	return true
}

func (h *held) end(from netip.Prefix) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at[from]--; h.at[from] == 0 {
		delete(h.at, from)
	}
}

// WaitError is returned for a login that was not checked, because of too many wrong passwords.
type WaitError struct {
	User string
	Wait time.Duration // until the next login is checked
	Held bool          // the login was held before it was refused
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("user %q was not checked: too many wrong passwords from this address; the next one is checked in %v",
		e.User, e.Wait.Round(time.Second))
}

// Login reports whether the password of a user is correct. After a wrong password, the next login of this user from the same
// address must wait. Login returns a [*WaitError] for a login that must wait, with any password.
func (c *Control) Login(peer, name, password string) (ok bool, err error) {
	return c.admit(peer, name, c.authenticFrom(peer, name, password))
}

// admit decides whether a login with a right or wrong password counts.
func (c *Control) admit(peer, name string, right bool) (ok bool, err error) {
	if wait := c.guesses.Try(peer, name, right); wait > 0 {
		return false, &WaitError{User: name, Wait: wait}
	}
	return right, nil
}

// AwaitLogin is the same as Login, but delays a login that must wait, for some seconds or until ctx ends. It does not delay a user
// that has recently logged in from the address.
func (c *Control) AwaitLogin(ctx context.Context, peer, name, password string) (ok bool, err error) {
	at := place{throttle.Network(peer), name}
	right := c.authenticFrom(peer, name, password)
	defer func() {
		if ok {
			c.known.add(at)
		}
	}()
	if right && c.known.has(at) && c.held.count(at.from) < mostBeside {
		return true, nil
	}
	ok, err = c.admit(peer, name, right)
	if err == nil {
		return ok, nil
	}
	if !c.held.begin(at.from) {
		return false, err
	}
	defer c.held.end(at.from)
	end := time.Now().Add(longestWait)
	for {
		waiting := err.(*WaitError)
		left := time.Until(end)
		if left <= 0 {
			waiting.Held = true
			return false, waiting
		}
		timer := time.NewTimer(min(left, waiting.Wait))
		select {
		case <-ctx.Done():
			timer.Stop()
			return false, context.Cause(ctx)
		case <-timer.C:
		}
		if ok, err = c.Login(peer, name, password); err == nil {
			return ok, nil
		}
	}
}
