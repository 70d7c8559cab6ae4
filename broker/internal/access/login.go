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
	// maxDelay is the maximum delay of a login after wrong passwords. It is shorter than the timeouts of clients, which
	// are ten seconds or more.
	maxDelay = 5 * time.Second
	// maxDelayed is the maximum number of delayed logins from an address at a time. The broker immediately refuses
	// further logins that must wait. There is no total limit for all addresses, because attackers could exhaust it and
	// thus lock out other users. A delayed login uses no more resources than any other connection.
	maxDelayed = 100
	// maxDelayedForKnown is the number of delayed logins from an address at which the broker starts to delay known users
	// at this address, too.
	maxDelayedForKnown = maxDelayed / 2
	// knownDuration is the time for which a user remains known at an address after a login.
	knownDuration = 24 * time.Hour
	// maxKnown is the maximum number of entries in knownUsers.
	maxKnown = 4096
)

// userAddress is a user name and the address (with IPv6, the /64 network) from which the user logs in.
type userAddress struct {
	from netip.Prefix
	user string
}

// knownUsers contains the users that have recently logged in, by address, with the time of the last login.
type knownUsers struct {
	mu        sync.Mutex
	addresses *bounded.Map[userAddress, time.Time]
}

// has reports whether a user has recently logged in from an address. If so, the broker does not delay a login with the
// correct password from there, because it probably comes from the user and not from an attacker. Workers with a new
// password can therefore log in while another worker at the same address keeps using the old password. An attacker at
// this address gains little: from maxDelayedForKnown delayed logins upward, the exception does not apply.
func (k *knownUsers) has(p userAddress) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	last, ok := k.addresses.Get(p)
	return ok && time.Since(last) < knownDuration
}

func (k *knownUsers) add(p userAddress) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.addresses.Put(p, time.Now())
}

// delayedLogins contains the number of delayed logins for each address.
type delayedLogins struct {
	mu sync.Mutex
	at map[netip.Prefix]int
}

func (h *delayedLogins) count(from netip.Prefix) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at[from]
}

// begin counts an additional delayed login, or returns false if the limit for the address is reached.
func (h *delayedLogins) begin(from netip.Prefix) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at[from] == maxDelayed {
		return false
	}
	h.at[from]++
	return true
}

func (h *delayedLogins) end(from netip.Prefix) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at[from]--; h.at[from] == 0 {
		delete(h.at, from)
	}
}

// WaitError is returned for a login that was refused because of earlier wrong passwords, even if its own password was
// correct.
type WaitError struct {
	User string
	Wait time.Duration // time until the broker checks the password again, for this user and address
	Held bool          // the login was delayed before it was refused
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("user %q was not checked: too many wrong passwords from this address; the next one is checked in %v",
		e.User, e.Wait.Round(time.Second))
}

// Login reports whether the password of a user is correct and may be used from the address peer. After several wrong
// passwords, the next login by the same user from the same address must wait. If the login must wait, Login returns a
// [*WaitError], even if the password is correct.
func (c *Control) Login(peer, name, password string) (ok bool, err error) {
	return c.admit(peer, name, c.authenticFrom(peer, name, password))
}

// admit returns the result of a login. If right is set, the password is correct.
func (c *Control) admit(peer, name string, right bool) (ok bool, err error) {
	if wait := c.guesses.Try(peer, name, right); wait > 0 {
		return false, &WaitError{User: name, Wait: wait}
	}
	return right, nil
}

// AwaitLogin is like Login, but if the login must wait, AwaitLogin waits and tries again. It returns the [*WaitError]
// after maxDelay, or immediately if too many logins from the address are already delayed. If ctx is done, it returns
// the cause. A login with the correct password does not wait if the user has recently logged in from the same address,
// unless many logins from there are already delayed.
func (c *Control) AwaitLogin(ctx context.Context, peer, name, password string) (ok bool, err error) {
	at := userAddress{throttle.Network(peer), name}
	right := c.authenticFrom(peer, name, password)
	defer func() {
		if ok {
			c.known.add(at)
		}
	}()
	if right && c.known.has(at) && c.delayed.count(at.from) < maxDelayedForKnown {
		return true, nil
	}
	ok, err = c.admit(peer, name, right)
	if err == nil {
		return ok, nil
	}
	if !c.delayed.begin(at.from) {
		return false, err
	}
	defer c.delayed.end(at.from)
	end := time.Now().Add(maxDelay)
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
