package console

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/access"
	"github.com/reprisemq/reprise/internal/archive/console/internal/pages"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/throttle"
)

// clock is a settable clock.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

// logIn submits the login form.
func logIn(t *testing.T, c *Console, token, next string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	form := url.Values{"token": {token}, "next": {next}}.Encode()
	return ask(t, c, "POST", c.cfg.Prefix+"/login", form, append([]func(*http.Request){
		header("Content-Type", "application/x-www-form-urlencoded"), header("Sec-Fetch-Site", "same-origin"),
	}, change...)...)
}

func sessionOf(t *testing.T, w *httptest.ResponseRecorder) *http.Cookie {
	t.Helper()
	for _, cookie := range w.Result().Cookies() {
		if cookie.Name == access.SessionCookie {
			return cookie
		}
	}
	t.Fatalf("response sets no session cookie: %d %s", w.Code, w.Body)
	return nil
}

func TestSession(t *testing.T) {
	list, secrets := tokens()
	now := &clock{noon}
	c := newConsole(t, Config{Tokens: list, Clock: now.Now})

	w := logIn(t, c, secrets[Operate], "/groups?queue=orders")
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/groups?queue=orders" {
		t.Fatalf("login: got status %d, want 303, got location %s, want /groups?queue=orders", w.Code, w.Header().Get("Location"))
	}
	cookie := sessionOf(t, w)
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.Secure {
		t.Errorf("cookie: got %s, want HttpOnly true, SameSite SameSiteStrictMode, Path /", cookie)
	}
	if me := get[api.Me](t, ask(t, c, "GET", "/api/v1/me", nil, with(cookie))); me != (api.Me{Actor: "operate-er", Role: "operate"}) {
		t.Errorf("me: got %+v, want %+v", me, api.Me{Actor: "operate-er", Role: "operate"})
	}

	now.now = noon.Add(access.SessionLife - time.Second)
	if w := ask(t, c, "GET", "/api/v1/me", nil, with(cookie)); w.Code != http.StatusOK {
		t.Errorf("before the session expires: got status %d, want 200", w.Code)
	}
	now.now = noon.Add(access.SessionLife)
	refused(t, ask(t, c, "GET", "/api/v1/me", nil, with(cookie)), http.StatusUnauthorized, "not logged in")

	cookie = sessionOf(t, logIn(t, c, secrets[View], ""))
	w = ask(t, c, "POST", "/logout", nil, with(cookie), header("Sec-Fetch-Site", "same-origin"))
	if w.Code != http.StatusSeeOther || sessionOf(t, w).MaxAge >= 0 {
		t.Errorf("logout: got status %d, want 303", w.Code)
	}
	refused(t, ask(t, c, "GET", "/api/v1/me", nil, with(cookie)), http.StatusUnauthorized, "not logged in")
}

func with(cookie *http.Cookie) func(*http.Request) {
	return func(r *http.Request) { r.AddCookie(cookie) }
}

func TestLoginEndsPreviousSession(t *testing.T) {
	list, secrets := tokens()
	c := newConsole(t, Config{Tokens: list})
	before := sessionOf(t, logIn(t, c, secrets[View], "/"))
	logIn(t, c, secrets[Admin], "/", with(before))
	refused(t, ask(t, c, "GET", "/api/v1/me", nil, with(before)), http.StatusUnauthorized, "not logged in")
}

func TestCookieIsSecureOverTLS(t *testing.T) {
	list, secrets := tokens()
	for _, secure := range []bool{false, true} {
		c := newConsole(t, Config{Tokens: list, Secure: secure})
		if got := sessionOf(t, logIn(t, c, secrets[View], "/")).Secure; got != secure {
			t.Errorf("Config.Secure is %v: Cookie.Secure is %v, want %v", secure, got, secure)
		}
	}
	server := httptest.NewTLSServer(newConsole(t, Config{Tokens: list}))
	defer server.Close()
	client := server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	answer, err := client.PostForm(server.URL+"/login", url.Values{"token": {secrets[View]}})
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if cookies := answer.Cookies(); len(cookies) != 1 || !cookies[0].Secure {
		t.Errorf("cookies over TLS: got %v, want len 1", cookies)
	}
}

