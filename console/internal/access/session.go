package access

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/bounded"
)

const (
	SessionCookie = "reprise_session"
	SessionLife   = 12 * time.Hour
	mostSessions  = 10_000
)

// sessions are the sessions of browsers. Their number is bounded: the oldest goes first.
type sessions struct {
	clock func() time.Time

	mu   sync.Mutex
	byID *bounded.Map[sessionKey, session]
}

// sessionKey is the hash of an id, so that the time of a look-up tells nothing of the id.
type sessionKey [sha256.Size]byte

type session struct {
	token Token
	ends  time.Time
}

func newSessions(clock func() time.Time) *sessions {
	return &sessions{clock: clock, byID: bounded.New[sessionKey, session](mostSessions)}
}

// Begin returns the id of a new session.
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

// End ends a session, if there is one of that id.
func (s *sessions) End(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID.Drop(sha256.Sum256([]byte(id)))
}

// identifySession finds out who asks by their cookie. A browser sends it with whatever
// it is told to send, so that a request that changes something must say where it comes
// from; that it is from here, sameOrigin has seen.
func (g *Guard) identifySession(r *http.Request) (Visitor, error) {
	cookie, err := r.Cookie(SessionCookie)
	if err != nil {
		return Visitor{}, ErrNotLoggedIn
	}
	t, ok := g.Sessions.find(cookie.Value)
	if !ok {
		return Visitor{}, ErrNotLoggedIn
	}
	if !IsSafe(r.Method) && r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == "" {
		return Visitor{}, errNoOrigin
	}
	return Visitor{Actor: failed.Actor(t.Name), Role: t.Role, Session: cookie.Value}, nil
}

// setCookie sets the cookie of a session, or with "" deletes it.
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

// LogIn begins a session for who sent this secret.
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

// LogOut ends the session of who, if there is one.
func (g *Guard) LogOut(w http.ResponseWriter, r *http.Request, who Visitor) {
	g.Sessions.End(who.Session)
	g.setCookie(w, r, "")
}
