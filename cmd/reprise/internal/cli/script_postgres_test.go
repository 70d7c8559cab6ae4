//go:build unix

package cli

import (
	"database/sql"
	"maps"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/reprisemq/reprise/internal/testkit/pgtest"
)

// TestScriptPostgres runs scripts as TestScript does, each with a schema of its own in a
// PostgreSQL: $POSTGRES is its URL, through a proxy, and $SCHEMA its name. Besides the
// commands there, scripts have
//
//	hold             the database answers nothing more
//	stop             connections are closed, and no new ones made
//	resume           all is as it was
//	sql STATEMENT    run a statement in the schema, not through the proxy
func TestScriptPostgres(t *testing.T) {
	files, err := filepath.Glob("testdata/postgres/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			address := pgtest.Schema(t)
			proxy := pgtest.NewProxy(t, address)
			commands := map[string]func(*testscript.TestScript, bool, []string){
				"hold":   func(*testscript.TestScript, bool, []string) { proxy.Hold() },
				"stop":   func(*testscript.TestScript, bool, []string) { proxy.Refuse() },
				"resume": func(*testscript.TestScript, bool, []string) { proxy.Resume() },
				"sql": func(ts *testscript.TestScript, _ bool, args []string) {
					db, err := sql.Open("pgx", address)
					ts.Check(err)
					defer db.Close()
					_, err = db.Exec(strings.Join(args, " "))
					ts.Check(err)
				},
			}
			maps.Copy(commands, map[string]func(*testscript.TestScript, bool, []string){
				"exits": exits, "await": await, "url": brokerOf, "fetch": fetch, "answers": answers, "console": consoleOf, "until": runUntil,
			})
			u, err := url.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			testscript.Run(t, testscript.Params{
				Files: []string{file},
				Setup: func(e *testscript.Env) error {
					e.Setenv("POSTGRES", proxy.URL)
					e.Setenv("SCHEMA", u.Query().Get("search_path"))
					e.Setenv("GORACE", "atexit_sleep_ms=0")
					return nil
				},
				Cmds: commands,
			})
		})
	}
}