func TestLoginRedirectsOnlyToLocalPaths(t *testing.T) {
	for next, want := range map[string]string{
		"":                         "/",
		"/":                        "/",
		"/messages?text=a%26b&x=1": "/messages?text=a%26b&x=1",
		"https://evil.example/":    "/",
		"//evil.example/":          "/",
		"///evil.example":          "/",
		`/\evil.example`:           "/",
		`\\evil.example`:           "/",
		"/\t/evil.example":         "/",
		"javascript:alert(1)":      "/",
		"evil.example":             "/",
		"/%2Fevil.example":         "/",
		"/ok\r\nSet-Cookie: a=b":   "/",
	} {
		if got := pages.LocalPath(next); got != want {
			t.Errorf("LocalPath(%q): got %q, want %q", next, got, want)
		}
	}
}

func TestUnauthenticatedRequests(t *testing.T) {
	list, _ := tokens()
	c := newConsole(t, Config{Tokens: list})
	w := ask(t, c, "GET", "/?a=b", nil, header("Accept", "text/html,*/*"))
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/login?next=%2F%3Fa%3Db" {
		t.Errorf("page: got status %d, want 303, got location %q, want %q", w.Code, w.Header().Get("Location"), "/login?next=%2F%3Fa%3Db")
	}
	w = ask(t, c, "GET", "/api/v1/queues", nil, header("Accept", "text/html,*/*"))
	refused(t, w, http.StatusUnauthorized, "Bearer")
	if got := w.Header().Get("WWW-Authenticate"); !strings.HasPrefix(got, "Bearer") {
		t.Errorf("WWW-Authenticate: got %q, want the prefix Bearer", got)
	}
}

// Proxies send an Authorization header of their own with each request of a browser: Basic for nginx's auth_basic, a token
// of the identity provider for single sign-on.
func TestAuthorizationOfProxy(t *testing.T) {
	list, secrets := tokens()
	list = append(list, Token{Name: "made-up", Role: View, Hash: access.HashToken("correct horse")})
	for _, foreign := range []string{"Basic YWRtaW46YWRtaW4=", "Bearer eyJhbGciOiJub25lIn0.e30.", "Bearer " + secrets[View] + "x", "Negotiate YII=", "Digest username=x", "x", " "} {
		t.Run(foreign, func(t *testing.T) {
			c := newConsole(t, Config{Tokens: list})
			proxied, html := header("Authorization", foreign), header("Accept", "text/html")
			for range 2 * throttle.FreeMistakes { // a browser loads a page without a session, with its style sheets
				w := ask(t, c, "GET", "/groups", nil, proxied, html)
				if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/login?next=%2Fgroups" {
					t.Fatalf("page without a session: got status %d, location %q, want 303 to /login", w.Code, w.Header().Get("Location"))
				}
				if w := ask(t, c, "GET", "/login", nil, proxied, html); w.Code != http.StatusOK {
					t.Fatalf("login page: got status %d, want 200", w.Code)
				}
			}
			w := logIn(t, c, secrets[Operate], "/groups", proxied)
			if w.Code != http.StatusSeeOther {
				t.Fatalf("login: got status %d, want 303: %s", w.Code, w.Body)
			}
			cookie := sessionOf(t, w)
			for range 2 * throttle.FreeMistakes {
				for _, path := range []string{"/groups", "/api/v1/groups"} {
					if w := ask(t, c, "GET", path, nil, proxied, html, with(cookie)); w.Code != http.StatusOK {
						t.Fatalf("%s with a session: got status %d, want 200: %s", path, w.Code, w.Body)
					}
				}
			}
			if w := logIn(t, c, "correct horse", "/"); w.Code != http.StatusSeeOther && !strings.HasPrefix(foreign, "Bearer") {
				t.Errorf("login of another user: got status %d, want 303", w.Code)
			}
		})
	}
}

