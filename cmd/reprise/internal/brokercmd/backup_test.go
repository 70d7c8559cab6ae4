package brokercmd

import (
	"path/filepath"
	"strings"
	"testing"
)

// A broker with another file system can write a backup that this process does not see.
func TestBackupMustBeVisible(t *testing.T) {
	dir := t.TempDir()
	if err := (&backupCmd{To: dir}).visible(); err != nil {
		t.Errorf("existing backup: got %v, want nil", err)
	}
	if err := (&backupCmd{To: filepath.Join(dir, "missing")}).visible(); err == nil || !strings.Contains(err.Error(), "next to the data directory") {
		t.Errorf("missing backup: got %v, want an error with advice", err)
	}
}

func TestBackupExplainsMissingAnswer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := (&backupCmd{Data: dir}).unanswered(); !strings.Contains(err.Error(), "socket is too long") {
		t.Errorf("long path: got error %v", err)
	}
	if err := (&backupCmd{Data: "short"}).unanswered(); !strings.Contains(err.Error(), "another process uses it and has no control socket") {
		t.Errorf("missing socket: got error %v", err)
	}
}
