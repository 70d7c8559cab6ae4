package mgmtapi_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/mgmtapi"
)

func TestAPIGet(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		switch {
		case user != "guest" || password != "hush":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.EscapedPath() == "/api/queues/%2F":
			_, _ = w.Write([]byte(`[{"name": "orders"}]`))
		default:
			_, _ = w.Write([]byte("<html>"))
		}
	}))
	defer server.Close()
	for _, suffix := range []string{"", "/", "/api", "/api/"} {
		api := mgmtapi.API{URL: server.URL + suffix, User: "guest", Password: "hush"}
		var queues []struct{ Name string }
		if err := api.Get(t.Context(), "queues/%2F", &queues); err != nil || len(queues) != 1 || queues[0].Name != "orders" {
			t.Errorf("%q: got %v, %v; want the queue orders", suffix, queues, err)
		}
		err := api.Get(t.Context(), "overview", &queues)
		if err == nil || !strings.Contains(err.Error(), "cannot decode the response") {
			t.Errorf("%q: response without JSON: got error %v, want cannot decode the response", suffix, err)
		}
	}
	err := mgmtapi.API{URL: server.URL, User: "guest", Password: "wrong"}.Get(t.Context(), "overview", nil)
	if status, ok := errors.AsType[*mgmtapi.StatusError](err); !ok || status.Code != http.StatusUnauthorized {
		t.Errorf("wrong password: got error %v, want a StatusError with code 401", err)
	}
	server.Close()
	err = mgmtapi.API{URL: server.URL, User: "guest", Password: "hush"}.Get(t.Context(), "overview", nil)
	if err == nil || !strings.Contains(err.Error(), "does not answer") || strings.Contains(err.Error(), "hush") {
		t.Errorf("closed server: got error %v, want does not answer, without the password", err)
	}
}