// A command sends the password of a proxy in Authorization, and its token in a second header.
func TestTokenBesidePasswordOfProxy(t *testing.T) {
	list, secrets := tokens()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); !ok || user != "anna" || password != "pw" {
			http.Error(w, "401 Authorization Required", http.StatusUnauthorized)
			return
		}
		newConsole(t, Config{Tokens: list}).ServeHTTP(w, r)
	}))
	defer server.Close()
	for base, want := range map[string]string{"http://anna:pw@": "operate", "http://": "401 Unauthorized"} {
		client, err := api.NewClient(api.ClientConfig{URL: base + strings.TrimPrefix(server.URL, "http://"), Token: secrets[Operate]})
		if err != nil {
			t.Fatal(err)
		}
		me, err := client.Me(t.Context())
		if got := me.Role; got != want && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got role %q, %v, want %s", base, got, err, want)
		}
	}
}

func TestSetTokens(t *testing.T) {
	list, secrets := tokens()
	c := newConsole(t, Config{Tokens: list})
	cookies := map[Role]*http.Cookie{}
	for _, role := range []Role{View, Operate, Admin} {
		cookies[role] = sessionOf(t, logIn(t, c, secrets[role], "/"))
	}
	added, hash := NewToken()
	var kept []Token
	for _, old := range list {
		if old.Role == View { // the user becomes an administrator, and operate's token is revoked
			kept = append(kept, Token{Name: old.Name, Role: Admin, Hash: old.Hash})
		} else if old.Role == Admin {
			kept = append(kept, old)
		}
	}
	if err := c.SetTokens(append(kept, Token{Name: "new", Role: View, Hash: hash})); err != nil {
		t.Fatal(err)
	}
	role := func(change func(*http.Request)) string {
		return get[api.Me](t, ask(t, c, "GET", "/api/v1/me", nil, change)).Role
	}
	for what, got := range map[string]string{
		"session of a changed role": role(with(cookies[View])), "changed token": role(bearer(secrets[View])), "kept session": role(with(cookies[Admin])),
	} {
		if got != "admin" {
			t.Errorf("%s: got role %s, want admin", what, got)
		}
	}
	if got := role(bearer(added)); got != "view" {
		t.Errorf("new token: got role %s, want view", got)
	}
	refused(t, ask(t, c, "GET", "/api/v1/me", nil, with(cookies[Operate])), http.StatusUnauthorized, "not logged in")
	refused(t, ask(t, c, "GET", "/api/v1/me", nil, bearer(secrets[Operate])), http.StatusUnauthorized, "unknown token")

	for what, wrong := range map[string][]Token{"no tokens": nil, "invalid hash": {{Name: "x", Role: View, Hash: "sha256:1"}}} {
		if err := c.SetTokens(wrong); err == nil {
			t.Errorf("%s: got no error", what)
		}
	}
	if err := newConsole(t, Config{}).SetTokens(kept); err == nil {
		t.Error("console without tokens: got no error")
	}
	if got := role(bearer(added)); got != "view" {
		t.Errorf("new token after refused changes: got role %s, want view", got)
	}
}

// A session does not let its user guess other tokens.
func TestSessionDoesNotTryTokens(t *testing.T) {
	list, secrets := tokens()
	list = append(list, Token{Name: "made-up", Role: Admin, Hash: access.HashToken("correct horse")})
	c := newConsole(t, Config{Tokens: list})
	cookie := sessionOf(t, logIn(t, c, secrets[View], "/"))
	me := get[api.Me](t, ask(t, c, "GET", "/api/v1/me", nil, with(cookie), bearer("correct horse")))
	if me.Role != "view" {
		t.Errorf("role with a session and a token in the header: got %s, want view", me.Role)
	}
}

