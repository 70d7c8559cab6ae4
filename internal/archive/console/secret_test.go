package console

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/topology"
)

var secretRules = []failed.Rule{{Header: "X-Token"}, {Path: "card.number"}}

// Users without the role Admin can neither read nor export secrets, nor find them with a search.
func TestSecretsAreHidden(t *testing.T) {
	a := newArchive(t, store.Config{Redact: secretRules})
	id := add(t, a, nil)
	m, err := a.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	edited := m.Content
	edited.Headers = topology.Table{"x-token": "hunter3", "in": topology.Table{"X-Token": "hunter4"}}
	edited.Body = []byte(`{"order":18,"card":{"number":"4112"}}`)
	if err := a.Edit(t.Context(), id, 0, edited, "somebody"); err != nil {
		t.Fatal(err)
	}
	list, secrets := tokens()
	d := newCheckedConsole(t, newConsole(t, Config{Archive: a, Tokens: list, Replayer: &fakeReplayer{}}))
	all := []string{"hunter2", "hunter3", "hunter4", "4111", "4112"}
	paths := []string{"", "/body", "/body?original=true", "/diff", "/revisions/1"}
	for _, path := range paths {
		for role := View; role <= Admin; role++ {
			body := ask(t, d, "GET", "/api/v1/messages/1"+path, nil, bearer(secrets[role])).Body.String()
			for _, secret := range all {
				if role < Admin && strings.Contains(body, secret) {
					t.Errorf("%q shows %s the secret %s: %s", path, role, secret, body)
				}
			}
			if role == Admin && !strings.Contains(body, "411") {
				t.Errorf("%q hides a secret from an administrator: %s", path, body)
			}
		}
	}
	if m := get[api.Message](t, ask(t, d, "GET", "/api/v1/messages/1", nil, bearer(secrets[View]))); !m.Redacted {
		t.Error("message for a viewer: redacted is false")
	}
	for role := View; role <= Admin; role++ {
		if r := get[api.Revision](t, ask(t, d, "GET", "/api/v1/messages/1/revisions/1", nil, bearer(secrets[role]))); r.Redacted != (role < Admin) {
			t.Errorf("revision for %s: redacted is %v, want %v", role, r.Redacted, role < Admin)
		}
	}
	if m := get[api.Message](t, ask(t, d, "GET", "/api/v1/messages/1", nil, bearer(secrets[Admin]))); m.Redacted {
		t.Error("message for an administrator: redacted is true")
	}
	for _, query := range []string{"text=hunter2", "text=4111", "header=x-token:hunter2"} {
		if list := get[api.Messages](t, ask(t, d, "GET", "/api/v1/messages?"+query, nil, bearer(secrets[View]))); len(list.Messages) != 0 {
			t.Errorf("search %s finds a message by its secret", query)
		}
	}
	refused(t, ask(t, d, "GET", "/api/v1/messages/export", nil, bearer(secrets[Operate])), http.StatusForbidden, "admin")
	if w := ask(t, d, "GET", "/api/v1/messages/export", nil, bearer(secrets[Admin])); !strings.Contains(w.Body.String(), "hunter2") {
		t.Errorf("export: status %d, body %s", w.Code, w.Body)
	}
}

