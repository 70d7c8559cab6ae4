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
	// mostHeld is how many logins are held at a time. The others that have to wait are refused at once.
	mostHeld = 100
	// mostBeside is how many logins may be held for a known user to get in beside them.
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
// again and again beside them. A guesser at that address gains little, since few logins are held at a time.
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
	ok = c.Authenticate(name, password)
	if wait := c.guesses.Try(peer, name, ok); wait > 0 {
		return false, &WaitError{User: name, Wait: wait}
	}
	return ok, nil
}

// AwaitLogin is Login, and holds a login that has to wait, for a few seconds or until ctx ends. A user who has logged in from
// the address lately does not wait.
func (c *Control) AwaitLogin(ctx context.Context, peer, name, password string) (ok bool, err error) {
	at := place{throttle.Network(peer), name}
	if c.known.has(at) && len(c.held) < mostBeside && c.Authenticate(name, password) {
		return true, nil
	}
	defer func() {
		if ok {
			c.known.add(at)
		}
	}()
	ok, err = c.Login(peer, name, password)
	if err == nil {
		return ok, nil
	}
	select {
	case c.held <- struct{}{}:
		defer func() { <-c.held }()
	default:
		return false, err
	}
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
