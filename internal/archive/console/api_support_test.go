package console

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/topology"
)

// noon is the time at which the messages of the tests failed.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// newArchive returns a new, empty archive.
func newArchive(t testing.TB, cfg store.Config) *store.Archive {
	t.Helper()
	file := filepath.Join(t.TempDir(), "failed.db")
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	cfg.Dialect = store.SQLite
	a, err := store.Open(t.Context(), db, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// add archives a message that failed in the queue "orders", and returns its ID. If change is not nil, add calls it to
// modify the message first.
func add(t testing.TB, a *store.Archive, change func(*failed.Message)) failed.ID {
	t.Helper()
	m := failed.Message{
		Queue: "orders", FailedQueue: "orders.failed", Exchange: "shop", RoutingKey: "order.new",
		Attempts: 3, Error: "card 4711 declined", FirstFailed: noon.Add(-time.Hour), LastFailed: noon,
		Errors: []reprise.AttemptError{
			{Attempt: 1, Time: noon.Add(-time.Hour), Error: "timeout", Host: "w1", Duration: 2 * time.Second},
			{Attempt: 3, Time: noon, Error: "card 4711 declined", Host: "w1", Duration: time.Second},
		},
		Content: failed.Content{
			Body:       []byte(`{"order":17,"card":{"number":"4111"}}`),
			Headers:    topology.Table{"tenant": "acme", "x-token": "hunter2"},
			Properties: failed.Properties{ContentType: "application/json", MessageID: "m-17", RoutingKey: "orders.failed"},
		},
	}
	if change != nil {
		change(&m)
	}
	ids, err := a.Add(t.Context(), []failed.Message{m})
	if err != nil {
		t.Fatal(err)
	}
	return ids[0]
}

// fakeReplayer is a Replayer that only counts the calls.
type fakeReplayer struct{ wakes atomic.Int32 }

func (w *fakeReplayer) Wake() { w.wakes.Add(1) }

func newConsole(t testing.TB, cfg Config) *Console {
	t.Helper()
	if cfg.Archive == nil {
		cfg.Archive = newArchive(t, store.Config{})
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// tokens returns a Token for each role, and the corresponding secrets.
func tokens() (list []Token, secrets map[Role]string) {
	secrets = map[Role]string{}
	for _, r := range []Role{View, Operate, Admin} {
		secret, hash := NewToken()
		secrets[r] = secret
		list = append(list, Token{Name: r.String() + "-er", Role: r, Hash: hash})
	}
	return list, secrets
}

// ask sends a request from a loopback address and returns the response. The functions in change modify the request before
// it is sent.
func ask(t testing.TB, h http.Handler, method, path string, body any, change ...func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	var content []byte
	switch b := body.(type) {
	case nil:
	case string:
		content = []byte(b)
	case []byte:
		content = b
	default:
		var err error
		if content, err = json.Marshal(b); err != nil {
			t.Fatal(err)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), method, path, bytes.NewReader(content))
	r.RemoteAddr, r.Host = "127.0.0.1:40000", "localhost:8085"
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func bearer(secret string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+secret) }
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func from(addr string) func(*http.Request) {
	return func(r *http.Request) { r.RemoteAddr = addr }
}

// get decodes a response, which must be successful.
func get[T any](t testing.TB, w *httptest.ResponseRecorder) (v T) {
	t.Helper()
	if w.Code < 200 || w.Code > 299 {
		t.Fatalf("got status %d, want 2xx: %s", w.Code, w.Body)
	}
	d := json.NewDecoder(w.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// refused checks that the response has the given status, and that its error or advice contains text.
func refused(t testing.TB, w *httptest.ResponseRecorder, status int, text string) {
	t.Helper()
	if err := checkRefused(w, status, text); err != nil {
		t.Error(err)
	}
}

func checkRefused(w *httptest.ResponseRecorder, status int, text string) error {
	if w.Code != status {
		return fmt.Errorf("status: got %d, want %d: %s", w.Code, status, w.Body)
	}
	var e api.Error
	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Text == "" || e.Advice == "" {
		return errors.Join(err, fmt.Errorf("response has no error with advice: %s", w.Body))
	}
	if !strings.Contains(e.Error(), text) {
		return fmt.Errorf("error %q does not contain %q", e.Error(), text)
	}
	return nil
}
