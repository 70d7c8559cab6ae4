package ledger_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/ledger"
)

// A ledger in a file that was deleted says so, rather than that all is balanced.
func TestALedgerThatIsGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	db := openFile(t, path)
	l, err := ledger.Open(t.Context(), db, ledger.Config{Dialect: failed.SQLite})
	if err != nil {
		t.Fatal(err)
	}
	book, err := ledger.NewBook(db, ledger.BookConfig{Dialect: failed.SQLite})
	if err != nil {
		t.Fatal(err)
	}
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
			t.Errorf("%s: %v", what, err)
		}
	}
}
