package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/store"
)

// The page of a group mutes the group for a period, or until a user unmutes it.
func TestMutePage(t *testing.T) {
	c := newConsole(t, Config{})
	add(t, c.cfg.Archive, nil)
	page := func() string { return ask(t, c, "GET", "/groups/1", nil).Body.String() }
	if body := page(); !strings.Contains(body, `action="/groups/1/mute"`) || strings.Contains(body, "Notifications") {
		t.Fatalf("page of a group that is not muted: got %s, want the action mute", body)
	}
	for seconds, want := range map[string]string{"86400": "Notifications muted until ", "0": "Notifications muted</p>", "9223372036854775807": "Notifications muted</p>"} {
		if status, to, body := post(t, c, "/groups/1/mute", url.Values{"seconds": {seconds}}); status != http.StatusSeeOther || to != "/groups/1" {
			t.Fatalf("mute: got status %d, want 303, got location %s, want /groups/1; body %s", status, to, body)
		}
		if body := page(); !strings.Contains(body, want) || !strings.Contains(body, `action="/groups/1/unmute"`) {
			t.Errorf("page of a group muted for %s s: got %s, want %q and the action unmute", seconds, body, want)
		}
	}
	if status, _, _ := post(t, c, "/groups/1/unmute", nil); status != http.StatusSeeOther {
		t.Errorf("unmute: got status %d, want 303", status)
	}
	if body := page(); strings.Contains(body, "Notifications") {
		t.Errorf("page after unmute: got %s, want no text about notifications", body)
	}
	for _, seconds := range []string{"", "-1", "x"} {
		if status, _, _ := post(t, c, "/groups/1/mute", url.Values{"seconds": {seconds}}); status != http.StatusBadRequest {
			t.Errorf("seconds %q: got status %d, want 400", seconds, status)
		}
	}
	if status, _, _ := post(t, c, "/groups/7/mute", url.Values{"seconds": {"0"}}); status != http.StatusNotFound {
		t.Errorf("mute of a missing group: got status %d, want 404", status)
	}
}

func TestMuteAPI(t *testing.T) {
	c := newConsole(t, Config{})
	add(t, c.cfg.Archive, nil)
	for _, x := range []struct {
		method, path, body, want string
		status                   int
	}{
		{"PUT", "/api/v1/groups/1/mute", `{}`, `"muted":"9999-12-31T00:00:00Z"`, http.StatusOK},
		{"PUT", "/api/v1/groups/1/mute", `{"seconds": 60}`, `"muted":"20`, http.StatusOK},
		{"DELETE", "/api/v1/groups/1/mute", ``, `"days":[`, http.StatusOK},
		{"PUT", "/api/v1/groups/1/mute", `{"seconds": -1}`, `seconds must not be negative`, http.StatusBadRequest},
		{"PUT", "/api/v1/groups/7/mute", `{}`, `group 7`, http.StatusNotFound},
		{"DELETE", "/api/v1/groups/7/mute", ``, `group 7`, http.StatusNotFound},
	} {
		var body any
		if x.body != "" {
			body = x.body
		}
		w := ask(t, c, x.method, x.path, body, header("Content-Type", "application/json"))
		if w.Code != x.status || !strings.Contains(w.Body.String(), x.want) || x.method == "DELETE" && strings.Contains(w.Body.String(), "muted") {
			t.Errorf("%s %s %s: got status %d, want %d; body %s", x.method, x.path, x.body, w.Code, x.status, w.Body)
		}
	}
	acts, _, err := c.cfg.Archive.Acts(t.Context(), store.ActFilter{}, store.Page{})
	if err != nil || len(acts) < 3 || acts[0].Verb != "unmute" || acts[1].Verb != "mute" || acts[1].Details["until"] == nil || acts[0].Subject != "group/1" {
		t.Errorf("audit log: got %+v, %v", acts, err)
	}
}
