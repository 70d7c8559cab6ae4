package ledger

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// tables are compatible with both dialects. Queue names are bytes. Times are milliseconds since 1970. Terms are JSON lists,
// so that a new term does not require a new column.
var tables = sqlkit.Tables{Version: 1, Lock: "7365417203", Statements: []string{
	`CREATE TABLE IF NOT EXISTS {account} (
		name     BYTES PRIMARY KEY,
		work     TEXT NOT NULL, -- base64 of queue names, as JSON
		raw      TEXT NOT NULL, -- last counters of the broker
		opened   BIGINT NOT NULL, -- 0: not yet
		opening  TEXT NOT NULL,
		slack    BIGINT NOT NULL,
		note     BYTES NOT NULL,
		seen     BIGINT NOT NULL
	)`,
	`CREATE TABLE IF NOT EXISTS {sample} (
		account BYTES NOT NULL,
		at      BIGINT NOT NULL,
		until   BIGINT NOT NULL,
		times   BIGINT NOT NULL,
		terms   TEXT NOT NULL,
		PRIMARY KEY (account, at)
	)`,
	`CREATE TABLE IF NOT EXISTS {book} (
		process VARCHAR(200) NOT NULL,
		queue   BYTES NOT NULL,
		name    BYTES NOT NULL,
		counts  TEXT NOT NULL,
		every   BIGINT NOT NULL,
		seen    BIGINT NOT NULL,
		ended   SMALLINT NOT NULL,
		PRIMARY KEY (process, queue)
	)`,
}}

type database struct {
	db      *sqlkit.DB
	dialect sqlkit.Dialect
}

func newDatabase(db *sql.DB, d sqlkit.Dialect, prefix string) database {
	return database{sqlkit.New(db, d, prefix), d}
}

// Healthy returns an error if it cannot read the tables. The error wraps failed.ErrUnavailable if the database is
// unavailable. ctx should have a deadline.
func (s *database) Healthy(ctx context.Context) error {
	var version string
	if err := s.db.Row(ctx, `SELECT value FROM {about} WHERE name = 'version'`).Scan(&version); err != nil {
		return err
	}
	return nil
}

// samples returns the samples of an account since a time, oldest first.
func (s *database) samples(ctx context.Context, account string, since time.Time) ([]sample, error) {
	return samplesOf(s.db.Rows(ctx, `SELECT at, until, times, terms FROM {sample} WHERE account = $1 AND until >= $2 ORDER BY at`, []byte(account), sqlkit.Millis(since)))
}

// last returns the n newest samples of an account, oldest first.
func (s *database) last(ctx context.Context, account string, n int) ([]sample, error) {
	all, err := samplesOf(s.db.Rows(ctx, `SELECT at, until, times, terms FROM {sample} WHERE account = $1 ORDER BY at DESC LIMIT $2`, []byte(account), n))
	slices.Reverse(all)
	return all, err
}

func samplesOf(rows sqlkit.Rows) (all []sample, err error) {
	var x sample
	for err := range rows.Scan(sqlkit.Time(&x.at), sqlkit.Time(&x.until), &x.times, sqlkit.JSON(&x.terms)) {
		if err != nil {
			return nil, err
		}
		all = append(all, x)
	}
	return all, nil
}

// add saves a sample. If the terms have not changed, it extends the last sample instead.
func (s *database) add(ctx context.Context, account string, last *sample, x sample) error {
	if last != nil && last.terms == x.terms {
		_, err := s.db.Write(ctx, `UPDATE {sample} SET until = $3, times = times + 1 WHERE account = $1 AND at = $2`, []byte(account), sqlkit.Millis(last.at), sqlkit.Millis(x.at))
		return err
	}
	_, err := s.db.Write(ctx, `INSERT INTO {sample} (account, at, until, times, terms) VALUES ($1, $2, $2, 1, $3) ON CONFLICT (account, at) DO NOTHING`,
		[]byte(account), sqlkit.Millis(x.at), sqlkit.AsJSON(x.terms))
	return err
}

// prune removes the oldest samples of an account. keep is the maximum number of samples that remain.
func (s *database) prune(ctx context.Context, account string, keep int) error {
	_, err := s.db.Write(ctx, `DELETE FROM {sample} WHERE account = $1 AND at <
		(SELECT at FROM {sample} WHERE account = $1 ORDER BY at DESC LIMIT 1 OFFSET $2)`, []byte(account), keep-1)
	return err
}

// account is a row of the account table.
type account struct {
	name   string
	work   []string
	raw    map[string]counters // by queue name in base64: last values
	opened time.Time
	opening
	note string
	seen time.Time
}

func (s *database) accounts(ctx context.Context) (all []account, err error) {
	var a account
	var queues [][]byte
	rows := s.db.Rows(ctx, `SELECT name, work, raw, opened, opening, slack, note, seen FROM {account} ORDER BY name`)
	for err := range rows.Scan(&a.name, sqlkit.JSON(&queues), sqlkit.JSON(&a.raw), sqlkit.Time(&a.opened), sqlkit.JSON(&a.terms), &a.slack, &a.note, sqlkit.Time(&a.seen)) {
		if err != nil {
			return nil, err
		}
		a.work = nil
		for _, q := range queues {
			a.work = append(a.work, string(q))
		}
		all = append(all, a)
	}
	return all, nil
}

// put saves the fields that change with each sample.
func (s *database) put(ctx context.Context, a *account) error {
	queues := make([][]byte, len(a.work))
	for i, q := range a.work {
		queues[i] = []byte(q)
	}
	_, err := s.db.Write(ctx, `INSERT INTO {account} (name, work, raw, opened, opening, slack, note, seen) VALUES ($1, $2, $3, 0, '[]', 0, $4, $5)
		ON CONFLICT (name) DO UPDATE SET work = excluded.work, raw = excluded.raw, seen = excluded.seen`,
		[]byte(a.name), sqlkit.AsJSON(queues), sqlkit.AsJSON(a.raw), []byte(a.note), sqlkit.Millis(a.seen))
	return err
}

// begin saves the opening of an account.
func (s *database) begin(ctx context.Context, a *account) error {
	_, err := s.db.Write(ctx, `UPDATE {account} SET opened = $2, opening = $3, slack = $4, note = $5 WHERE name = $1`,
		[]byte(a.name), sqlkit.Millis(a.opened), sqlkit.AsJSON(a.terms), a.slack, []byte(a.note))
	return err
}
