package testkit

import (
	"database/sql"
	"os"
	"strings"
	"testing"
)

// MariaDB returns the data source of an empty database, which it drops at the end of the test. The test must import the
// driver "mysql". Without a server, MariaDB skips the test. `make test` provides a server, and treats a skipped test as a failure.
func MariaDB(t testing.TB) (source string) {
	t.Helper()
	address := os.Getenv("REPRISE_TEST_MARIADB")
	if address == "" {
		t.Skip("needs MariaDB (set REPRISE_TEST_MARIADB=user@unix(/…)/database or run make test)")
	}
	server, err := sql.Open("mysql", address)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.ToLower(Name(t, "reprise"))
	name = name[max(0, len(name)-50):]
	run := func(statement string) {
		if _, err := server.Exec(statement + " `" + name + "`"); err != nil {
			t.Fatal(err)
		}
	}
	run("CREATE DATABASE")
	t.Cleanup(func() {
		run("DROP DATABASE")
		server.Close()
	})
	return address[:strings.LastIndexByte(address, '/')+1] + name
}
