package access

import (
	"container/list"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/failed"
)

const (
	SessionCookie = "reprise_session"
	SessionLife   = 12 * time.Hour
	mostSessions  = 10_000
)

// sessions are those who logged in with a browser. Its memory is bounded: the
// oldest session goes first.
type sessions struct {
	clock func() time.Time

	mu   sync.Mutex
	byID map[[sha256.Size]byte]*list.Element // by the hash, so that a lookup's time tells nothing of the id
	old  list.List                           // of *session, the oldest first: all live equally long
}

type session struct {
	key   [sha256.Size]byte
	token Token
	ends  time.Time
}

func newSessions(clock func() time.Time) *sessions {
	return &sessions{clock: clock, byID: map[[sha256.Size]byte]*list.Element{}}
}

// Begin returns the id of a new session.
func (s *sessions) Begin(t Token) string {
	id := rand.Text()
	key := sha256.Sum256([]byte(id))
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	for e := s.old.Front(); e != nil && (s.old.Len() >= mostSessions || !now.Before(e.Value.(*session).ends)); e = s.old.Front() {
		s.drop(e)
	}
	s.byID[key] = s.old.PushBack(&session{key, t, now.Add(SessionLife)})
	return id
}

func (s *sessions) find(id string) (Token, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byID[sha256.Sum256([]byte(id))]
	if e == nil || !s.clock().Before(e.Value.(*session).ends) {
		return Token{}, false
	}
	return e.Value.(*session).token, true
}

func (s *sessions) End(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byID[sha256.Sum256([]byte(id))]; e != nil {
		s.drop(e)
	}
}

func (s *sessions) drop(e *list.Element) { delete(s.byID, s.old.Remove(e).(*session).key) }

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
		Name: SessionCookie, Value: value, Path: "/", MaxAge: age,
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
