package console

import (
	"encoding/json"
	"html"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// threeOrders archives three messages. An edit that sets the amount to 5 changes only the first of them.
func threeOrders(t *testing.T, a *store.Archive) {
	t.Helper()
	for _, body := range []string{`{"amount":9,"to":"<b>"}`, `{"amount":5}`, `text`} {
		add(t, a, func(m *failed.Message) { m.Body = []byte(body) })
	}
}

func text(body string) string {
	_, body, _ = strings.Cut(body, "<main")
	return html.UnescapeString(strings.Join(strings.Fields(tags.ReplaceAllString(body, " ")), " "))
}

// A replay with an edit starts only if the page has shown a preview of this edit.
func TestReplayFormPreviewsEdit(t *testing.T) {
	c := newConsole(t, Config{Replayer: &fakeReplayer{}})
	threeOrders(t, c.cfg.Archive)
	form := url.Values{
		"group": {"1"}, "at_most": {"3"}, "options": {"yes"}, "same": {"stop"}, "to": {"origin"},
		"patch": {`[{"op":"replace","path":"/amount","value":5}]`}, "set_name": {"fixed"}, "set_value": {"yes"},
	}
	status, _, body := post(t, c, "/replays", form)
	if status != http.StatusOK {
		t.Fatalf("got status %d, want 200: %s", status, body)
	}
	got := text(body)
	for _, want := range []string{"Edited 2", "Unchanged 0 stay failed", "Not editable 1 stay failed", "1: body is not valid JSON", `removed: "amount": 9`, `added: "amount": 5`, "added: fixed (text): yes", "Message 3 : body is not valid JSON", "Edit 2 of 3 and replay"} {
		if !strings.Contains(strings.ReplaceAll(got, "  ", " "), want) {
			t.Errorf("page does not contain %q: %s", want, got)
		}
	}
	if strings.Contains(body, `"<b>"`) {
		t.Error("page does not escape a body")
	}
	for _, kept := range []string{`&#34;value&#34;:5}]</textarea>`, `value="fixed"`} {
		if !strings.Contains(body, kept) {
			t.Errorf("form does not retain %s", kept)
		}
	}
	previewed := fieldsOf(body).Get("previewed")
	for name, change := range map[string]url.Values{
		"another edit":     {"set_value": {"no"}, "previewed": {previewed}},
		"another choice":   {"send_impossible": {"yes"}, "previewed": {previewed}},
		"a made up digest": {"previewed": {"x"}},
	} {
		v := maps.Clone(form)
		maps.Copy(v, change)
		if status, _, _ := post(t, c, "/replays", v); status != http.StatusOK {
			t.Errorf("%s: got status %d, want 200", name, status)
		}
	}
	if all, _, err := c.cfg.Archive.Replays(t.Context(), store.Page{}); err != nil || len(all) != 0 {
		t.Fatalf("replays: got %+v, want none; error %v", all, err)
	}
	// If more messages have failed since the preview, the replay does not start, and the page shows a new preview.
	add(t, c.cfg.Archive, func(m *failed.Message) { m.Body = []byte(`{"amount":1}`) })
	form.Set("previewed", previewed)
	status, _, body = post(t, c, "/replays", form)
	if got := text(body); status != http.StatusConflict || !strings.Contains(got, "By now there are 4") || !strings.Contains(got, "Edited 3") {
		t.Errorf("replay of more messages: got status %d, want 409; page %s", status, got)
	}
	form.Set("at_most", "4")
	if status, location, body := post(t, c, "/replays", form); status != http.StatusSeeOther || location != "/replays/1" {
		t.Fatalf("replay: got status %d, want 303, got location %s, want /replays/1; page %s", status, location, text(body))
	}
	r, err := c.cfg.Archive.Replay(t.Context(), 1)
	if err != nil || r.Plan.Edit == nil || r.Plan.Edit.Patch != form.Get("patch") || r.Plan.Edit.SetHeaders["fixed"] != "yes" || r.Plan.Edit.SpareSecrets {
		t.Errorf("edit of the replay: got %+v, %v", r.Plan.Edit, err)
	}
	if body := text(ask(t, c, "GET", "/replays/1", nil).Body.String()); !strings.Contains(body, "edited: JSON Patch, 1 header set") {
		t.Errorf("page of the replay does not show the edit: %s", body)
	}
}

// The page shows an error in an edit next to the field with the error, and retains the input.
func TestReplayFormReportsInvalidEdit(t *testing.T) {
	c := newConsole(t, Config{Replayer: &fakeReplayer{}})
	threeOrders(t, c.cfg.Archive)
	for _, tc := range []struct {
		field, want string
		form        url.Values
	}{
		{"patch", "Patch: patch must be an array of operations.", url.Values{"patch": {"{}"}}},
		{"find", "Enter the text to replace.", url.Values{"with": {"x"}}},
		{"find", "must not match an empty text", url.Values{"find": {"a*"}, "regexp": {"yes"}}},
		{"set_name", "Enter the name of the header.", url.Values{"set_value": {"x"}}},
		{"set_name", "must not be edited", url.Values{"set_name": {"x-death"}}},
		{"remove", "must not be edited", url.Values{"remove": {"x-reprise-queue"}}},
		{"remove", "must not be listed twice", url.Values{"remove": {"a"}, "set_name": {"a"}}},
		{"patch", "Enter a patch, a text or a header.", url.Values{"send_impossible": {"yes"}}},
	} {
		tc.form.Set("id", "1")
		status, _, body := post(t, c, "/replays", tc.form)
		_, after, _ := strings.Cut(body, `id="wrong-`+tc.field+`"`)
		if status != http.StatusUnprocessableEntity || !strings.Contains(html.UnescapeString(tags.ReplaceAllString(after[:min(len(after), 500)], "")), tc.want) {
			t.Errorf("%v: got status %d, want 422, error of the field %.300q", tc.form, status, after)
		}
	}
	if all, _, err := c.cfg.Archive.Replays(t.Context(), store.Page{}); err != nil || len(all) != 0 {
		t.Fatalf("replays: got %+v, want none; error %v", all, err)
	}
}

// A user who may not see a secret can neither copy it with an edit nor read it in a preview.
func TestBulkEditByOperatorSparesSecrets(t *testing.T) {
	list, secrets := tokens()
	c := newConsole(t, Config{
		Tokens: list, Replayer: &fakeReplayer{}, Archive: newArchive(t, store.Config{Redact: []failed.Rule{{Path: "card"}, {Header: "x-token"}}}),
	})
	add(t, c.cfg.Archive, nil) // with a card number and a token
	plan := api.Plan{Selection: failed.Selection{All: true}, Edit: &api.BulkEdit{
		Patch: []byte(`[{"op":"copy","from":"/card/number","path":"/order"}]`), SendImpossible: true,
	}}
	for role, want := range map[Role]int64{Operate: 0, Admin: 1} {
		w := ask(t, c, "POST", "/api/v1/replays?dry_run=true", plan, bearer(secrets[role]))
		var got api.Preview
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if got.Edit == nil || got.Edit.Changed != want || strings.Contains(w.Body.String(), "4111") != (role == Admin) {
			t.Errorf("preview for %s: got %s, want %d changed messages, and the card number only for admin", role, w.Body, want)
		}
	}
	if w := ask(t, c, "POST", "/api/v1/replays", plan, bearer(secrets[Operate])); w.Code != http.StatusCreated {
		t.Fatal(w.Body)
	}
	if r, err := c.cfg.Archive.Replay(t.Context(), 1); err != nil || !r.Plan.Edit.SpareSecrets {
		t.Errorf("edit of the replay: got %+v, want SpareSecrets true; error %v", r.Plan.Edit, err)
	}
	for _, wrong := range []api.BulkEdit{{}, {Patch: []byte(`{}`)}} {
		plan.Edit = &wrong
		for _, path := range []string{"/api/v1/replays?dry_run=true", "/api/v1/replays"} {
			if w := ask(t, c, "POST", path, plan, bearer(secrets[Admin])); w.Code != http.StatusBadRequest {
				t.Errorf("%+v: got status %d, want 400; body %s", wrong, w.Code, w.Body)
			}
		}
	}
}

// A replay whose edit changes no message cannot be started, on the page and with the API.
func TestReplayRefusesEditWithoutEffect(t *testing.T) {
	c := newConsole(t, Config{Replayer: &fakeReplayer{}})
	threeOrders(t, c.cfg.Archive)
	form := url.Values{"group": {"1"}, "at_most": {"3"}, "options": {"yes"}, "to": {"origin"}, "find": {"Bob"}, "with": {"Ada"}}
	status, _, body := post(t, c, "/replays", form)
	got := text(body)
	if status != http.StatusUnprocessableEntity || !strings.Contains(got, "changes none of the selected messages") || !strings.Contains(got, "not found") || strings.Contains(got, "Edit 0 of 3") || fieldsOf(body).Get("previewed") != "" {
		t.Errorf("page: got status %d, want 422 with the reason and without a confirmation: %s", status, got)
	}
	plan := `{"filter": {"group": 1}, "edit": {"replace": [{"old": "Bob", "new": "Ada"}]}}`
	w := ask(t, c, "POST", "/api/v1/replays", plan, header("Content-Type", "application/json"))
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "changes none of the selected messages") {
		t.Errorf("API: got status %d, want 400 with the reason: %s", w.Code, w.Body)
	}
	if list, _, err := c.cfg.Archive.List(t.Context(), failed.Filter{States: []failed.State{failed.Failed}}, store.Page{}); err != nil || len(list) != 3 {
		t.Errorf("got %d failed messages, %v, want 3", len(list), err)
	}
	form.Set("send_unchanged", "yes")
	form.Set("send_impossible", "yes")
	if status, _, body := post(t, c, "/replays", form); status != http.StatusOK || fieldsOf(body).Get("previewed") == "" {
		t.Errorf("with all messages unedited: got status %d, want 200 with a confirmation", status)
	}
}
