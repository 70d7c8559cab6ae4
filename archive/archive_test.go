package archive_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/archive"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
)

// newConfig returns a valid configuration, with a database in a new file.
func newConfig(t *testing.T) archive.Config {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "failed.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return archive.Config{DB: db, Dialect: archive.SQLite, Queues: []string{"orders.failed"}}
}

// ask sends a local request, and returns the status and the body.
func ask(a *archive.Archive, method, path, body string) (int, string) {
	r := httptest.NewRequest(method, "http://localhost:15600"+path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:40000"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	a.Handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// A program with a worker gets archive, console, replays, ledger and history from one value: a failed message appears in
// the console, and a replay through the API reaches the worker.
func TestProgramEmbedsArchive(t *testing.T) {
	b, err := broker.New(broker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Shutdown(context.Background()) }()
	management := httptest.NewServer(b.Management())
	defer management.Close()
	cfg := newConfig(t)
	var mu sync.Mutex
	mended, handled := false, 0
	worker := reprise.WorkerConfig{Queue: "orders", Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if !mended {
			return reprise.Park(errors.New("no such customer"))
		}
		handled++
		return nil
	})}
	cfg.Queues, cfg.Workers, cfg.Sample = nil, []reprise.WorkerConfig{worker}, time.Second
	cfg.Management = &archive.Management{URL: management.URL, User: "guest", Password: "guest"}
	a, err := archive.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if status, page := ask(a, "GET", "/", ""); status != http.StatusOK || !strings.Contains(page, "Overview") {
		t.Errorf("console before Run: got status %d", status)
	}
	client, err := reprise.Dial(t.Context(), "amqp://guest:guest@broker/", &reprise.Config{Dial: b.DialContext, Observer: a.Observer(), Announce: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close(context.Background()) }()
	w, err := reprise.NewWorker(client, worker)
	if err != nil {
		t.Fatal(err)
	}
	a.Connect(client, archive.Worker{Worker: w, Config: worker})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- a.Run(ctx) }()
	go func() { ended <- w.Run(ctx) }()
	testkit.Eventually(t, time.Minute, func() error {
		return client.Publish(t.Context(), &reprise.Message{RoutingKey: "orders", Body: []byte("4711")})
	})
	testkit.Eventually(t, time.Minute, func() error {
		if _, list := ask(a, "GET", "/api/v1/messages", ""); !strings.Contains(list, "no such customer") {
			return fmt.Errorf("message not archived: %s", list)
		}
		return nil
	})
	mu.Lock()
	mended = true
	mu.Unlock()
	if status, answer := ask(a, "POST", "/api/v1/replays", `{"all": true}`); status >= 300 {
		t.Fatalf("replay: got status %d: %s", status, answer)
	}
	testkit.Eventually(t, time.Minute, func() error {
		mu.Lock()
		defer mu.Unlock()
		if handled != 1 {
			return fmt.Errorf("handled %d messages, want 1", handled)
		}
		return nil
	})
	testkit.Eventually(t, time.Minute, func() error {
		var l struct{ Accounts []struct{ Work []string } }
		_, text := ask(a, "GET", "/api/v1/ledger", "")
		if err := json.Unmarshal([]byte(text), &l); err != nil || len(l.Accounts) != 1 {
			return fmt.Errorf("ledger: %s", text)
		}
		return nil
	})
	if err := a.Healthy(t.Context()); err != nil {
		t.Error(err)
	}
	if err := a.LedgerHealthy(t.Context()); err != nil {
		t.Error(err)
	}
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// With Later, pages and API answer 503 until Run has opened the archive.
func TestArchiveOpensLater(t *testing.T) {
	cfg := newConfig(t)
	cfg.Later, cfg.Console.Prefix = true, "/reprise"
	a, err := archive.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Healthy(t.Context()); !errors.Is(err, archive.ErrNotOpen) {
		t.Errorf("health: got %v, want ErrNotOpen", err)
	}
	for path, want := range map[string]string{"/reprise/": "the archive is not open yet: see the log", "/reprise/api/v1/me": `"error":"the archive is not open yet"`} {
		if status, text := ask(a, "GET", path, ""); status != http.StatusServiceUnavailable || !strings.Contains(text, want) {
			t.Errorf("%s: got status %d, %q, want 503 and %q", path, status, text, want)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	testkit.Eventually(t, time.Minute, func() error { return a.Healthy(t.Context()) })
	if status, text := ask(a, "GET", "/reprise/api/v1/me", ""); status != http.StatusOK {
		t.Errorf("API without a broker: got status %d: %s", status, text)
	}
	if _, page := ask(a, "GET", "/reprise/workers", ""); !strings.Contains(page, "not connected to the broker yet") {
		t.Error("page Workers does not report the missing connection")
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run: got %v, want context.Canceled", err)
	}
}

// If the database is not usable, Open returns the reason. With Later, Run and Healthy return it.
func TestUnusableDatabaseIsReported(t *testing.T) {
	cfg := newConfig(t)
	if _, err := cfg.DB.ExecContext(t.Context(), `CREATE TABLE reprise_failed_message (id INTEGER)`); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Open(t.Context(), cfg); err == nil {
		t.Error("Open: got no error")
	}
	cfg.Later = true
	a, err := archive.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(t.Context()); err == nil {
		t.Error("Run: got no error")
	}
	if err := a.Healthy(t.Context()); err == nil || !strings.Contains(err.Error(), "archiving stopped: ") {
		t.Errorf("health: got %v, want archiving stopped", err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	token, hash := archive.NewToken()
	for want, change := range map[string]func(*archive.Config){
		"":                            func(c *archive.Config) { c.Console.Tokens = []archive.Token{{Name: "ann", Role: "view", Hash: hash}} },
		"DB must not be nil":          func(c *archive.Config) { c.DB = nil },
		"Dialect must be SQLite":      func(c *archive.Config) { c.Dialect = "" },
		"Workers, Queues or Managem":  func(c *archive.Config) { c.Queues = nil },
		"must not contain an empty ":  func(c *archive.Config) { c.Queues = []string{""} },
		"Keep must not be negative":   func(c *archive.Config) { c.Keep = -time.Hour },
		"must be positive":            func(c *archive.Config) { c.KeepByQueue = map[string]time.Duration{"orders": 0} },
		"either a Header or a Path":   func(c *archive.Config) { c.Redact = []archive.Field{{}} },
		"Sample must not be negative": func(c *archive.Config) { c.Sample = -1 },
		"role must be view, operate":  func(c *archive.Config) { c.Console.Tokens = []archive.Token{{Name: "ann", Role: "nobody", Hash: hash}} },
		"Prefix must be a path":       func(c *archive.Config) { c.Console.Prefix = "reprise" },
		`must be its prefix "/x"`:     func(c *archive.Config) { c.Console.Prefix, c.Console.URL = "/x", "https://ops/reprise" },
		`must be its prefix ""`:       func(c *archive.Config) { c.Console.URL = "https://ops/reprise/" },
		"URL must begin with https:/": func(c *archive.Config) { c.Notify.Webhooks = []archive.Webhook{{URL: "ops"}} },
		`format "irc" not found`:      func(c *archive.Config) { c.Notify.Webhooks = []archive.Webhook{{URL: "http://ops", Format: "irc"}} },
	} {
		cfg := newConfig(t)
		change(&cfg)
		if err := cfg.Validate(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
	if !strings.HasPrefix(token, "reprise_") {
		t.Errorf("token: got %q", token)
	}
	cfg := newConfig(t)
	cfg.Console.Prefix, cfg.Console.URL = "/reprise/", "https://ops/reprise"
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}

// Tokens can be replaced before and after the archive is open, but not removed.
func TestSetTokens(t *testing.T) {
	_, first := archive.NewToken()
	token, second := archive.NewToken()
	for _, later := range []bool{false, true} {
		cfg := newConfig(t)
		cfg.Later, cfg.Console.Tokens = later, []archive.Token{{Name: "ann", Role: "view", Hash: first}}
		a, err := archive.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range [][]archive.Token{nil, {{Name: "ann", Role: "boss", Hash: first}}, {{Name: "ann", Role: "view", Hash: "x"}}} {
			if err := a.SetTokens(bad); err == nil {
				t.Errorf("SetTokens(%v): got no error", bad)
			}
		}
		if err := a.SetTokens([]archive.Token{{Name: "bob", Role: "operate", Hash: second}}); err != nil {
			t.Fatal(err)
		}
		if later {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			go func() { _ = a.Run(ctx) }()
			testkit.Eventually(t, time.Minute, func() error { return a.Healthy(t.Context()) })
		}
		r := httptest.NewRequest("GET", "http://localhost/api/v1/me", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		if a.Handler().ServeHTTP(w, r); !strings.Contains(w.Body.String(), `"bob"`) {
			t.Errorf("new token: got %s", w.Body)
		}
	}
}
