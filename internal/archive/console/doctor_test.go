package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/doctor"
	"github.com/reprisemq/reprise/internal/mgmtapi"
)

// emptyBroker returns the management API of a broker without objects.
func emptyBroker(t *testing.T) *mgmtapi.API {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/overview" {
			_, _ = w.Write([]byte(`{}`))
			return
		}
		_, _ = w.Write([]byte(`[]`))
	}))
	t.Cleanup(s.Close)
	return &mgmtapi.API{URL: s.URL}
}

// The page and the API list the findings of reprise doctor in the virtual host of the console. Without the management API, or if it
// does not respond, they say so.
func TestDoctorListsFindings(t *testing.T) {
	var queues []string
	for i := range 25 {
		queues = append(queues, fmt.Sprintf(`{"name":"q<%d>","vhost":"/","type":"classic","durable":true,"arguments":{"x-message-ttl":5}}`, i))
	}
	management := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.EscapedPath() {
		case "/api/overview":
			_, _ = w.Write([]byte(`{"rabbitmq_version":"4.3.6"}`))
		case "/api/queues/%2F":
			_, _ = w.Write([]byte(`[` + strings.Join(queues, ",") + `]`))
		case "/api/users", "/api/connections", "/api/channels", "/api/nodes":
			http.Error(w, `{}`, http.StatusUnauthorized)
		default:
			_, _ = w.Write([]byte(`[]`))
		}
	}))
	defer management.Close()
	c := newConsole(t, Config{Management: &mgmtapi.API{URL: management.URL}})
	page := text(ask(t, c, "GET", "/doctor", nil).Body.String())
	for _, want := range []string{
		"25 findings in 25 queues of RabbitMQ 4.3.6", "ttl-drops", "queue q<0>", "message-ttl is 5 ms",
		"5 further findings", "Not checked", "global-prefetch needs channels",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("page does not contain %q: %s", want, page)
		}
	}
	var r doctor.Report
	if err := json.Unmarshal(ask(t, c, "GET", "/api/v1/doctor", nil).Body.Bytes(), &r); err != nil || len(r.Findings) != 25 {
		t.Errorf("API: got %d findings, error %v, want 25", len(r.Findings), err)
	}

	for name, cfg := range map[string]Config{
		"No management API":           {},
		"The broker was not checked.": {Management: &mgmtapi.API{URL: management.URL + "/nosuch"}},
	} {
		c := newConsole(t, cfg)
		if w := ask(t, c, "GET", "/doctor", nil); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), name) {
			t.Errorf("got status %d, want 200 and %q: %s", w.Code, name, w.Body)
		}
		if w := ask(t, c, "GET", "/api/v1/doctor", nil); w.Code != http.StatusServiceUnavailable {
			t.Errorf("API: got status %d, want 503", w.Code)
		}
	}
}
