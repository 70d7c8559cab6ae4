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

// TestScriptPostgres runs scripts like TestScript. Each script has a separate PostgreSQL schema: $POSTGRES is the URL,
// through a proxy, and $SCHEMA is the name of the schema. The scripts have these additional commands:
//
//	hold             the database stops responding
//	stop             close connections, and refuse new ones
//	resume           undo hold and stop
//	sql STATEMENT    run a statement in the schema, without the proxy
func TestScriptPostgres(t *testing.T) {
	files, err := filepath.Glob("testdata/postgres/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d scripts: %v", len(files), err)
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