// After several wrong tokens, each further wrong token doubles the waiting time of the address. A token that is not
// from NewToken could be guessed, so it is refused during the waiting time even if it is valid.
func TestWrongTokensAreThrottled(t *testing.T) {
	list, secrets := tokens()
	list = append(list, Token{Name: "made-up", Role: View, Hash: access.HashToken("correct horse")})
	now := &clock{noon}
	c := newConsole(t, Config{Tokens: list, Clock: now.Now})
	try := func(secret, peer string) *httptest.ResponseRecorder {
		return ask(t, c, "GET", "/api/v1/me", nil, bearer(secret), from(peer))
	}
	for range throttle.FreeMistakes {
		refused(t, try("guess", "192.0.2.1:1"), http.StatusUnauthorized, "unknown token")
	}
	for _, wait := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		wait *= time.Second
		now.now = now.now.Add(wait - time.Millisecond)
		for _, secret := range []string{"guess", "correct horse"} {
			w := try(secret, "192.0.2.1:2")
			refused(t, w, http.StatusTooManyRequests, "try again in 1 s")
			if w.Header().Get("Retry-After") != "1" {
				t.Errorf("Retry-After: got %q, want \"1\"", w.Header().Get("Retry-After"))
			}
		}
		if w := try("correct horse", "192.0.2.2:1"); w.Code != http.StatusOK {
			t.Errorf("valid token from another address: got status %d, want 200", w.Code)
		}
		if w := try(secrets[Admin], "192.0.2.1:3"); w.Code != http.StatusOK {
			t.Errorf("token from NewToken after wrong tokens: got status %d, want 200", w.Code)
		}
		now.now = now.now.Add(time.Millisecond)
		refused(t, try("guess", "192.0.2.1:1"), http.StatusUnauthorized, "unknown token")
	}
	if w := logIn(t, c, "correct horse", "/", from("192.0.2.1:1")); w.Code != http.StatusTooManyRequests {
		t.Errorf("login during the waiting time: got status %d, want 429", w.Code)
	}
	if w := logIn(t, c, secrets[Admin], "/", from("192.0.2.1:1")); w.Code != http.StatusSeeOther {
		t.Errorf("login with a token from NewToken: got status %d, want 303", w.Code)
	}
	now.now = now.now.Add(access.LongestWait)
	if w := try("correct horse", "192.0.2.1:1"); w.Code != http.StatusOK {
		t.Errorf("valid token after the waiting time: got status %d, want 200", w.Code)
	}
	// Valid tokens from the same address do not reset the waiting time.
	refused(t, try("guess", "192.0.2.1:1"), http.StatusUnauthorized, "unknown token")
	refused(t, try("guess", "192.0.2.1:1"), http.StatusTooManyRequests, "try again in 60 s")
}

