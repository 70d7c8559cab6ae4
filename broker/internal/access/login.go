package access

import (
	"context"
	"fmt"
	"time"
)

const (
	// longestWait is how long a login can have to wait for the wrong ones before it, and for how long it is held. Clients give
	// up after ten seconds or more. So whoever has the right password gets in although a program with an old one tries again
	// and again from the same address: a longer wait would keep workers out after a change of passwords.
	longestWait = 5 * time.Second
	// mostHeld is how many logins are held at a time. The others that have to wait are refused at once.
	mostHeld = 100
)

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

// AwaitLogin is Login, and holds a login that has to wait, for a few seconds or until ctx ends.
func (c *Control) AwaitLogin(ctx context.Context, peer, name, password string) (ok bool, err error) {
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
