package console

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/store"
)

// A console with a prefix responds under the prefix, and all URLs in its pages begin with the prefix.
func TestPrefix(t *testing.T) {
	list, secrets := tokens()
	c := newConsole(t, Config{Tokens: list, Prefix: "/ops/reprise/", Replayer: &fakeReplayer{}})
	add(t, c.cfg.Archive, nil)
	html := header("Accept", "text/html")
	for _, test := range []struct {
		path, location string
		status         int
	}{
		{"/", "/ops/reprise/", http.StatusSeeOther},
		{"/ops/reprise", "/ops/reprise/", http.StatusTemporaryRedirect},
		{"/ops/reprise//groups", "/ops/reprise/groups", http.StatusTemporaryRedirect},
		{"/ops/reprise/messages?queue=a", "/ops/reprise/login?next=%2Fmessages%3Fqueue%3Da", http.StatusSeeOther},
		{"/ops/reprise/login", "", http.StatusOK},
		{"/ops/reprise/assets/console.css", "", http.StatusOK},
		{"/messages", "", http.StatusNotFound},
		{"/assets/console.css", "", http.StatusNotFound},
	} {
		w := ask(t, c, "GET", test.path, nil, html)
		if location := w.Header().Get("Location"); w.Code != test.status || location != test.location {
			t.Errorf("GET %s: status %d, location %q, want %d, %q", test.path, w.Code, location, test.status, test.location)
		}
	}
	refused(t, ask(t, c, "GET", "/api/v1/me", nil), http.StatusNotFound, "/ops/reprise")

	w := logIn(t, c, secrets[Operate], "/messages?queue=a")
	cookies := w.Result().Cookies()
	if location := w.Header().Get("Location"); location != "/ops/reprise/messages?queue=a" || len(cookies) != 1 || cookies[0].Path != "/ops/reprise/" {
		t.Fatalf("login: got location %q, want %q, cookies %v", location, "/ops/reprise/messages?queue=a", cookies)
	}
	session := header("Cookie", cookies[0].String())
	for _, path := range []string{"/", "/groups", "/groups/1", "/messages", "/messages/1", "/messages/1/edit", "/replays", "/replays/new?id=1", "/discard?id=1", "/topology", "/ledger", "/audit", "/nowhere"} {
		w := ask(t, c, "GET", "/ops/reprise"+path, nil, session)
		for _, m := range addresses.FindAllStringSubmatch(w.Body.String(), -1) {
			if !strings.HasPrefix(m[1], "/ops/reprise/") && m[1] != "#main" {
				t.Errorf("%s contains the URL %s", path, m[0])
			}
		}
	}
	var doc struct{ Servers []struct{ URL string } }
	if err := json.Unmarshal(ask(t, c, "GET", "/ops/reprise/api/v1/openapi.json", nil, session).Body.Bytes(), &doc); err != nil || doc.Servers[0].URL != "/ops/reprise/api/v1" {
		t.Errorf("servers: got %+v, want [0].URL /ops/reprise/api/v1; error %v", doc.Servers, err)
	}
}

func TestValidatePrefix(t *testing.T) {
	for prefix, valid := range map[string]bool{
		"": true, "/reprise": true, "/ops/reprise/": true, "/v1.2_a~b-c": true,
		"reprise": false, "/": false, "//host": false, "/../a": false, "/a//b": false, "/{a}": false, "/a b": false, "/a?b": false, "/%41": false, "/é": false,
	} {
		cfg := Config{Archive: newArchive(t, store.Config{}), Prefix: prefix}
		if err := cfg.Validate(); (err == nil) != valid {
			t.Errorf("prefix %q: got error %v", prefix, err)
		}
	}
}

// addresses matches the attributes of a page that contain URLs.
var addresses = regexp.MustCompile(`\b(?:href|src|action|formaction|hx-get|hx-post)="([^"]*)"`)
