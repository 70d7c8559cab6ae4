package console

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/reprisemq/reprise/failed"
)

// visitor is whoever asks.
type visitor struct {
	actor   failed.Actor // "" if nobody is logged in
	role    Role
	session string // the cookie's value, where that let them in
}

// actorHeader says who asks, where there are no tokens to know it by.
const actorHeader = "Reprise-Actor"

// localActor is who that is if the header says nothing.
const localActor = "local"

// errForeign says that a request did not come from this machine, or did not mean it.
var errForeign = &failure{
	status: http.StatusForbidden,
	text:   "only this machine gets in while there are no tokens",
	advice: "open http://localhost on the machine itself, through an SSH tunnel for instance; or set up tokens",
}

var errNotLoggedIn = &failure{
	status: http.StatusUnauthorized,
	text:   "not logged in",
	advice: "send the header Authorization: Bearer TOKEN, or log in at /login",
}

var errWrongToken = &failure{
	status: http.StatusUnauthorized,
	text:   "unknown token",
	advice: "ask whoever set up the console for a token",
}

var errNoOrigin = &failure{
	status: http.StatusForbidden,
	text:   "the request does not say where it comes from",
	advice: "use a browser that sends Origin or Sec-Fetch-Site, or a token in the header Authorization",
}

func isForeign(err error) bool { return errors.Is(err, errForeign) }

func forbidden(who visitor, needed Role) *failure {
	return &failure{
		status: http.StatusForbidden,
		text:   "this takes the role " + needed.String() + ", yours is " + who.role.String(),
		advice: "ask for a token with the role " + needed.String(),
	}
}

// identify finds out who asks.
func (c *Console) identify(w http.ResponseWriter, r *http.Request) (visitor, error) {
	if len(c.cfg.Tokens) == 0 {
		return identifyLocal(r)
	}
	w.Header().Add("Vary", "Authorization, Cookie")
	if text := r.Header.Get("Authorization"); text != "" {
		scheme, secret, _ := strings.Cut(text, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return visitor{}, errNotLoggedIn
		}
		t, err := c.check(r, strings.TrimSpace(secret))
		if err != nil {
			return visitor{}, err
		}
		return visitor{actor: failed.Actor(t.Name), role: t.Role}, nil
	}
	return c.identifySession(r)
}

// identifyLocal lets in what comes from this machine and asks for it.
func identifyLocal(r *http.Request) (visitor, error) {
	if !isLoopback(r.RemoteAddr) || !isLoopbackHost(r.Host) {
		return visitor{}, errForeign
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if r.Header.Get(name) != "" {
			return visitor{}, errForeign
		}
	}
	return visitor{actor: claimedActor(r), role: Admin}, nil
}

// claimedActor is who asks by their own account: one of those who may do everything
// on this machine anyway.
func claimedActor(r *http.Request) failed.Actor {
	text := r.Header.Get(actorHeader)
	if text == "" || len(text) > maxTokenName || strings.ContainsFunc(text, unprintable) {
		return localActor
	}
	return failed.Actor(text)
}

func unprintable(r rune) bool { return r <= ' ' || r > '~' }

// isLoopback reports whether addr, an address and a port, is of this machine.
func isLoopback(addr string) bool {
	a, err := netip.ParseAddrPort(addr)
	return err == nil && a.Addr().Unmap().IsLoopback()
}

// isLoopbackHost reports whether a Host header names this machine and leaves no name
// server a say in it.
func isLoopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}
