package access

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/bounded"
)

const (
	SessionCookie = "reprise_session"
	SessionLife   = 12 * time.Hour
	mostSessions  = 10_000
)

// sessions stores the sessions of browsers. If there are mostSessions sessions, a new session replaces the oldest
// session.
type sessions struct {
	clock func() time.Time

	mu   sync.Mutex
	byID *bounded.Map[sessionKey, session]
}

// sessionKey is the hash of a session ID. Lookups by hash do not leak the ID through timing.
type sessionKey [sha256.Size]byte

type session struct {
	token Token
	ends  time.Time
}

func newSessions(clock func() time.Time) *sessions {
	return &sessions{clock: clock, byID: bounded.New[sessionKey, session](mostSessions)}
}

// Begin creates a session and returns its ID.
func (s *sessions) Begin(t Token) string {
	id := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	for key, old, ok := s.byID.Oldest(); ok && !now.Before(old.ends); key, old, ok = s.byID.Oldest() {
		s.byID.Drop(key)
	}
	s.byID.Put(sha256.Sum256([]byte(id)), session{t, now.Add(SessionLife)})
	return id
}

func (s *sessions) find(id string) (Token, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.byID.Get(sha256.Sum256([]byte(id)))
	return found.token, ok && s.clock().Before(found.ends)
}

// End deletes a session. An unknown ID is ignored.
func (s *sessions) End(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID.Drop(sha256.Sum256([]byte(id)))
}

// identifySession returns the user of the session cookie. Browsers send the cookie even with forged requests from other
// origins of the same site. Old browsers, which ignore SameSite, send it with forged requests from any site. A request
// that changes data must therefore have a header with its origin, which package web compares with the origin of the
// console.
func (g *Guard) identifySession(r *http.Request) (Visitor, error) {
	cookie, err := r.Cookie(SessionCookie)
	if err != nil {
		return Visitor{}, ErrNotLoggedIn
	}
	began, ok := g.Sessions.find(cookie.Value)
	if !ok {
		return Visitor{}, ErrNotLoggedIn
	}
	t := g.tokenOf(began.Hash)
	if t == nil { // removed
		return Visitor{}, ErrNotLoggedIn
	}
	if !IsSafe(r.Method) && r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == "" {
		return Visitor{}, errNoOrigin
	}
	return Visitor{Actor: failed.Actor(t.Name), Role: t.Role, Session: cookie.Value}, nil
}

// setCookie sets the session cookie. An empty value deletes the cookie.
func (g *Guard) setCookie(w http.ResponseWriter, r *http.Request, value string) {
	age := int(SessionLife / time.Second)
	if value == "" {
		age = -1
	}
	http.SetCookie(w, &http.Cookie{
		Name: SessionCookie, Value: value, Path: g.path, MaxAge: age,
		HttpOnly: true, Secure: g.secure || r.TLS != nil, SameSite: http.SameSiteStrictMode,
	})
}

// LogIn begins a session for the token with this secret. It ends the previous session of the visitor, if any.
func (g *Guard) LogIn(w http.ResponseWriter, r *http.Request, who Visitor, secret string) error {
	t, err := g.check(r, strings.TrimSpace(secret))
	if err != nil {
		return err
	}
	g.Sessions.End(who.Session)
	g.setCookie(w, r, g.Sessions.Begin(t))
	g.logger.Info("login", "name", t.Name, "role", t.Role, "peer", r.RemoteAddr)
	return nil
}

// LogOut ends the session of the visitor, if any, and deletes the cookie.
func (g *Guard) LogOut(w http.ResponseWriter, r *http.Request, who Visitor) {
	g.Sessions.End(who.Session)
	g.setCookie(w, r, "")
}
