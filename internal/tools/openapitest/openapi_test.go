package openapitest

import (
	"database/sql"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/console"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/topology"
)

// A validator accepts the description, and the response to a request for each path without a status of an error.
func TestDescriptionIsValid(t *testing.T) {
	h := newConsole(t)
	doc, err := openapi3.NewLoader().LoadFromData(get(t, h, "/api/v1/openapi.json").Body.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for path, item := range doc.Paths.Map() {
		if item.Get == nil {
			continue
		}
		w := get(t, h, "/api/v1"+strings.NewReplacer("{id}", "1", "{number}", "1").Replace(path))
		if hasNoSource := strings.HasPrefix(path, "/history") || strings.HasPrefix(path, "/marks") || strings.HasPrefix(path, "/scheduled") || path == "/cron" || path == "/doctor"; (w.Code != http.StatusOK) != hasNoSource {
			t.Errorf("GET %s: got status %d; body %s", path, w.Code, w.Body)
		}
		r := httptest.NewRequest("GET", "/api/v1"+path, nil)
		err := openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
			RequestValidationInput: &openapi3filter.RequestValidationInput{
				Request: r, Route: &routers.Route{Spec: doc, Path: path, PathItem: item, Method: "GET", Operation: item.Get},
			},
			Status: w.Code, Header: w.Header(), Body: io.NopCloser(w.Body),
			Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
		})
		if err != nil {
			t.Errorf("GET %s: %v", path, err)
		}
	}
}

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "GET", path, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:40000", "localhost:8085"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// newConsole returns a console with a failed message that was edited and is being replayed.
func newConsole(t *testing.T) http.Handler {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "failed.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	a, err := store.Open(t.Context(), db, store.Config{Dialect: store.SQLite})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	m := failed.Message{
		Queue: "orders", FailedQueue: "orders.failed", Exchange: "shop", RoutingKey: "order.new", Attempts: 1, Error: "declined",
		FirstFailed: now, LastFailed: now, Errors: []reprise.AttemptError{{Attempt: 1, Time: now, Error: "declined", Host: "w1"}},
		Content: failed.Content{
			Body: []byte("a"), Headers: topology.Table{"n": int64(1), "\xff": "b"},
			Properties: failed.Properties{MessageID: "\xff", Priority: 4, Timestamp: now},
		},
	}
	ids, err := a.Add(t.Context(), []failed.Message{m})
	if err != nil {
		t.Fatal(err)
	}
	content := m.Content
	content.Body = []byte("b")
	if err := a.Edit(t.Context(), ids[0], 0, content, "cli:test"); err != nil {
		t.Fatal(err)
	}
	edit := &failed.BulkEdit{Replace: []failed.Replacement{{Old: "b", New: "c"}}}
	if _, err := a.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{IDs: ids}, To: &failed.Target{RoutingKey: "orders"}, Edit: edit, Canary: time.Minute}, "cli:test"); err != nil {
		t.Fatal(err)
	}
	c, err := console.New(console.Config{Archive: a})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
