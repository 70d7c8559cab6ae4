package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Entry is a periodic message. Each of its occurrences is inserted once when it is due, by any of the processes that have passed the
// entry to Every and run a relay. Its MessageID is "cron:{app}/{name}/{time}", and its Timestamp is the time of the occurrence.
type Entry struct {
	// Name is the name of the entry in Config.App. It has at most 60 bytes.
	Name string

	// Spec contains the times of the entry: minute, hour, day of the month, month and day of the week, as in crontab(5),
	// for example "30 2 * * mon-fri", or @hourly, @daily, @weekly, @monthly or @yearly. The time zone is UTC, or
	// the zone in the prefix "CRON_TZ=Europe/Berlin ".
	//
	// When the clock of the zone changes, an entry with fixed hours occurs once: at the first of two equal times, and for a time that the
	// clock skips, when the clock has skipped it. An entry with the hours *, */2 and similar occurs each time the clock shows
	// a matching time.
	Spec string

	// Message is the message of each occurrence. Its MessageID must be empty.
	Message reprise.Message

	// Key is Message.Key of the occurrences.
	Key string

	// Missed selects the occurrences to insert if several are due, because no process has run. Default: MissedLatest.
	Missed Missed

	// CatchUp is the maximum age of an occurrence when it is inserted. Older occurrences are omitted. Default: 24 h.
	CatchUp time.Duration
}

// Validate reports missing and invalid settings, except of the Message.
func (e Entry) Validate() error {
	_, err := parseSchedule(e.Spec)
	switch {
	case e.Name == "" || len(e.Name) > 60 || !isText(e.Name) || strings.Contains(e.Name, "/"):
		return fmt.Errorf("outbox: Entry.Name must be 1 to 60 bytes of text without a slash: got %q", e.Name)
	case err != nil:
		return fmt.Errorf("outbox: Entry.Spec of %q is invalid: %w", e.Name, err)
	case len(e.Spec) > 200:
		return fmt.Errorf("outbox: Entry.Spec of %q must be at most 200 bytes", e.Name)
	case e.Message.MessageID != "":
		return fmt.Errorf("outbox: Entry.Message.MessageID of %q must be empty: got %q", e.Name, e.Message.MessageID)
	case e.Missed != MissedLatest && e.Missed != MissedAll:
		return fmt.Errorf("outbox: Entry.Missed of %q must be MissedLatest or MissedAll: got %d", e.Name, e.Missed)
	case e.CatchUp < 0:
		return fmt.Errorf("outbox: Entry.CatchUp of %q must not be negative: got %s (0 means %s)", e.Name, e.CatchUp, DefaultCatchUp)
	}
	return nil
}

// Missed selects missed occurrences.
type Missed int

// The occurrences to insert if several are due.
const (
	MissedLatest Missed = iota // the latest
	MissedAll                  // all of them
)

// DefaultCatchUp is the default of Entry.CatchUp.
const DefaultCatchUp = 24 * time.Hour

// entry is a registered Entry.
type entry struct {
	Entry
	times   *schedule
	started bool
	next    int64 // earliest time at which the table must be read, ms since 1970

	// If another process has stored another specification: the time in the row, and the time since which it is unchanged.
	silent      bool
	upto, since int64
}

// Every registers a periodic message. Call it in each process before the relay runs. If the specification of an entry changes, its
// occurrences start again when the first process with the new specification starts; processes with the old specification then stop to
// insert occurrences. An entry that no process registers does not occur.
func (b *Box) Every(e Entry) error {
	if err := e.Validate(); err != nil {
		return err
	}
	times, _ := parseSchedule(e.Spec) // valid
	trial := &Message{Message: e.Message, Key: e.Key}
	if _, err := encodeOnly(trial); err != nil {
		return fmt.Errorf("outbox: Entry.Message of %q: %w", e.Name, err)
	}
	e.CatchUp = cmp.Or(e.CatchUp, DefaultCatchUp)
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.ContainsFunc(b.entries, func(other *entry) bool { return other.Name == e.Name }) {
		return fmt.Errorf("outbox: Entry %q already exists", e.Name)
	}
	b.entries = append(b.entries, &entry{Entry: e, times: times})
	return nil
}