// A user who may not see a secret can edit the rest of the message without changing the secret.
func TestSecretsSurviveEdits(t *testing.T) {
	nested := topology.Table{"x-token": "inner", "n": int32(1)}
	before := topology.Table{"tenant": "acme", "x-token": "hunter2", "nested": nested}
	hidden := topology.Table{"x-token": "[redacted]", "n": int32(1)}
	for _, tc := range []struct {
		what string
		edit api.Edit
		want topology.Table // nil: refused
	}{
		{"headers unchanged", headersOf(topology.Table{"tenant": "acme", "x-token": "[redacted]", "nested": hidden}), before},
		{
			"other header added",
			headersOf(topology.Table{"new": true, "x-token": "[redacted]", "nested": hidden}),
			topology.Table{"new": true, "x-token": "hunter2", "nested": nested},
		},
		{
			"other field of the table changed",
			headersOf(topology.Table{"x-token": "[redacted]", "nested": topology.Table{"x-token": "[redacted]", "n": int32(2)}}),
			topology.Table{"x-token": "hunter2", "nested": topology.Table{"x-token": "inner", "n": int32(2)}},
		},
		{"secret changed", headersOf(topology.Table{"x-token": "mine", "nested": hidden}), nil},
		{"secret in a table changed", headersOf(topology.Table{"x-token": "[redacted]", "nested": topology.Table{"x-token": "mine"}}), nil},
		{"secret removed", headersOf(topology.Table{"nested": hidden}), nil},
		{"table removed", headersOf(topology.Table{"x-token": "[redacted]"}), nil},
		{"table replaced by a string", headersOf(topology.Table{"x-token": "[redacted]", "nested": "x"}), nil},
		{"property changed", api.Edit{Revision: new(0), Properties: &api.Properties{Type: new(api.Text("x"))}}, before},
		{"body unchanged", bodyOf(`{"order":17,"card":{"number":"[redacted]"}}`), before},
		{"body changed", bodyOf(`{"order":18,"card":{"number":"[redacted]"}}`), nil},
	} {
		t.Run(tc.what, func(t *testing.T) {
			a := newArchive(t, store.Config{Redact: secretRules})
			id := add(t, a, func(m *failed.Message) { m.Headers = before })
			list, secrets := tokens()
			d := newCheckedConsole(t, newConsole(t, Config{Archive: a, Tokens: list}))
			w := ask(t, d, "PUT", "/api/v1/messages/1/edit", tc.edit, bearer(secrets[Operate]))
			m, err := a.Get(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if tc.want == nil {
				refused(t, w, http.StatusForbidden, "ask an admin")
				if m.Edited != nil {
					t.Errorf("refused edit changed the message: %+v", m.Edited)
				}
				if w := ask(t, d, "PUT", "/api/v1/messages/1/edit", tc.edit, bearer(secrets[Admin])); w.Code != http.StatusOK {
					t.Errorf("edit by an administrator: got status %d, want 200; body %s", w.Code, w.Body)
				}
				return
			}
			if w.Code != http.StatusOK || strings.Contains(w.Body.String(), "hunter2") {
				t.Fatalf("edit: got status %d, want 200; body %s", w.Code, w.Body)
			}
			if diff := cmp.Diff(tc.want, m.Current().Headers); diff != "" {
				t.Errorf("headers: %s", diff)
			}
			if body := string(m.Current().Body); body != string(m.Body) {
				t.Errorf("body: got %s, want %s", body, string(m.Body))
			}
		})
	}
}

// A body that is hidden because it cannot be parsed remains hidden, even if a user specifies a content type.
func TestSecretsSurviveContentTypeChange(t *testing.T) {
	a := newArchive(t, store.Config{Redact: secretRules})
	id := add(t, a, func(m *failed.Message) { m.Body = []byte("\x1f\x8bhunter2") })
	list, secrets := tokens()
	d := newCheckedConsole(t, newConsole(t, Config{Archive: a, Tokens: list}))
	edit := api.Edit{Revision: new(0), Properties: &api.Properties{ContentType: new(api.Text("text/plain"))}}
	refused(t, ask(t, d, "PUT", "/api/v1/messages/1/edit", edit, bearer(secrets[Operate])), http.StatusForbidden, "ask an admin")
	if m, err := a.Get(t.Context(), id); err != nil || m.Edited != nil {
		t.Errorf("refused edit changed the message: %+v, %v", m.Edited, err)
	}
}

func headersOf(t topology.Table) api.Edit {
	h := api.Headers(t)
	return api.Edit{Revision: new(0), Headers: &h}
}

func bodyOf(text string) api.Edit { return api.Edit{Revision: new(0), Text: &text} }
