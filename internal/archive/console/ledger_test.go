package console

import (
	"context"
	"database/sql"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// fakeLedger is a ledger with the account orders and a simulated broker.
type fakeLedger struct {
	*ledger.Ledger
	book   *ledger.Book
	t      testing.TB
	now    time.Time
	queues map[string]ledger.Figures
}

func (b *fakeLedger) Queues(context.Context) (map[string]ledger.Figures, error) { return b.queues, nil }

// newFakeLedger returns a balanced ledger.
func newFakeLedger(t testing.TB) *fakeLedger {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "ledger.db")+"?_pragma=synchronous(OFF)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	b := &fakeLedger{t: t, now: noon, queues: map[string]ledger.Figures{"orders": {}}}
	clock := func() time.Time { return b.now }
	if b.Ledger, err = ledger.Open(t.Context(), db, ledger.Config{Dialect: store.SQLite, Clock: clock}); err != nil {
		t.Fatal(err)
	}
	book := ledger.NewBook(db, ledger.BookConfig{Dialect: store.SQLite, Clock: clock})
	b.book = book
	book.Observe(reprise.Event{Kind: reprise.EventConsuming, Queue: "orders"})
	if err := book.Write(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.pass()
	return b
}

// pass takes samples for one minute.
func (b *fakeLedger) pass() {
	b.t.Helper()
	b.sample(4)
}

// sample takes n samples, one every 15 s.
func (b *fakeLedger) sample(n int) {
	b.t.Helper()
	for range n {
		b.now = b.now.Add(15 * time.Second)
		if err := b.Take(b.t.Context(), ledger.Sources{Broker: b}, []ledger.Account{{Work: []string{"orders"}}}); err != nil {
			b.t.Fatal(err)
		}
	}
}

func TestLedgerAPI(t *testing.T) {
	b := newFakeLedger(t)
	b.queues["orders"] = ledger.Figures{Published: 5, Messages: 2}
	b.pass()
	d := newCheckedConsole(t, newConsole(t, Config{Archive: newArchive(t, store.Config{}), Ledger: b.Ledger}))
	a := get[api.Ledger](t, ask(t, d, "GET", "/api/v1/ledger", nil))
	if !a.Kept || a.Balanced || len(a.Accounts) != 1 {
		t.Fatalf("ledger: got %+v, want Kept true, len(Accounts) 1", a)
	}
	l := a.Accounts[0]
	if l.Account != "orders" || l.State != "differs" || l.In != 5 || l.Ready != 2 || l.Missing != 3 || len(l.Differences) != 1 || !strings.HasPrefix(l.Differences[0].Text, "3 messages went missing between 2026-03-01 12:01:00") {
		t.Errorf("account: got %+v, want Account orders, State differs, In 5, Ready 2, Missing 3, len(Differences) 1", l)
	}
	refused(t, ask(t, d, "POST", "/api/v1/ledger/accept", `{"account":"orders"}`), http.StatusBadRequest, "reason must not be empty")
	refused(t, ask(t, d, "POST", "/api/v1/ledger/accept", `{"account":"mails","reason":"x"}`), http.StatusNotFound, "account not found")
	a = get[api.Ledger](t, ask(t, d, "POST", "/api/v1/ledger/accept", `{"account":"orders","reason":"purged by hand"}`))
	if l := a.Accounts[0]; !a.Balanced || l.State != "balanced" || !strings.Contains(string(l.Note), "purged by hand") {
		t.Errorf("accepted account: got %+v, want State balanced", l)
	}
}

func TestConsoleWithoutLedger(t *testing.T) {
	d := newCheckedConsole(t, newConsole(t, Config{Archive: newArchive(t, store.Config{})}))
	if a := get[api.Ledger](t, ask(t, d, "GET", "/api/v1/ledger", nil)); a.Kept || a.Balanced {
		t.Errorf("ledger: got %+v, want Kept false, Balanced false", a)
	}
	refused(t, ask(t, d, "POST", "/api/v1/ledger/accept", `{"account":"orders","reason":"x"}`), http.StatusNotFound, "ledger not found")
	if w := ask(t, d.Console, "GET", "/ledger", nil); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "<h2>No ledger</h2>") {
		t.Errorf("page: got status %d, want 200; body %s", w.Code, w.Body)
	}
}

func TestLedgerPage(t *testing.T) {
	b := newFakeLedger(t)
	c := newConsole(t, Config{Archive: newArchive(t, store.Config{}), Ledger: b.Ledger})
	page := func() string {
		w := ask(t, c, "GET", "/ledger", nil)
		if w.Code != http.StatusOK {
			t.Fatalf("page: got status %d, want 200; body %s", w.Code, w.Body)
		}
		return w.Body.String()
	}
	if p := page(); !strings.Contains(p, "balanced") || strings.Contains(p, "difference.") && strings.Contains(p, "1 account") {
		t.Errorf("page of a balanced ledger: got %s, want \"balanced\"", p)
	}
	b.queues["orders"] = ledger.Figures{Published: 5, Messages: 2}
	b.pass()
	for _, want := range []string{"1 account", "3 messages went missing between 2026-03-01 12:01:00 UTC", "not acknowledged by a worker", "<button>Accept</button>"} {
		if p := page(); !strings.Contains(p, want) {
			t.Errorf("page does not contain %q: %s", want, p)
		}
	}
	w := ask(t, c, "POST", "/ledger/accept", "account=orders&reason=by+hand", header("Content-Type", "application/x-www-form-urlencoded"), header("Sec-Fetch-Site", "same-origin"))
	if w.Code != http.StatusSeeOther {
		t.Fatalf("accept: got status %d, want 303; body %s", w.Code, w.Body)
	}
	if p := page(); !strings.Contains(p, "by hand") || strings.Contains(p, "<button>Accept</button>") {
		t.Errorf("page after the acceptance: got %s, want \"by hand\"", p)
	}
}
