package ledger_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// If the database file was deleted, the ledger reports an error, and does not report that all accounts are balanced.
func TestLedgerReportsDeletedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	db := openFile(t, path)
	l, err := ledger.Open(t.Context(), db, ledger.Config{Dialect: store.SQLite})
	if err != nil {
		t.Fatal(err)
	}
	book := ledger.NewBook(db, ledger.BookConfig{Dialect: store.SQLite})
	if err := book.Write(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(path + suffix); err != nil {
			t.Fatal(err)
		}
	}
	_, reported := l.Report(t.Context())
	for what, err := range map[string]error{"report": reported, "ledger": l.Healthy(t.Context()), "book": book.Healthy(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), path+" was deleted or moved") {
			t.Errorf("%s: got error %v, want one about the deleted file", what, err)
		}
	}
}

// If the database file of a book was moved away, the book does not create another file, because the write-ahead log of the
// new file would remain next to the restored file.
func TestBookDoesNotCreateSecondFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	db := openFile(t, path)
	book := ledger.NewBook(db, ledger.BookConfig{Dialect: store.SQLite})
	book.Observe(reprise.Event{Kind: reprise.EventDone, Queue: "orders"})
	if err := book.Write(t.Context()); err != nil {
		t.Fatal(err)
	}
	db.SetMaxIdleConns(0) // so that each statement opens a new connection, which fails without the file
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // after an error, the book checks its tables
		if err := book.Write(t.Context()); err == nil || !strings.Contains(err.Error(), path+" was deleted or moved") {
			t.Errorf("Write: got error %v, want one about the deleted file", err)
		}
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("Write created another file")
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if err := book.Write(t.Context()); err != nil {
		t.Errorf("Write after the file was restored: got error %v, want nil", err)
	}
}
