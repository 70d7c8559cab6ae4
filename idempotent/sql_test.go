package idempotent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/idempotent"
	"github.com/reprisemq/reprise/idempotent/storetest"
	"github.com/reprisemq/reprise/internal/testkit"
)

func TestSQLImplementsStore(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock := storetest.NewClock()
		tables := 0
		storetest.Run(t, storetest.Subject{
			New: func(t testing.TB) idempotent.Store {
				tables++
				return db.store(t, func(c *idempotent.SQLConfig) {
					c.Clock = clock.Now
					c.PurgeEvery = 3
					c.Table = fmt.Sprint("Store_", tables)
				})
			},
			Pass: clock.Pass,
		})
	})
}

// Without SQLConfig.Clock, the clock of the database decides whether a claim has expired.
func TestSQLUsesClockOfDatabase(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		s := db.store(t)
		if c, err := s.Claim(t.Context(), "long", "a", time.Hour); c.State != idempotent.Claimed {
			t.Fatalf("Claim: got %v (%v), want claimed", c.State, err)
		}
		c, err := s.Claim(t.Context(), "long", "b", time.Hour)
		if err != nil || c.State != idempotent.Busy || c.Left > time.Hour || c.Left < time.Hour/2 {
			t.Errorf("claim for an hour: got %+v (%v), want busy for an hour", c, err)
		}

		var expires int64
		if err := db.QueryRow(`SELECT expires FROM reprise_idempotent`).Scan(&expires); err != nil {
			t.Fatal(err)
		}
		if left := time.Until(time.UnixMilli(expires)); left < time.Hour/2 || left > 2*time.Hour {
			t.Errorf("remaining lease in the table: got %v, want about 1h", left)
		}

		free := func(key string) func() error {
			return func() error {
				c, err := s.Claim(t.Context(), key, "b", time.Hour)
				if c.State != idempotent.Claimed {
					return fmt.Errorf("Claim: got %v (%w), want claimed", c.State, err)
				}
				return nil
			}
		}
		if c, err := s.Claim(t.Context(), "short", "a", time.Microsecond); c.State != idempotent.Claimed {
			t.Fatalf("Claim: got %v (%v), want claimed", c.State, err)
		}
		testkit.Eventually(t, timeout, free("short"))
		if err := s.Complete(t.Context(), "done", "a", 10*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, timeout, free("done"))
	})
}

func TestMigrateIsSafeForConcurrentUse(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		var processes []database
		for range 6 {
			processes = append(processes, open(t, db))
		}
		for n := range 10 {
			table := fmt.Sprint("table_", n)
			var wg sync.WaitGroup
			start := make(chan struct{})
			for _, p := range processes {
				wg.Go(func() {
					<-start
					if _, err := idempotent.OpenSQL(t.Context(), p.DB, idempotent.SQLConfig{Dialect: p.dialect, Table: table}); err != nil {
						t.Error(err)
					}
				})
			}
			close(start)
			wg.Wait()
			if n := db.count(t, table); n != 0 {
				t.Errorf("new table has %d rows, want 0", n)
			}
		}
	})
}

func TestSchemaIsSufficientForStore(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		cfg := idempotent.SQLConfig{Dialect: db.dialect, Table: "mine"}
		s, err := idempotent.NewSQL(db.DB, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Claim(t.Context(), "key", "token", time.Minute); err == nil || !strings.Contains(err.Error(), "mine") {
			t.Errorf("missing table: got error %v, want one about the table mine", err)
		}
		for _, statement := range s.Schema() {
			db.exec(t, statement)
		}
		if c, err := s.Claim(t.Context(), "key", "token", time.Minute); c.State != idempotent.Claimed {
			t.Errorf("Claim: got %v (%v), want claimed", c.State, err)
		}
	})
}

func TestTableInSchema(t *testing.T) {
	db := openPostgres(t)
	db.exec(t, `CREATE SCHEMA "Other"`)
	t.Cleanup(func() { db.exec(t, `DROP SCHEMA "Other" CASCADE`) })
	s := db.store(t, func(c *idempotent.SQLConfig) { c.Table = "Other.keys" })
	if err := s.Complete(t.Context(), "key", "token", time.Minute); err != nil {
		t.Fatal(err)
	}
	if n := db.count(t, `"Other".keys`); n != 1 {
		t.Errorf("table in the schema has %d rows, want 1", n)
	}
}

