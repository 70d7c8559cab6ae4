package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/console/internal/access"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/throttle"
)

// reachable is a console whose handlers only record that a request has reached them.
type reachable struct {
	*Console
	reached string
	routes  []web.Route
}

func newReachable(t *testing.T, cfg Config) *reachable {
	m := &reachable{Console: newConsole(t, cfg)}
	m.routes = m.Console.routes()
	for i := range m.routes {
		pattern := m.routes[i].Pattern()
		m.routes[i].Handle = func(c *web.Call) error {
			m.reached = pattern
			return c.OK("reached")
		}
	}
	m.server.Build(m.routes)
	return m
}

// try sends a request for a route. It reports whether the request reached the handler, and returns the response.
func (m *reachable) try(t *testing.T, r web.Route, change ...func(*http.Request)) (bool, *httptest.ResponseRecorder) {
	t.Helper()
	method := r.Method
	if method == "" {
		method = http.MethodPost // any method
	}
	path := strings.NewReplacer("{$}", "", "{id}", "1", "{number}", "1", "{file}", "x").Replace(r.Path)
	if path == "/api/" || path == "/" && r.Method == "" {
		path += "nothing"
	}
	m.reached = ""
	w := ask(t, m.Console, method, path, nil, change...)
	if m.reached != "" && m.reached != r.Pattern() {
		t.Fatalf("%s %s reached %s", method, path, m.reached)
	}
	return m.reached != "", w
}

func isUnsafe(r web.Route) bool { return r.Method != "GET" }

// For each combination of route, role and method of authentication, only permitted requests reach the handler.
func TestPermissions(t *testing.T) {
	list, secrets := tokens()
	m := newReachable(t, Config{Tokens: list})
	sessions := map[Role]string{}
	for i, role := range []Role{View, Operate, Admin} {
		sessions[role] = m.server.Guard.Sessions.Begin(access.Token(list[i]))
	}
	peers := 0
	stranger := func(r *http.Request) { // from an address that has not sent wrong tokens
		peers++
		r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", peers%250)
		if peers%250 == 0 {
			m.server.Guard.Wrong = throttle.New(m.cfg.Clock, access.LongestWait)
		}
	}
	cookie := func(role Role) func(*http.Request) {
		return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: access.SessionCookie, Value: sessions[role]}) }
	}
	sameOrigin := header("Sec-Fetch-Site", "same-origin")
	crossSite := header("Sec-Fetch-Site", "cross-site")
	evil := header("Origin", "https://evil.example")

	for _, r := range m.routes {
		t.Run(r.Pattern(), func(t *testing.T) {
			check := func(what string, want bool, status int, change ...func(*http.Request)) {
				t.Helper()
				got, w := m.try(t, r, change...)
				if got != want {
					t.Errorf("%s: reached %v, want %v", what, got, want)
				}
				if !want && w.Code != status {
					t.Errorf("%s: status %d, want %d", what, w.Code, status)
				}
			}
			public := r.Role == Nobody
			check("nobody", public, http.StatusUnauthorized)
			check("unknown token", public, http.StatusUnauthorized, stranger, bearer("guess"))
			check("no token", public, http.StatusUnauthorized, stranger, bearer(""))
			check("password", public, http.StatusUnauthorized, header("Authorization", "Basic YWRtaW46YWRtaW4="))
			check("unknown session", public, http.StatusUnauthorized, sameOrigin, func(r *http.Request) {
				r.AddCookie(&http.Cookie{Name: access.SessionCookie, Value: "guess"})
			})
			for role := View; role <= Admin; role++ {
				may := role >= r.Role
				check("token of "+role.String(), may, http.StatusForbidden, bearer(secrets[role]))
				check("session of "+role.String(), may, http.StatusForbidden, cookie(role), sameOrigin)
				if !isUnsafe(r) {
					check("cross-site link, "+role.String(), may, http.StatusForbidden, cookie(role), crossSite)
					continue
				}
				check("cross-site request, "+role.String(), false, http.StatusForbidden, cookie(role), crossSite)
				check("cross-site request of an old browser, "+role.String(), false, http.StatusForbidden, cookie(role), evil)
				check("session without origin, "+role.String(), public, http.StatusForbidden, cookie(role))
			}
		})
	}
}

