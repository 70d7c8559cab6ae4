package database

import (
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

func TestOpenMySQL(t *testing.T) {
	address := os.Getenv("REPRISE_TEST_MARIADB")
	if address == "" {
		t.Skip("needs MariaDB (set REPRISE_TEST_MARIADB=user@unix(/…)/database or run make test)")
	}
	cfg, err := mysql.ParseDSN(address)
	if err != nil {
		t.Fatal(err)
	}
	u := url.URL{Scheme: "mysql", User: url.UserPassword(cfg.User, cfg.Passwd), Host: cfg.Addr, Path: cfg.DBName, RawQuery: "collation=utf8mb4_bin"}
	if cfg.Net == "unix" {
		u.Host, u.RawQuery = "localhost", u.RawQuery+"&socket="+url.QueryEscape(cfg.Addr)
	}
	db, err := OpenOutbox(u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var name string
	if err := db.QueryRowContext(t.Context(), "SELECT database()").Scan(&name); err != nil || name != cfg.DBName || db.Dialect != sqlkit.MySQL {
		t.Errorf("database: got %s of %s, %v", name, db.Dialect, err)
	}
}

func TestOpenOutboxHidesPassword(t *testing.T) {
	for _, place := range []string{"mysql://app:hush%@host/db", "mysql://app:hush@host/db?readTimeout=soon", "redis://app:hush@host"} {
		if _, err := OpenOutbox(place); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: got %v, want an error without the password", place, err)
		}
	}
	db, err := OpenOutbox("mysql://app:hush@host/shop")
	if err != nil || db.Name != "mysql://host:3306/shop" {
		t.Errorf("name: got %+v, %v", db, err)
	}
}
