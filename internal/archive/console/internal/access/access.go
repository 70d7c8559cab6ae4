// Package access authenticates requests and determines the role of the user by token, by session or, if no tokens are
// configured, by loopback address. It does not depend on routes or pages.
package access

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/throttle"
)

// Visitor is the authenticated sender of a request.
type Visitor struct {
	Actor   failed.Actor // "" without a login
	Role    Role
	Session string // value of the session cookie, if the user has a session
}

// Guard authenticates requests.
type Guard struct {
	tokens   atomic.Pointer[[]Token]
	secure   bool   // whether cookies always have the attribute Secure
	path     string // of cookies
	logger   *slog.Logger
	Sessions *sessions
	Wrong    *throttle.Throttle
}

// LongestWait is the maximum delay after wrong tokens.
const LongestWait = time.Minute

func NewGuard(tokens []Token, secure bool, path string, clock func() time.Time, logger *slog.Logger) *Guard {
	g := &Guard{secure: secure, path: path, logger: logger, Sessions: newSessions(clock), Wrong: throttle.New(clock, LongestWait)}
	g.SetTokens(tokens)
	return g
}

// SetTokens replaces the tokens. Sessions have the role of their token, and end with it.
func (g *Guard) SetTokens(tokens []Token) { g.tokens.Store(&tokens) }

// HasTokens reports whether users need a token.
func (g *Guard) HasTokens() bool { return len(*g.tokens.Load()) > 0 }

// ActorHeader is the header that contains the name of the user if no tokens are configured.
const ActorHeader = "Reprise-Actor"

// localActor is the name of a user without a valid ActorHeader.
const localActor = "local"

// errForeign is returned, if no tokens are configured, for a request from another machine, through a proxy, or for a
// host that is not a loopback host.
var errForeign = &fault.Failure{
	Status: http.StatusForbidden,
	Text:   "without tokens, only local users have access",
	Advice: "open http://localhost on the machine of the console, for example through an SSH tunnel, or configure tokens",
}

var ErrNotLoggedIn = &fault.Failure{
	Status: http.StatusUnauthorized,
	Text:   "not logged in",
	Advice: "send the header Authorization: Bearer TOKEN, or log in at /login",
}

var errWrongToken = &fault.Failure{
	Status: http.StatusUnauthorized,
	Text:   "unknown token",
	Advice: "ask the administrator of the console for a token",
}

var errNoOrigin = &fault.Failure{
	Status: http.StatusForbidden,
	Text:   "the request must have the header Origin or Sec-Fetch-Site",
	Advice: "use a browser that sends Origin or Sec-Fetch-Site, or a token in the header Authorization",
}

func IsForeign(err error) bool { return errors.Is(err, errForeign) }

func Forbidden(who Visitor, needed Role) *fault.Failure {
	return &fault.Failure{
		Status: http.StatusForbidden,
		Text:   "this action requires the role " + needed.String() + ": your role is " + who.Role.String(),
		Advice: "ask for a token with the role " + needed.String(),
	}
}

// Identify authenticates the sender of a request by session or, if tokens is true, by the header Authorization or
// api.TokenHeader. A valid session precedes the headers, because proxies set or forward Authorization for their own
// purposes.
func (g *Guard) Identify(w http.ResponseWriter, r *http.Request, tokens bool) (Visitor, error) {
	if !g.HasTokens() {
		return identifyLocal(r)
	}
	w.Header().Add("Vary", "Authorization, Cookie, "+api.TokenHeader)
	who, err := g.identifySession(r)
	secret := r.Header.Get(api.TokenHeader)
	if scheme, value, _ := strings.Cut(r.Header.Get("Authorization"), " "); secret == "" && strings.EqualFold(scheme, "Bearer") {
		secret = value
	} else if secret == "" {
		return who, err
	}
	if err == nil || !tokens {
		return who, err
	}
	t, err := g.check(r, strings.TrimSpace(secret))
	if err != nil {
		return Visitor{}, err
	}
	return Visitor{Actor: failed.Actor(t.Name), Role: t.Role}, nil
}

// identifyLocal accepts requests from this machine for a loopback host. It rejects forwarded requests.
func identifyLocal(r *http.Request) (Visitor, error) {
	if !isLoopback(r.RemoteAddr) || !isLoopbackHost(r.Host) {
		return Visitor{}, errForeign
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if r.Header.Get(name) != "" {
			return Visitor{}, errForeign
		}
	}
	return Visitor{Actor: claimedActor(r), Role: Admin}, nil
}

// claimedActor returns the name in ActorHeader. The name is not verified, because all users of this machine have the
// role admin.
func claimedActor(r *http.Request) failed.Actor {
	text := r.Header.Get(ActorHeader)
	if text == "" || len(text) > maxTokenName || strings.ContainsFunc(text, Unprintable) {
		return localActor
	}
	return failed.Actor(text)
}

func Unprintable(r rune) bool { return r <= ' ' || r > '~' }

// isLoopback reports whether addr, an address with a port, is a loopback address.
func isLoopback(addr string) bool {
	a, err := netip.ParseAddrPort(addr)
	return err == nil && a.Addr().Unmap().IsLoopback()
}

// isLoopbackHost reports whether a Host header is localhost or a loopback address. Other host names could resolve to
// this machine (DNS rebinding).
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

// IsSafe reports whether method is GET, HEAD or OPTIONS. Requests with these methods must not change data.
func IsSafe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}
