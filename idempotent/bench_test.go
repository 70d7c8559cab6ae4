package idempotent_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/idempotent"
)

// BenchmarkMiddleware measures the cost of the middleware per message, with a handler that does nothing. The SQLite
// database is on disk, as in production. The PostgreSQL server is the one in REPRISE_TEST_POSTGRES.
func BenchmarkMiddleware(b *testing.B) {
	b.Run("memory", func(b *testing.B) { handleMany(b, protect(b, new(idempotent.Memory), idempotent.Config{}, nothing)) })
	benchmarkDatabases(b, func(b *testing.B, db database) {
		handleMany(b, protect(b, db.store(b), idempotent.Config{}, nothing))
	})
}

func BenchmarkTx(b *testing.B) {
	benchmarkDatabases(b, func(b *testing.B, db database) {
		handleMany(b, transaction(b, db.store(b), idempotent.TxConfig{}, func(context.Context, *sql.Tx, *reprise.Delivery) error { return nil }))
	})
}

func nothing(context.Context, *reprise.Delivery) error { return nil }

func benchmarkDatabases(b *testing.B, run func(b *testing.B, db database)) {
	b.Run("sqlite", func(b *testing.B) {
		file := filepath.Join(b.TempDir(), "bench.db")
		run(b, open(b, database{
			dialect: idempotent.SQLite, driver: "sqlite",
			source: "file:" + file + "?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)",
		}))
	})
	b.Run("postgres", func(b *testing.B) {
		db := openPostgres(b)
		db.SetMaxIdleConns(16)
		run(b, db)
	})
}

var benched atomic.Int64 // number of messages of all runs

func handleMany(b *testing.B, h reprise.Handler) {
	b.Helper()
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m := &reprise.Delivery{Message: reprise.Message{MessageID: fmt.Sprint(benched.Add(1))}, Queue: "orders"}
			if err := h.Handle(context.Background(), m); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
