package ledger

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Book counts the events of the workers in this process, and writes the counts to the database for a Ledger. Set it as the
// Observer in the Config of their Client. A Book is safe for concurrent use.
type Book struct {
	database
	cfg BookConfig
	id  string // random ID of the process

	mu     sync.Mutex
	counts map[string]entry

	made    atomic.Bool // the tables were created at least once
	writing sync.Mutex
	ready   bool             // the tables exist
	stored  map[string]entry // counts in the database: in the current row and the earlier rows of id
	base    map[string]entry // counts in the earlier rows of id
}

// entry contains the counts of a queue.
type entry struct{ Done, Debounced, Retried, Parked, Dropped, Lost, Refused, Rejected int64 }

func (e entry) minus(x entry) entry {
	return entry{e.Done - x.Done, e.Debounced - x.Debounced, e.Retried - x.Retried, e.Parked - x.Parked, e.Dropped - x.Dropped, e.Lost - x.Lost, e.Refused - x.Refused, e.Rejected - x.Rejected}
}

func (e entry) plus(x entry) entry { return e.minus(entry{}.minus(x)) }

// NewBook returns a Book that writes to db while Run is running. NewBook does not access the database. The caller must
// close db.
func NewBook(db *sql.DB, cfg BookConfig) *Book {
	cfg = cfg.withDefaults()
	return &Book{
		database: newDatabase(db, cfg.Dialect, cfg.Prefix), cfg: cfg, id: rand.Text(),
		counts: map[string]entry{}, stored: map[string]entry{}, base: map[string]entry{},
	}
}

// ErrNotOpen is returned by Book.Healthy until Run or Write has created the tables.
var ErrNotOpen = errors.New("not open yet (the log contains the reason)")

// Healthy returns ErrNotOpen until the Book has created the tables, and later an error if it cannot read them. The
// error wraps failed.ErrUnavailable if the database is unavailable. ctx should have a deadline.
func (b *Book) Healthy(ctx context.Context) error {
	if !b.made.Load() {
		return ErrNotOpen
	}
	return b.database.Healthy(ctx)
}

func thisProcess() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s, process %d", host, os.Getpid())
}

// effects are the increments of the counts for each kind of event.
var effects = map[reprise.EventKind]entry{
	reprise.EventConsuming:  {}, // creates an entry for the queue
	reprise.EventDone:       {Done: 1},
	reprise.EventDebounced:  {Debounced: 1},
	reprise.EventRetried:    {Retried: 1},
	reprise.EventParked:     {Parked: 1},
	reprise.EventDropped:    {Dropped: 1},
	reprise.EventLost:       {Lost: 1},
	reprise.EventCopyFailed: {Refused: 1},
}

// Observe implements [reprise.Observer].
func (b *Book) Observe(e reprise.Event) {
	n, counts := effects[e.Kind]
	if !counts {
		return
	}
	if e.Rejected {
		n.Rejected = 1
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts[e.Queue] = b.counts[e.Queue].plus(n)
}

// Run writes the counts every BookConfig.Every, until ctx is done. Then it writes the counts a last time, and records
// that the process has stopped. Cancel ctx after the workers have stopped. Run logs and retries failed writes. It
// returns an error only if the last write fails.
func (b *Book) Run(ctx context.Context) error {
	ticker := time.NewTicker(b.cfg.Every)
	defer ticker.Stop()
	for {
		if err := b.Write(ctx); err != nil && ctx.Err() == nil {
			b.cfg.Logger.Warn("ledger is not written", "error", err, "next_try", b.cfg.Every)
		}
		select {
		case <-ticker.C:
			continue
		case <-ctx.Done():
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), DefaultReport)
		defer cancel()
		if err := b.write(ctx, true); err != nil {
			return fmt.Errorf("cannot write the last report of %s: %w", b.cfg.Process, err)
		}
		return nil
	}
}

// Write writes the current counts immediately, without waiting for Run.
func (b *Book) Write(ctx context.Context) error { return b.write(ctx, false) }

// write updates the rows of this process.
func (b *Book) write(ctx context.Context, ended bool) error {
	b.writing.Lock()
	defer b.writing.Unlock()
	if !b.ready {
		if err := b.db.Create(ctx, tables); err != nil {
			return err
		}
		b.ready = true
		b.made.Store(true)
	}
	b.mu.Lock()
	counts := maps.Clone(b.counts)
	b.mu.Unlock()
	for _, queue := range slices.Sorted(maps.Keys(counts)) {
		if err := b.writeOne(ctx, queue, counts[queue], ended); err != nil {
			b.ready = false // the tables may have been deleted
			return err
		}
	}
	return nil
}