func TestSQLConfig(t *testing.T) {
	db := openSQLite(t)
	if _, err := idempotent.NewSQL(nil, idempotent.SQLConfig{Dialect: idempotent.SQLite}); err == nil {
		t.Error("NewSQL accepted a nil database")
	}
	long := strings.Repeat("t", 51)
	for _, tc := range []struct {
		cfg  idempotent.SQLConfig
		want string // expected in the error; "" means no error
	}{
		{idempotent.SQLConfig{}, "use PostgreSQL or SQLite"},
		{idempotent.SQLConfig{Dialect: 7}, "use PostgreSQL or SQLite"},
		{idempotent.SQLConfig{Dialect: idempotent.SQLite}, ""},
		{idempotent.SQLConfig{Dialect: idempotent.SQLite, Table: long[1:]}, ""},
		{idempotent.SQLConfig{Dialect: idempotent.SQLite, Table: long}, "at most 50"},
		{idempotent.SQLConfig{Dialect: idempotent.SQLite, Table: "main.t"}, "must not have a schema with SQLite"},
		{idempotent.SQLConfig{Dialect: idempotent.PostgreSQL, Table: "a.b"}, ""},
		{idempotent.SQLConfig{Dialect: idempotent.PostgreSQL, Table: "a.b.c"}, "at most 50"},
		{idempotent.SQLConfig{Dialect: idempotent.PostgreSQL, Table: "."}, "at most 50"},
		{idempotent.SQLConfig{Dialect: idempotent.PostgreSQL, Table: `t"; DROP TABLE orders; --`}, "at most 50"},
		{idempotent.SQLConfig{Dialect: idempotent.PostgreSQL, Table: "t t"}, "at most 50"},
		{idempotent.SQLConfig{Dialect: idempotent.PostgreSQL, Table: "1t"}, "at most 50"},
		{idempotent.SQLConfig{Dialect: idempotent.PostgreSQL, Table: "t\n"}, "at most 50"},
		{idempotent.SQLConfig{Dialect: idempotent.PostgreSQL, Table: "tä"}, "at most 50"},
	} {
		_, err := idempotent.NewSQL(db.DB, tc.cfg)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: got %v, want %q", tc.cfg, err, tc.want)
		}
	}
}

func TestPurge(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock := storetest.NewClock()
		s := db.store(t, func(c *idempotent.SQLConfig) {
			c.Clock = clock.Now
			c.PurgeEvery = -1
		})
		fill := func(prefix string, n int, retention time.Duration) {
			t.Helper()
			for i := range n {
				if err := s.Complete(t.Context(), fmt.Sprint(prefix, i), "token", retention); err != nil {
					t.Fatal(err)
				}
			}
		}
		fill("short ", 4100, time.Minute) // more than one batch of each
		fill("long ", 10, time.Hour)
		clock.Pass(time.Minute)

		// Several concurrent purges share the work.
		var wg sync.WaitGroup
		var mu sync.Mutex
		var total int64
		for range 3 {
			wg.Go(func() {
				n, err := s.Purge(t.Context())
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				total += n
			})
		}
		wg.Wait()
		if n := db.count(t, idempotent.DefaultTable); total != 4100 || n != 10 {
			t.Errorf("purged and remaining rows: got %d and %d, want 4100 and 10", total, n)
		}

		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Purge(canceled); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled context: got error %v, want context.Canceled", err)
		}
	})
}

func TestCompletePurgesTable(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock := storetest.NewClock()
		s := db.store(t, func(c *idempotent.SQLConfig) {
			c.Clock = clock.Now
			c.PurgeEvery = 10
		})
		for i := range 200 {
			if err := s.Complete(t.Context(), fmt.Sprint(i), "token", 20*time.Second); err != nil {
				t.Fatal(err)
			}
			clock.Pass(time.Second)
		}
		if n := db.count(t, idempotent.DefaultTable); n > 30 {
			t.Errorf("rows for 20 keys: got %d, want at most 30", n)
		}
	})
}

// A claim does not wait indefinitely for another transaction. In PostgreSQL it waits until the context is done, in
// SQLite until the busy timeout has passed.
func TestClaimDoesNotWaitIndefinitely(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		s := db.store(t)
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		const insert = `INSERT INTO reprise_idempotent VALUES ('key', 'x', TRUE, 1)`
		if _, err := tx.Exec(insert); err != nil {
			t.Fatal(err)
		}
		if err := s.Migrate(t.Context()); err != nil { // does not wait for the transaction
			t.Error(err)
		}
		impatient := db
		impatient.source = strings.Replace(db.source, "busy_timeout(30000)", "busy_timeout(50)", 1)
		waiting := open(t, impatient).store(t)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if c, err := waiting.Claim(ctx, "key", "token", time.Minute); err == nil {
			t.Errorf("blocked claim: got %v, want an error", c.State)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		// PostgreSQL may have performed the canceled claim; Complete must succeed in either case.
		if err := s.Complete(t.Context(), "key", "token", time.Minute); err != nil {
			t.Error(err)
		}
	})
}

// The store uses the clock of a bubble, which differs from the database clock.
func TestSQLiteInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openSQLite(t).store(t, func(c *idempotent.SQLConfig) { c.Clock = time.Now })
		var inner countingHandler
		h := protect(t, s, idempotent.Config{Retention: 24 * time.Hour}, inner.Handle)
		for want := range int32(3) {
			for range 2 {
				if err := h.Handle(t.Context(), message()); err != nil {
					t.Error(err)
				}
			}
			if n := inner.runs.Load(); n != want+1 {
				t.Errorf("after %d days: handled %d times", want, n)
			}
			time.Sleep(24 * time.Hour)
		}
	})
}

// The lease expires between the two statements of a claim.
func TestClaimOfKeyThatExpiresDuringCall(t *testing.T) {
	now := time.Now()
	s := openSQLite(t).store(t, func(c *idempotent.SQLConfig) {
		c.Clock = func() time.Time {
			now = now.Add(time.Minute) // at each call
			return now
		}
	})
	for _, token := range []string{"a", "b"} {
		if c, err := s.Claim(t.Context(), "key", token, 90*time.Second); err != nil || c.State != idempotent.Claimed {
			t.Errorf("claim for token %s: got %v (%v), want claimed", token, c.State, err)
		}
	}
}