// Scheduled is the state of a periodic message in the database.
type Scheduled struct {
	App, Name, Spec string
	Next            time.Time // next occurrence; if it is in the past, no process inserts the occurrences
}

// Times returns the next n occurrences, beginning with Next.
func (s Scheduled) Times(n int) (all []time.Time) {
	times, err := parseSchedule(s.Spec)
	if err != nil {
		return nil
	}
	for at := s.Next; len(all) < n && !at.IsZero(); at = times.next(at).UTC() {
		all = append(all, at)
	}
	return all
}

// Entries returns the periodic messages of all programs, also of entries that no process registers any more.
func (b *Box) Entries(ctx context.Context) (all []Scheduled, err error) {
	var s Scheduled
	var upto int64
	for err := range b.db.Rows(ctx, `SELECT app, name, spec, upto FROM {cron} WHERE spec <> '' ORDER BY app, name`).Scan(&s.App, &s.Name, &s.Spec, &upto) {
		if err != nil {
			return nil, fmt.Errorf("outbox: cannot list periodic messages: %w", err)
		}
		s.Next = time.Time{}
		if times, err := parseSchedule(s.Spec); err == nil {
			s.Next = times.next(time.UnixMilli(upto)).UTC()
		}
		all = append(all, s)
	}
	return all, nil
}

// ErrNoEntry is returned for a periodic message that is not in the database.
var ErrNoEntry = errors.New("outbox: periodic message not found")

// Occur makes a periodic message of any program occur now, in addition to its other occurrences. A process that has passed the entry to
// Every and runs a relay inserts the occurrence, with the MessageID "cron:{app}/{name}/{time in ms}". If no such process runs within
// Entry.CatchUp, or if Occur is called again before, the earlier call has no effect. Occur returns ErrNoEntry if no process
// has registered the entry yet.
func (b *Box) Occur(ctx context.Context, app, name string) error {
	err := b.transaction(ctx, func(tx *sqlkit.Tx) error {
		var now int64
		err := tx.Row(`SELECT `+b.clock()+` FROM {cron} WHERE app = $1 AND name = $2 AND spec <> ''`, app, name).Scan(&now)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNoEntry
		}
		if err == nil {
			_, err = tx.Exec(`DELETE FROM {cron} WHERE app = $1 AND name = $2`, app, name+requested)
		}
		if err == nil {
			_, err = tx.Exec(`INSERT INTO {cron} (app, name, spec, upto) VALUES ($1, $2, '', $3)`, app, name+requested, now)
		}
		return err
	})
	if err != nil && !errors.Is(err, ErrNoEntry) {
		return fmt.Errorf("outbox: cannot request an occurrence of %q: %w", name, err)
	}
	return err
}