// Wrong tokens in the format of NewToken are throttled like other wrong tokens, and do not flood the log.
func TestWrongRandomTokensAreThrottled(t *testing.T) {
	list, _ := tokens()
	now := &clock{noon}
	var log strings.Builder
	c := newConsole(t, Config{Tokens: list, Clock: now.Now, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	try := func() *httptest.ResponseRecorder {
		random, _ := NewToken()
		return ask(t, c, "GET", "/api/v1/me", nil, bearer(random), from("192.0.2.1:1"))
	}
	for range throttle.FreeMistakes {
		refused(t, try(), http.StatusUnauthorized, "unknown token")
	}
	for range 20 {
		refused(t, try(), http.StatusTooManyRequests, "try again in 1 s")
	}
	if n := strings.Count(log.String(), "login refused"); n != throttle.FreeMistakes {
		t.Errorf("logged refusals: got %d, want %d", n, throttle.FreeMistakes)
	}
	now.now = now.now.Add(time.Second)
	refused(t, try(), http.StatusUnauthorized, "unknown token")
	refused(t, try(), http.StatusTooManyRequests, "try again in 2 s")
}

// If no tokens are configured, the header Reprise-Actor specifies the actor. Otherwise, the console ignores the header.
func TestActorHeader(t *testing.T) {
	c := newConsole(t, Config{})
	for claimed, want := range map[string]string{
		"":                       "local",
		"cli:root@host":          "cli:root@host",
		"two words":              "local",
		"café":                   "local",
		strings.Repeat("x", 65):  "local",
		"<script>alert()</scrip": "<script>alert()</scrip",
	} {
		if me := get[api.Me](t, ask(t, c, "GET", "/api/v1/me", nil, header(access.ActorHeader, claimed))); me.Actor != want {
			t.Errorf("actor for the header %q: got %q, want %q", claimed, me.Actor, want)
		}
	}
	list, secrets := tokens()
	c = newConsole(t, Config{Tokens: list})
	me := get[api.Me](t, ask(t, c, "GET", "/api/v1/me", nil, bearer(secrets[View]), header(access.ActorHeader, "cli:root@host")))
	if me.Actor != "view-er" {
		t.Errorf("actor with a token and a header: got %q, want %q", me.Actor, "view-er")
	}
}

func TestConfigValidate(t *testing.T) {
	_, hash := NewToken()
	archive := newArchive(t, store.Config{})
	for _, tc := range []struct {
		want string
		cfg  Config
	}{
		{`must be a URL such as http://host:15672: got "localhost:15672"`, Config{Archive: archive, Management: &mgmtapi.API{URL: "localhost:15672"}}},
		{`Tokens[0].Name must be 1 to 64 letters, digits and . _ - @: got "a b"`, Config{Archive: archive, Tokens: []Token{{Name: "a b", Role: View, Hash: hash}}}},
		{`got "policy:x"`, Config{Archive: archive, Tokens: []Token{{Name: "policy:x", Role: View, Hash: hash}}}},
		{`Tokens[1].Name must be unique: got "a" twice`, Config{Archive: archive, Tokens: []Token{{Name: "a", Role: View, Hash: hash}, {Name: "a", Role: View, Hash: access.HashToken("x")}}}},
		{"Tokens[1].Hash must be unique", Config{Archive: archive, Tokens: []Token{{Name: "a", Role: View, Hash: hash}, {Name: "b", Role: View, Hash: hash}}}},
		{"Tokens[0].Role must be View, Operate or Admin: got nobody", Config{Archive: archive, Tokens: []Token{{Name: "a", Role: Nobody, Hash: hash}}}},
		{"Tokens[0].Hash must be a hash from NewToken", Config{Archive: archive, Tokens: []Token{{Name: "a", Role: View, Hash: "secret"}}}},
	} {
		if _, err := New(tc.cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v does not contain %q", err, tc.want)
		}
	}
}

func TestRoleTextEncoding(t *testing.T) {
	for _, r := range []Role{View, Operate, Admin} {
		text, _ := r.MarshalText()
		var got Role
		if err := got.UnmarshalText(text); err != nil || got != r {
			t.Errorf("UnmarshalText(%s): got %v, want %v; error %v", text, got, r, err)
		}
	}
	for _, text := range []string{"", "nobody", "root", "Admin"} {
		if err := new(Role).UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "must be view, operate or admin") {
			t.Errorf("UnmarshalText(%q): got error %v", text, err)
		}
	}
}

// Changes to the Config after New do not change the role of a token.
func TestConsoleConfigIsImmutable(t *testing.T) {
	for f := range reflect.TypeFor[Console]().Fields() {
		if f.IsExported() {
			t.Errorf("field %s is exported", f.Name)
		}
	}
	list, secrets := tokens()
	cfg := Config{Archive: newArchive(t, store.Config{}), Tokens: list}
	c := newConsole(t, cfg)
	cfg.Tokens[0].Role = Admin
	for role, secret := range secrets {
		if me := get[api.Me](t, ask(t, c, "GET", "/api/v1/me", nil, bearer(secret))); me.Role != role.String() {
			t.Errorf("token with role %s: got role %s, want %s", role, me.Role, role.String())
		}
	}
}
