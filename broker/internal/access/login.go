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
	// longestWait is how long a login can have to wait for the wrong ones before it, and for how long it is held. Clients give
	// up after ten seconds or more.
	longestWait = 5 * time.Second
	// mostHeld is how many logins from an address are held at a time. The others that have to wait are refused at once. There
	// is no limit for all addresses together, which guessers could use up for everybody: a login that is held takes no more
	// than any other connection.
	mostHeld = 100
	// mostBeside is how many logins from an address may be held for a known user to get in beside them.
	mostBeside = mostHeld / 2
	// knownFor is how long a user is known at an address after a login.
	knownFor = 24 * time.Hour
	// mostKnown is how many users are known, each at an address.
	mostKnown = 4096
)

// place is a user at an address.
type place struct {
	from netip.Prefix
	user string
}

// known are the users who have logged in.
type known struct {
	mu     sync.Mutex
	places *bounded.Map[place, time.Time]
}

// has reports whether a user has logged in from an address lately. Then it is the user rather than a guesser who has the
// right password, and need not wait: workers whose password was changed get in although one with the old password tries
// again and again beside them. A guesser at that address gains little, since few logins from there are held at a time.
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

// held counts the logins that are held, by address.
type held struct {
	mu sync.Mutex
	at map[netip.Prefix]int
}

func (h *held) count(from netip.Prefix) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at[from]
}

// begin counts one more login, unless there are too many.
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

// WaitError is returned for a login that was not checked, since there have been too many wrong ones.
type WaitError struct {
	User string
	Wait time.Duration // until the next login is checked
	Held bool          // the login was held before it was refused
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("user %q was not checked: too many wrong passwords from this address; the next one is checked in %v",
		e.User, e.Wait.Round(time.Second))
}

// Login reports whether a user has that password. A login with a wrong password makes the next one of that user, from the
// same address, wait. It returns a [*WaitError] for a login that has to wait, whatever its password is.
func (c *Control) Login(peer, name, password string) (ok bool, err error) {
	return c.admit(peer, name, c.authenticFrom(peer, name, password))
}

// admit decides whether a login counts, whose password is right or wrong.
func (c *Control) admit(peer, name string, right bool) (ok bool, err error) {
	if wait := c.guesses.Try(peer, name, right); wait > 0 {
		return false, &WaitError{User: name, Wait: wait}
	}
	return right, nil
}

// AwaitLogin is Login, and holds a login that has to wait, for a few seconds or until ctx ends. A user who has logged in from
// the address lately does not wait.
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