// Forget removes a periodic message of any program from the database, so that Entries no longer returns it. A process that has passed
// the entry to Every and runs a relay continues to insert its occurrences, and Entries returns it again from the next one on. Forget
// returns ErrNoEntry if no process has registered the entry.
func (b *Box) Forget(ctx context.Context, app, name string) error {
	var deleted int64
	err := b.transaction(ctx, func(tx *sqlkit.Tx) (err error) {
		if deleted, err = tx.Exec(`DELETE FROM {cron} WHERE app = $1 AND name = $2 AND spec <> ''`, app, name); err == nil {
			_, err = tx.Exec(`DELETE FROM {cron} WHERE app = $1 AND name = $2`, app, name+requested)
		}
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("outbox: cannot forget periodic message %q: %w", name, err)
	case deleted == 0:
		return ErrNoEntry
	}
	return nil
}

// requested is the suffix of the name of a row that requests an occurrence at the time upto. Names of entries have no slash.
const requested = "/now"

// takeRequests inserts the requested occurrences of the entries of this process. It returns the first error.
func (b *Box) takeRequests(ctx context.Context, now int64) error {
	var name string
	var at int64
	wanted := map[string]int64{}
	for err := range b.db.Rows(ctx, `SELECT name, upto FROM {cron} WHERE app = $1 AND spec = ''`, b.cfg.App).Scan(&name, &at) {
		if err != nil {
			return err
		}
		wanted[strings.TrimSuffix(name, requested)] = at
	}
	var failed error
	for _, e := range b.entries {
		if at, ok := wanted[e.Name]; ok && e.started {
			if err := b.take(ctx, e, at, now); err != nil {
				failed = cmp.Or(failed, fmt.Errorf("entry %q: %w", e.Name, err))
			}
		}
	}
	return failed
}

// take inserts a requested occurrence, unless the specification of the entry is that of another process, which then inserts it.
func (b *Box) take(ctx context.Context, e *entry, at, now int64) error {
	var spec string
	if err := b.db.Row(ctx, `SELECT spec FROM {cron} WHERE app = $1 AND name = $2`, b.cfg.App, e.Name).Scan(&spec); errors.Is(err, sql.ErrNoRows) {
		return nil // Forget removes the request, too
	} else if err != nil || spec != e.Spec {
		return err
	}
	err := b.transaction(ctx, func(tx *sqlkit.Tx) error {
		changed, err := tx.Exec(`DELETE FROM {cron} WHERE app = $1 AND name = $2 AND upto = $3`, b.cfg.App, e.Name+requested, at)
		if err != nil || changed == 0 || at < now-e.CatchUp.Milliseconds() {
			return err
		}
		return b.insertOccurrence(ctx, tx, e, at, "2006-01-02T15:04:05.000Z07:00")
	})
	if err == nil {
		b.signal()
	}
	return err
}

// tick inserts due occurrences until ctx is done.
func (b *Box) tick(ctx context.Context, poll time.Duration) {
	for {
		pause := poll
		if err := b.tickAll(ctx); err != nil && ctx.Err() == nil {
			b.cfg.Logger.Error("outbox periodic messages failed", "error", err, "next_try", errorPause)
			pause = errorPause
		}
		if retry.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// clockFault is the time by which the last occurrence of an entry, or the last tick, is after now only if the clock of the database was
// ahead. After smaller changes, entries wait until the clock shows the earlier time again.
const clockFault = 10 * time.Minute

// tickAll inserts the due occurrences of all entries. It returns the first error; an entry that cannot be inserted does not block others.
func (b *Box) tickAll(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.entries) == 0 {
		return nil
	}
	var now int64
	if err := b.db.Row(ctx, `SELECT `+b.clock()).Scan(&now); err != nil {
		return err
	}
	if now < b.ticked-clockFault.Milliseconds() {
		for _, e := range b.entries {
			e.next, e.upto = 0, -1 // the row can continue from now
		}
	}
	b.ticked = now
	var failed error
	for _, e := range b.entries {
		for more := true; more && e.next <= now; {
			var err error
			if more, err = b.occur(ctx, e, now); err != nil {
				failed = cmp.Or(failed, fmt.Errorf("entry %q: %w", e.Name, err))
				break
			}
		}
	}
	return cmp.Or(failed, b.takeRequests(ctx, now))
}

// occur inserts one due occurrence of an entry. The process that moves the time in the row forward inserts the occurrence, in
// the same transaction.
func (b *Box) occur(ctx context.Context, e *entry, now int64) (more bool, err error) {
	if !e.started {
		if err := b.start(ctx, e, now); err != nil {
			return false, err
		}
		e.started = true
	}
	var spec string
	var upto int64
	if err := b.db.Row(ctx, `SELECT spec, upto FROM {cron} WHERE app = $1 AND name = $2`, b.cfg.App, e.Name).Scan(&spec, &upto); errors.Is(err, sql.ErrNoRows) { // Forget
		upto = now
		if e.next > 0 {
			upto = e.next - 1 // the next occurrence is not lost
		}
		_, err := b.db.Write(ctx, storeEntry, b.cfg.App, e.Name, e.Spec, upto)
		return err == nil, err
	} else if err != nil {
		return false, err
	}
	if upto > now+clockFault.Milliseconds() {
		b.cfg.Logger.Warn("outbox periodic message continues, because the clock of the database was ahead", "entry", e.Name, "last", sqlkit.TimeOf(upto))
		_, err := b.db.Write(ctx, `UPDATE {cron} SET upto = $1 WHERE app = $2 AND name = $3 AND upto = $4`, now, b.cfg.App, e.Name, upto)
		return err == nil, err
	}
	if spec != e.Spec {
		return false, b.yield(ctx, e, spec, upto, now)
	}
	e.silent = false
	at := e.occurrence(upto, now)
	if at > now {
		e.next = at
		return false, nil
	}
	err = b.transaction(ctx, func(tx *sqlkit.Tx) error {
		changed, err := tx.Exec(`UPDATE {cron} SET upto = $1 WHERE app = $2 AND name = $3 AND spec = $4 AND upto < $1`, at, b.cfg.App, e.Name, e.Spec)
		if err != nil || changed == 0 {
			return err
		}
		return b.insertOccurrence(ctx, tx, e, at, time.RFC3339)
	})
	if err == nil {
		b.signal()
	}
	return true, err
}

// occurrence returns the next occurrence to insert, in ms since 1970. It is in the future if none is due.
func (e *entry) occurrence(upto, now int64) int64 {
	after := time.UnixMilli(max(upto, now-e.CatchUp.Milliseconds()-1))
	at := e.times.next(after)
	if e.Missed == MissedAll {
		return at.UnixMilli()
	}
	for at.UnixMilli() <= now {
		next := e.times.next(at)
		if next.UnixMilli() > now {
			break
		}
		at = next
	}
	return at.UnixMilli()
}

func (b *Box) insertOccurrence(ctx context.Context, tx *sqlkit.Tx, e *entry, at int64, form string) error {
	due := time.UnixMilli(at).UTC()
	m := &Message{Message: e.Message, Key: e.Key}
	m.MessageID = fmt.Sprintf("cron:%s/%s/%s", b.cfg.App, e.Name, due.Format(form))
	if m.Timestamp.IsZero() && !m.NoTimestamp {
		m.Timestamp = due
	}
	r, err := b.encode(ctx, m)
	if err != nil {
		return err
	}
	return b.insert(own{tx}, []row{r})
}

const storeEntry = `INSERT INTO {cron} (app, name, spec, upto) VALUES ($1, $2, $3, $4) ON CONFLICT (app, name) DO NOTHING`

// start stores the specification of an entry. A process stores it once, so that processes with different specifications do
// not replace them in turns during a rolling deployment.
func (b *Box) start(ctx context.Context, e *entry, now int64) error {
	return b.transaction(ctx, func(tx *sqlkit.Tx) error {
		if _, err := tx.Exec(storeEntry, b.cfg.App, e.Name, e.Spec, now); err != nil {
			return err
		}
		_, err := tx.Exec(`UPDATE {cron} SET spec = $1, upto = $2 WHERE app = $3 AND name = $4 AND spec <> $1`, e.Spec, now, b.cfg.App, e.Name)
		return err
	})
}

// abandoned is the time after which a due occurrence of another specification proves that no process inserts its occurrences.
const abandoned = time.Minute

// yield handles an entry for which another process has stored another specification. If no process inserts the occurrences of the other
// specification, it stores the specification of this process again.
func (b *Box) yield(ctx context.Context, e *entry, spec string, upto, now int64) error {
	if !e.silent {
		e.silent = true
		b.cfg.Logger.Warn("outbox periodic message replaced", "entry", e.Name, "specification", e.Spec, "stored", spec)
	}
	e.next = now + abandoned.Milliseconds()/2
	if upto != e.upto {
		e.upto, e.since = upto, now
	}
	if now < e.since+abandoned.Milliseconds() {
		return nil
	}
	if times, err := parseSchedule(spec); err == nil && times.next(time.UnixMilli(upto)).Add(abandoned).UnixMilli() > now {
		return nil
	}
	b.cfg.Logger.Warn("outbox periodic message resumed", "entry", e.Name, "specification", e.Spec, "abandoned", spec)
	e.next = now
	_, err := b.db.Write(ctx, `UPDATE {cron} SET spec = $1 WHERE app = $2 AND name = $3 AND spec = $4 AND upto = $5`, e.Spec, b.cfg.App, e.Name, spec, upto)
	return err
}
