package rehearsal_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/examples/coverart/internal/rehearsal"
)

// inClone changes the working directory to a directory in a simulated clone that contains script as scripts/postgres.
// It returns the directory of the clone.
func inClone(t *testing.T, script string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	inside := filepath.Join(dir, "examples", "coverart")
	for _, d := range []string{inside, filepath.Join(dir, "scripts")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "scripts", "postgres"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(inside)
	return dir
}

func TestStartPostgresRunsScript(t *testing.T) {
	dir := inClone(t, `echo "$1 $2" >>"$(dirname "$0")/../asked"; echo "it is up" >&2; [ "$1" = stop ] || echo "postgres://u@/x"`)
	url, stop, err := rehearsal.StartPostgres(t.Context())
	if err != nil || url != "postgres://u@/x" {
		t.Fatalf("url: got %q, %v, want postgres://u@/x", url, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	lines := strings.Split(strings.TrimSpace(string(asked)), "\n")
	if err != nil || len(lines) != 2 || !strings.HasPrefix(lines[0], "start coverart-") || lines[1] != strings.Replace(lines[0], "start", "stop", 1) {
		t.Errorf("arguments of the script: got %q, %v, want start and stop of one name", lines, err)
	}
}

func TestStartPostgresReturnsErrorOfScript(t *testing.T) {
	inClone(t, `echo "PostgreSQL is missing: apt-get install postgresql" >&2; exit 1`)
	_, _, err := rehearsal.StartPostgres(t.Context())
	if err == nil || !strings.Contains(err.Error(), "apt-get install postgresql") || !strings.Contains(err.Error(), "-postgres postgres://") {
		t.Errorf("failed script: got %v, want the cause and -postgres", err)
	}
	t.Chdir(t.TempDir())
	if _, _, err := rehearsal.StartPostgres(t.Context()); err == nil || !strings.Contains(err.Error(), "clone") {
		t.Errorf("outside of a clone: got %v, want an error about the clone", err)
	}
}