// Without tokens, only local users have access, and the console refuses host names that are not loopback names, even if
// they resolve to this machine (DNS rebinding).
func TestPermissionsWithoutTokens(t *testing.T) {
	m := newReachable(t, Config{})
	for _, r := range m.routes {
		t.Run(r.Pattern(), func(t *testing.T) {
			for what, change := range map[string]func(*http.Request){
				"IPv4":         func(r *http.Request) {},
				"IPv6":         func(r *http.Request) { r.RemoteAddr, r.Host = "[::1]:5", "[::1]:8085" },
				"IPv4 in IPv6": from("[::ffff:127.0.0.1]:5"),
				"no port":      func(r *http.Request) { r.Host = "LOCALHOST" },
				"IPv6, no port": func(r *http.Request) {
					r.Host = "[::1]"
				},
				"another loopback address": func(r *http.Request) { r.RemoteAddr, r.Host = "127.0.0.2:5", "127.0.0.2:8085" },
			} {
				if ok, w := m.try(t, r, change); !ok {
					t.Errorf("%s: handler not reached: status %d, body %s", what, w.Code, w.Body)
				}
			}
			for what, change := range map[string]func(*http.Request){
				"another machine":      from("192.0.2.1:5"),
				"another machine, v6":  from("[2001:db8::1]:5"),
				"no address":           from("@"),
				"DNS rebinding":        func(r *http.Request) { r.Host = "evil.example:8085" },
				"similar host name":    func(r *http.Request) { r.Host = "localhost.evil.example" },
				"address as host name": func(r *http.Request) { r.Host = "127.0.0.1.evil.example" },
				"no host":              func(r *http.Request) { r.Host = "" },
				"forwarded":            header("X-Forwarded-For", "192.0.2.1"),
				"forwarded, RFC 7239":  header("Forwarded", "for=192.0.2.1"),
			} {
				if ok, w := m.try(t, r, change); ok || w.Code != http.StatusForbidden {
					t.Errorf("%s: reached %v, got status %d, want 403", what, ok, w.Code)
				}
			}
			if isUnsafe(r) {
				if ok, _ := m.try(t, r, header("Sec-Fetch-Site", "cross-site")); ok {
					t.Error("cross-site request reached the handler")
				}
				if ok, _ := m.try(t, r, header("Origin", "null")); ok {
					t.Error("request with the origin null reached the handler")
				}
			}
		})
	}
}

// Only the routes in public do not require a role. The routes in admin require the role Admin. Other routes that change
// data, and those in content, require at least the role Operate.
func TestRolesOfRoutes(t *testing.T) {
	public := map[string]bool{"GET /login": true, "POST /login": true, "POST /logout": true, "GET /assets/{file}": true}
	admin := map[string]bool{"POST /api/v1/messages/import": true, "POST /api/v1/purge": true, "POST /api/v1/erase": true, "POST /api/v1/queues/purge": true}
	content := map[string]bool{"GET /api/v1/scheduled/{id}": true, "GET /scheduled/{id}": true} // not covered by the redaction of the archive
	for _, r := range newConsole(t, Config{}).routes() {
		switch {
		case content[r.Pattern()] && r.Role != Operate:
			t.Errorf("role of %s: got %s, want operate", r.Pattern(), r.Role)
		case public[r.Pattern()]:
			if r.Role != Nobody {
				t.Errorf("role of %s: got %s, want none", r.Pattern(), r.Role)
			}
		case r.Role < View:
			t.Errorf("%s is public", r.Pattern())
		case admin[r.Pattern()] && r.Role != Admin:
			t.Errorf("role of %s: got %s, want admin", r.Pattern(), r.Role)
		case isUnsafe(r) && r.Role < Operate && r.Path != "/api/" && r.Path != "/":
			t.Errorf("%s changes data, but requires only the role %s", r.Pattern(), r.Role)
		}
	}
}

// Every response, including an error, has the security headers.
func TestSecurityHeaders(t *testing.T) {
	c := newConsole(t, Config{})
	for what, w := range map[string]*httptest.ResponseRecorder{
		"page":         ask(t, c, "GET", "/", nil),
		"API":          ask(t, c, "GET", "/api/v1/queues", nil),
		"nothing":      ask(t, c, "GET", "/api/v1/nothing", nil),
		"foreign":      ask(t, c, "GET", "/", nil, from("192.0.2.1:5")),
		"cross-site":   ask(t, c, "POST", "/api/v1/purge", nil, header("Sec-Fetch-Site", "cross-site")),
		"wrong method": ask(t, c, "TRACE", "/api/v1/purge", nil),
	} {
		h := w.Header()
		if csp := h.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q, want \"default-src 'none'\"", what, csp)
		}
		for name, value := range map[string]string{
			"X-Content-Type-Options":       "nosniff",
			"X-Frame-Options":              "DENY",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cache-Control":                "no-store",
		} {
			if h.Get(name) != value {
				t.Errorf("%s: %s %q, want %q", what, name, h.Get(name), value)
			}
		}
		if h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: response permits reads from other sites", what)
		}
	}
}
