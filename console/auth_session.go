package console

import (
	"container/list"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/failed"
)

const (
	sessionCookie = "reprise_session"
	sessionLife   = 12 * time.Hour
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

// begin returns the id of a new session.
func (s *sessions) begin(t Token) string {
	id := rand.Text()
	key := sha256.Sum256([]byte(id))
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	for e := s.old.Front(); e != nil && (s.old.Len() >= mostSessions || !now.Before(e.Value.(*session).ends)); e = s.old.Front() {
		s.drop(e)
	}
	s.byID[key] = s.old.PushBack(&session{key, t, now.Add(sessionLife)})
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

func (s *sessions) end(id string) {
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
func (c *Console) identifySession(r *http.Request) (visitor, error) {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return visitor{}, errNotLoggedIn
	}
	t, ok := c.sessions.find(cookie.Value)
	if !ok {
		return visitor{}, errNotLoggedIn
	}
	if !isSafe(r.Method) && r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == "" {
		return visitor{}, errNoOrigin
	}
	return visitor{actor: failed.Actor(t.Name), role: t.Role, session: cookie.Value}, nil
}

func (c *Console) loginRoutes() []route {
	return []route{
		{method: "GET", path: "/login", role: Nobody, query: []string{"next"}, handle: (*call).showLogin},
		{method: "POST", path: "/login", role: Nobody, form: []string{"next", "token"}, handle: (*call).login},
		{method: "POST", path: "/logout", role: Nobody, handle: (*call).logout},
	}
}

func (c *call) showLogin() error {
	next := localPath(c.params.Get("next"))
	if c.who.role > Nobody {
		http.Redirect(c.w, c.r, next, http.StatusSeeOther)
		return nil
	}
	return c.loginPage(next, nil)
}

// login takes a form with the token, and where to go then.
func (c *call) login() error {
	v, err := c.form()
	if err != nil {
		return err
	}
	next := localPath(v.Get("next"))
	if len(c.cfg.Tokens) == 0 {
		http.Redirect(c.w, c.r, next, http.StatusSeeOther)
		return nil
	}
	t, err := c.check(c.r, strings.TrimSpace(v.Get("token")))
	if err != nil {
		return c.loginPage(next, asFailure(err))
	}
	if c.who.session != "" {
		c.sessions.end(c.who.session)
	}
	c.setCookie(c.sessions.begin(t), int(sessionLife/time.Second))
	c.cfg.Logger.Info("login", "name", t.Name, "role", t.Role, "peer", c.r.RemoteAddr)
	http.Redirect(c.w, c.r, next, http.StatusSeeOther)
	return nil
}

func (c *call) logout() error {
	if c.who.session != "" {
		c.sessions.end(c.who.session)
	}
	c.setCookie("", -1)
	http.Redirect(c.w, c.r, "/login", http.StatusSeeOther)
	return nil
}

func (c *call) setCookie(value string, seconds int) {
	http.SetCookie(c.w, &http.Cookie{
		Name:     sessionCookie,
		Value:    value,
		Path:     "/",
		MaxAge:   seconds,
		HttpOnly: true,
		Secure:   c.cfg.Secure || c.r.TLS != nil,
		SameSite: http.SameSiteStrictMode,
	})
}

// localPath returns where to go after the login: a path of ours, and not what
// somebody else made of the link to it.
func localPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(u.Path, "/") ||
		strings.HasPrefix(u.Path, "//") || strings.ContainsAny(next, "\\\r\n\t") {
		return "/"
	}
	return u.RequestURI()
}
