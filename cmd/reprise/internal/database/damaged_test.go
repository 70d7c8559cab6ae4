package database

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/archive"
)

// After a crash, the write-ahead log of the archive remains. If a backup is restored without deleting the log, SQLite reads
// pages of both.
func TestServiceRefusesBackupWithOldWriteAheadLog(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	crashed, err := sql.Open("sqlite", "file:"+path("crashed.db")+"?_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}
	defer crashed.Close()
	run := func(statement string) {
		t.Helper()
		if _, err := crashed.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	run(`CREATE TABLE m (id INTEGER PRIMARY KEY, body BLOB)`)
	run(`WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i < 2000) INSERT INTO m SELECT i, zeroblob(500) FROM c`)
	run(`DELETE FROM m WHERE id % 3 = 0`)
	run(`VACUUM INTO '` + path("failed.db") + `'`)
	run(`PRAGMA wal_checkpoint(TRUNCATE)`)
	run(`WITH RECURSIVE c(i) AS (SELECT 3000 UNION ALL SELECT i+1 FROM c WHERE i < 3500) INSERT INTO m SELECT i, zeroblob(500) FROM c`)
	log, err := os.ReadFile(path("crashed.db-wal"))
	if err != nil {
		t.Fatal(err)
	}
	open := func() error {
		db, err := OpenArchive("sqlite:" + path("failed.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		_, err = archive.Open(t.Context(), archive.Config{DB: db.DB, Name: db.Name, Dialect: archive.SQLite, Queues: []string{"orders.failed"}})
		return err
	}
	if err := open(); err != nil {
		t.Fatalf("backup without the log: %v", err)
	}
	if err := os.WriteFile(path("failed.db-wal"), log, 0o600); err != nil {
		t.Fatal(err)
	}
	err = open()
	for _, want := range []string{"failed.db: file is damaged: ", "move failed.db, failed.db-wal and failed.db-shm away"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("backup with the old log: got %v, want %q", err, want)
		}
	}
}
