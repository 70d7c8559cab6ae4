package console

import (
	"database/sql"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/history"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/sqlkit"
	"github.com/reprisemq/reprise/outbox"
)

// While the database does not respond, each page and each endpoint responds within the documented time: 10 s, or 20 s if
// it changes data.
func TestAnswersInTimeWhileDatabaseHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "test.db")+"?_pragma=synchronous(OFF)")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		a, err := store.Open(t.Context(), db, store.Config{Dialect: store.SQLite})
		if err != nil {
			t.Fatal(err)
		}
		add(t, a, nil)
		cfg := Config{Archive: a, Replayer: &fakeReplayer{}}
		if cfg.Ledger, err = ledger.Open(t.Context(), db, ledger.Config{Dialect: store.SQLite}); err != nil {
			t.Fatal(err)
		}
		if cfg.History, err = history.Open(t.Context(), db, history.Config{Dialect: store.SQLite}); err != nil {
			t.Fatal(err)
		}
		box, err := outbox.Open(t.Context(), db, outbox.Config{Dialect: outbox.SQLite})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Outbox = func() *outbox.Box { return box }
		c := newConsole(t, cfg)

		db.SetMaxOpenConns(1)
		held, err := db.Conn(t.Context()) // all statements wait for this connection
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
		waited := 0
		for _, r := range c.routes() {
			if r.Path == "/live" { // lasts until the client disconnects
				continue
			}
			limit := sqlkit.ReadLimit
			if isUnsafe(r) {
				limit = sqlkit.WriteLimit
			}
			before := db.Stats().WaitCount
			begun := time.Now()
			status := askRoute(t, c, r)
			if took := time.Since(begun); took > limit {
				t.Errorf("%s: status %d after %s, want a response within %s", r.Pattern(), status, took, limit)
			}
			if db.Stats().WaitCount > before {
				waited++
			}
		}
		if all := len(c.routes()); waited < all*9/10 {
			t.Errorf("%d of %d routes waited for the database: send the parameters that they require", waited, all)
		}
	})
}

// hangingBodies contains bodies of unsafe requests, by path. Without a body, an endpoint may not reach the database.
var hangingBodies = map[string]string{
	"/api/v1/messages/{id}/edit": `{"revision":0,"text":"t"}`,
	"/api/v1/discard":            `{"filter":{"queue":"orders"},"reason":"r"}`,
	"/api/v1/restore":            `{"filter":{"queue":"orders"}}`,
	"/api/v1/erase":              `{"filter":{"queue":"orders"},"reason":"r"}`,
	"/api/v1/groups/{id}/mute":   `{"seconds":60}`,
	"/api/v1/groups/merge":       `{"groups":[1,2]}`,
	"/api/v1/ledger/accept":      `{"account":"orders","reason":"r"}`,
	"/api/v1/marks":              `{"text":"t"}`,
}

// askRoute sends a request with plausible values for all parameters of a route, and returns the status of the response.
func askRoute(t *testing.T, c *Console, r web.Route) int {
	path := strings.NewReplacer("{$}", "", "{id}", "1", "{number}", "1", "{file}", "x").Replace(r.Path)
	form := url.Values{}
	for name, value := range map[string]string{
		"id": "1", "reason": "r", "submission": "s", "count": "1", "do": "save", "queue": "orders", "seconds": "60", "name": "n", "text": "t",
		"base": "0", "revision": "0", "body": "b", "to": "origin", "delay": "1m", "account": "orders", "at_most": "1",
	} {
		if slices.Contains(r.Form, name) {
			form.Set(name, value)
		}
	}
	if slices.Contains(r.Query, "id") && !slices.Contains(r.Query, "after") && !strings.Contains(path, "/api/") {
		path += "?id=1"
	}
	if strings.HasPrefix(path, "/api/") {
		if body := hangingBodies[r.Path]; body != "" {
			return ask(t, c, r.Method, path, body).Code
		}
		return ask(t, c, r.Method, path, nil, header("Idempotency-Key", "k")).Code // an unsafe request writes the key first
	}
	method := r.Method
	if method == "" {
		method = http.MethodGet
	}
	if method == http.MethodGet {
		return ask(t, c, method, path, nil).Code
	}
	return ask(t, c, method, path, form.Encode(), header("Content-Type", "application/x-www-form-urlencoded"), header("Sec-Fetch-Site", "same-origin")).Code
}
