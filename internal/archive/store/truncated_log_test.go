package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// After another process has truncated the write-ahead log, SQLite appends behind the gap. After a crash, these writes
// would be lost, so the archive refuses them.
func TestArchiveRefusesWritesAfterLogTruncation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	a := openFile(t, path).open(t)
	check(t, arrive(t.Context(), a))
	check(t, os.Truncate(path+"-wal", 0))
	for range 2 {
		if err := arrive(t.Context(), a); err == nil || !strings.Contains(err.Error(), path+"-wal with the newest part of the database was truncated") {
			t.Errorf("ingest: got error %v, want one about the truncated log", err)
		}
	}
	if err := a.Healthy(t.Context()); err == nil {
		t.Error("archive reports that it is healthy")
	}
}
