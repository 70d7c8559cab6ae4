package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

func addErrors(t *testing.T, a *store.Archive, queue string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if _, err := a.Add(t.Context(), []failed.Message{{Queue: queue, Error: text}}); err != nil {
			t.Fatal(err)
		}
	}
}

// An operator merges selected groups under one name, and undoes it on the page of the group.
func TestMergePages(t *testing.T) {
	c := newConsole(t, Config{})
	addErrors(t, c.cfg.Archive, "orders", "Ada is blocked", "Bob is blocked", "Bob is blocked")
	addErrors(t, c.cfg.Archive, "mails", "Ada is blocked")
	if body := ask(t, c, "GET", "/groups", nil).Body.String(); !strings.Contains(body, `action="/groups/merge"`) || !strings.Contains(body, `aria-label="Select group 2"`) {
		t.Fatalf("list of groups: got %s, want a form with checkboxes", body)
	}
	if w := ask(t, c, "GET", "/groups/merge?id=1&id=2", nil); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `value="Bob is blocked" required`) || !strings.Contains(w.Body.String(), "<h1>Merge groups</h1>") {
		t.Fatalf("form: got status %d, body %s, want the name of the largest group", w.Code, w.Body)
	}
	for name, v := range map[string]url.Values{"no name": {"id": {"1"}, "name": {" "}}, "two queues": {"id": {"1", "3"}, "name": {"x"}}} {
		if status, _, body := post(t, c, "/groups/merge", v); status != http.StatusUnprocessableEntity || !strings.Contains(body, "groups of one work queue") {
			t.Errorf("%s: got status %d, want 422 and the reason; body %s", name, status, body)
		}
	}
	if w := ask(t, c, "GET", "/groups/merge", nil); w.Code != http.StatusBadRequest {
		t.Errorf("no selection: got status %d, want 400", w.Code)
	}
	status, to, _ := post(t, c, "/groups/merge", url.Values{"id": {"1", "2"}, "name": {"customer is blocked"}})
	if status != http.StatusSeeOther {
		t.Fatalf("merge: got status %d, want 303", status)
	}
	if body := ask(t, c, "GET", to, nil).Body.String(); !strings.Contains(body, "customer is blocked</h1>") || !strings.Contains(body, "Undo merge") || !strings.Contains(body, "<dd>3</dd>") {
		t.Errorf("merged group: got %s, want its name, 3 messages and an undo", body)
	}
	if status, _, _ := post(t, c, to+"/unmerge", nil); status != http.StatusSeeOther {
		t.Errorf("undo: got status %d, want 303", status)
	}
	body := ask(t, c, "GET", "/groups", nil).Body.String()
	if strings.Contains(body, "customer is blocked") || !strings.Contains(body, "Bob is blocked") {
		t.Errorf("list after the undo: got %s, want the groups of the errors", body)
	}
}

func TestMergeAPI(t *testing.T) {
	c := newConsole(t, Config{})
	addErrors(t, c.cfg.Archive, "orders", "Ada is blocked", "Bob is blocked", "no route")
	call := func(method, path, body string, status int, want string) {
		t.Helper()
		var v any
		if body != "" {
			v = body
		}
		w := ask(t, c, method, "/api/v1/groups/"+path, v, header("Content-Type", "application/json"))
		if w.Code != status || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s %s %s: got status %d, want %d with %s; body %s", method, path, body, w.Code, status, want, w.Body)
		}
	}
	call("POST", "merge", `{"groups": [1, 2], "name": "blocked"}`, http.StatusOK, `"merged":true`)
	groups, _, err := c.cfg.Archive.Groups(t.Context(), store.GroupFilter{Text: "blocked"}, store.Page{})
	if err != nil || len(groups) != 1 {
		t.Fatalf("got groups %v, %v, want one", groups, err)
	}
	call("DELETE", fmt.Sprint(groups[0].ID, "/merge"), "", http.StatusOK, `"messages":2`)
	call("DELETE", "3/merge", "", http.StatusConflict, "not merged")
	call("DELETE", "99/merge", "", http.StatusNotFound, "group 99")
	call("POST", "merge", `{"groups": [3], "name": ""}`, http.StatusBadRequest, "name")
	call("POST", "regroup", `{"queue": "orders"}`, http.StatusOK, `"messages":0`)
}
