// Pagebench measures the latency of the pages and the JSON API of a console with many failures in the archive, both
// idle and under load. It prints a table in Markdown.
//
//	pagebench -sqlite FILE -postgres URL [-failures 1000000] [-requests 100] [-only REGEXP] [-json FILE] [-before FILE]
//
// If a database has fewer failures, pagebench first adds the missing failures. They stay in the database for the next
// run.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	_ "modernc.org/sqlite"             // driver "sqlite"

	"github.com/reprisemq/reprise/internal/archive/store"
)

type options struct {
	sqlite, postgres string
	failures         int
	requests         int
	only             *regexp.Regexp
	written, before  string
	idle, load       bool
}

func main() {
	log.SetFlags(log.Ltime)
	var o options
	flag.StringVar(&o.sqlite, "sqlite", "", "`file` of an SQLite database")
	flag.StringVar(&o.postgres, "postgres", "", "`URL` of a PostgreSQL database")
	flag.IntVar(&o.failures, "failures", 1_000_000, "failures in the archive")
	flag.IntVar(&o.requests, "requests", 100, "requests of each kind; 0 fills the databases only")
	only := flag.String("only", "", "`regexp` of the names of pages")
	flag.BoolVar(&o.idle, "idle", true, "measure without load")
	flag.BoolVar(&o.load, "load", true, "measure while 500 failures per second come in and a replay runs")
	flag.StringVar(&o.written, "json", "", "`file` to write the figures to")
	flag.StringVar(&o.before, "before", "", "`file` of -json with figures to show beside the new ones")
	flag.Parse()
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, o options) error {
	var results figures
	if o.sqlite != "" {
		if err := measure(ctx, o, store.SQLite, "sqlite", "file:"+o.sqlite+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)", &results); err != nil {
			return fmt.Errorf("SQLite: %w", err)
		}
	}
	if o.postgres != "" {
		if err := measure(ctx, o, store.PostgreSQL, "pgx", o.postgres, &results); err != nil {
			return fmt.Errorf("PostgreSQL: %w", err)
		}
	}
	var before figures
	if o.before != "" {
		b, err := os.ReadFile(o.before)
		if err := errors.Join(err, json.Unmarshal(b, &before)); err != nil {
			return err
		}
	}
	if o.requests == 0 {
		return nil
	}
	results.print(os.Stdout, before)
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Printf("\nLoad average %s, %d processors\n", strings.Fields(string(load))[0], runtime.NumCPU())
	}
	if o.written == "" {
		return nil
	}
	b, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.written, b, 0o644)
}

// measure opens a database as the reprise command does, fills it, and measures the pages.
func measure(ctx context.Context, o options, d store.Dialect, driver, source string, results *figures) error {
	db, err := sql.Open(driver, source)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	a, err := store.Open(ctx, db, store.Config{Dialect: d})
	if err != nil {
		return err
	}
	if err := fill(ctx, db, d, a, o.failures); err != nil {
		return err
	}
	past, err := fillPast(ctx, db, d, a)
	if err != nil {
		return err
	}
	s, err := newSystem(ctx, a, past)
	if err != nil {
		return err
	}
	defer s.close()
	if err := act(ctx, a, s.finish); err != nil {
		return err
	}
	if o.requests == 0 {
		return nil
	}
	pages, err := pagesOf(ctx, a)
	if err != nil {
		return err
	}
	if o.idle {
		if err := s.ask(ctx, o, fmt.Sprint(d, " idle"), pages, results); err != nil {
			return err
		}
	}
	if !o.load {
		return nil
	}
	unload, err := s.load(ctx)
	if err != nil {
		return err
	}
	err = s.ask(ctx, o, fmt.Sprint(d, " load"), pages, results)
	return errors.Join(err, unload())
}