func (b *Book) writeOne(ctx context.Context, queue string, n entry, ended bool) error {
	_, stored := b.stored[queue]
	if stored {
		changed, err := b.db.Write(ctx, `UPDATE {book} SET counts = $3, seen = $4, ended = $5 WHERE process = $1 AND queue = $2`,
			b.id, []byte(queue), sqlkit.AsJSON(n.minus(b.base[queue])), sqlkit.Millis(b.cfg.Clock()), flag(ended))
		if err != nil {
			return err
		}
		if changed > 0 {
			b.stored[queue] = n
			return nil
		}
		// The process did not write for so long that its row was added to the past. The row's counts are final.
		b.base[queue] = b.stored[queue]
	}
	_, err := b.db.Write(ctx, `INSERT INTO {book} (process, queue, name, counts, every, seen, ended) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (process, queue) DO UPDATE SET counts = excluded.counts, seen = excluded.seen, ended = excluded.ended`,
		b.id, []byte(queue), []byte(b.cfg.Process), sqlkit.AsJSON(n.minus(b.base[queue])), b.cfg.Every.Milliseconds(), sqlkit.Millis(b.cfg.Clock()), flag(ended))
	if err != nil {
		return err
	}
	b.stored[queue] = n
	return nil
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// page is the row of a process and a queue.
type page struct {
	process, queue, name string
	entry
	every time.Duration
	seen  time.Time
	ended bool
}

// died reports whether a process has missed several writes and has not recorded that it stopped.
func (p *page) died(now time.Time) bool { return !p.ended && now.Sub(p.seen) > 4*p.every+time.Second }

func (s *database) pages(ctx context.Context) (all []page, err error) {
	var p page
	var every int64
	rows := s.db.Rows(ctx, `SELECT process, queue, name, counts, every, seen, ended FROM {book} ORDER BY seen`)
	for err := range rows.Scan(&p.process, &p.queue, &p.name, sqlkit.JSON(&p.entry), &every, sqlkit.Time(&p.seen), &p.ended) {
		if err != nil {
			return nil, err
		}
		p.every = time.Duration(every) * time.Millisecond
		all = append(all, p)
	}
	return all, nil
}

// past is the process ID of the rows that contain the sums of old processes.
const past = "past"

// Minimum ages at which the rows of stopped and killed processes are added to the past.
const (
	endedAge = 24 * time.Hour
	diedAge  = 7 * 24 * time.Hour
)

// fold combines the rows of old processes into one row for each queue.
func (s *database) fold(ctx context.Context, pages []page, now time.Time) error {
	for _, p := range pages {
		age := now.Sub(p.seen)
		if p.process == past || age < diedAge && !(p.ended && age >= endedAge) {
			continue
		}
		if err := s.foldOne(ctx, p, now); err != nil {
			return err
		}
	}
	return nil
}

func (s *database) foldOne(ctx context.Context, p page, now time.Time) error {
	return s.db.Transaction(ctx, s.dialect.Writing(), func(tx *sqlkit.Tx) error {
		// Several ledgers may fold a page concurrently. Only the ledger that deletes the page adds it.
		n, err := tx.Exec(`DELETE FROM {book} WHERE process = $1 AND queue = $2 AND seen = $3`, p.process, []byte(p.queue), sqlkit.Millis(p.seen))
		if err != nil || n == 0 {
			return err
		}
		var sum entry
		err = tx.Row(`SELECT counts FROM {book} WHERE process = $1 AND queue = $2`, past, []byte(p.queue)).Scan(sqlkit.JSON(&sum))
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		_, err = tx.Exec(`INSERT INTO {book} (process, queue, name, counts, every, seen, ended) VALUES ($1, $2, $3, $4, 0, $5, 1)
			ON CONFLICT (process, queue) DO UPDATE SET counts = excluded.counts, seen = excluded.seen`,
			past, []byte(p.queue), []byte("processes of the past"), sqlkit.AsJSON(sum.plus(p.entry)), sqlkit.Millis(now))
		return err
	})
}
