package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/sqlkit"
	"github.com/reprisemq/reprise/topology"
)

// The tables of waiting messages have a separate version, because they are only for display, and no other data
// depends on them.

const (
	// MaxWaiting is the maximum number of waiting messages in an archive. Beyond this limit the archive omits messages
	// and only counts them: see WaitingReports.Missing.
	MaxWaiting = 100_000

	// waitingGrace is the time for which a message stays listed after it is due. A quarter of its delay is added,
	// because a bucket of topology.Buckets may be late by that amount.
	waitingGrace = time.Minute

	// reportingFor is the time for which a queue counts as reporting after its last report.
	reportingFor = 7 * 24 * time.Hour

	// maxReporting is the maximum number of reporting queues in the database. It is limited because anyone who can
	// publish a report chooses the names.
	maxReporting = 10_000
)

var waitingTables = sqlkit.Tables{
	Version: 1,
	Lock:    "7365417205",
	Statements: []string{
		`CREATE TABLE IF NOT EXISTS {message} (
			id         BIGINT PRIMARY KEY,
			digest     BYTES NOT NULL UNIQUE, -- of queue and message id
			queue      BYTES NOT NULL,
			grp        BYTES NOT NULL, -- the digest of the {group} that it would be in
			text       BYTES NOT NULL, -- fingerprint
			wait       BYTES NOT NULL,
			message_id BYTES NOT NULL,
			host       BYTES NOT NULL,
			attempt    BIGINT NOT NULL,
			failed     BIGINT NOT NULL,
			due        BIGINT NOT NULL,
			ends       BIGINT NOT NULL, -- when it is not listed any more
			error      BYTES NOT NULL
		)`,
		`CREATE INDEX IF NOT EXISTS {message_due} ON {message} (due, id)`,
		`CREATE INDEX IF NOT EXISTS {message_ends} ON {message} (ends)`,
		`CREATE INDEX IF NOT EXISTS {message_group} ON {message} (grp, due, id)`,
		`CREATE INDEX IF NOT EXISTS {message_queue} ON {message} (queue, due, id)`,
		`CREATE TABLE IF NOT EXISTS {queue} (name BYTES PRIMARY KEY, heard BIGINT NOT NULL)`,
		`CREATE TABLE IF NOT EXISTS {counter} (name VARCHAR(20) PRIMARY KEY, n BIGINT NOT NULL, at BIGINT NOT NULL)`,
		`INSERT INTO {counter} (name, n, at) VALUES ('id', 0, 0), ('missing', 0, 0) ON CONFLICT (name) DO NOTHING`,
	},
}

// openWaiting creates the tables of waiting messages, unless they exist.
func (a *Archive) openWaiting(ctx context.Context, db *sql.DB) error {
	return sqlkit.New(db, a.cfg.Dialect, a.cfg.Prefix+"waiting_").Create(ctx, waitingTables)
}

// waitingDigest returns a hash that is equal for all reports of a message. Messages without an ID get a random value,
// because they cannot be distinguished.
func waitingDigest(queue, messageID string) []byte {
	if messageID == "" {
		b := make([]byte, 16)
		_, _ = rand.Read(b) // cannot fail
		return b
	}
	h := sha256.New()
	h.Write(binary.AppendUvarint(nil, uint64(len(queue))))
	h.Write([]byte(queue + messageID))
	return h.Sum(nil)[:16]
}

// groupDigest returns the value of {group}.digest.
func groupDigest(queue, text string) []byte {
	sum := groupSum(queue, text)
	return sum[:groupDigestSize]
}

var waitingColumns = []string{"id", "digest", "queue", "grp", "text", "wait", "message_id", "host", "attempt", "failed", "due", "ends", "error"}

// replaceWaiting is the clause that replaces the row of a message with its next attempt, which has a new ID. Therefore
// an act on a displayed attempt does not affect the next attempt.
var replaceWaiting = func() string {
	var set []string
	for _, c := range waitingColumns {
		if c != "digest" {
			set = append(set, c+" = excluded."+c)
		}
	}
	return ` ON CONFLICT (digest) DO UPDATE SET ` + strings.Join(set, ", ") + ` WHERE {waiting_message}.failed <= excluded.failed`
}()

// waitingRow is a retry that is not stored yet.
type waitingRow struct {
	queue, host string
	protocol.Retry
	digest []byte
	ends   time.Time
}

// waitingRows returns the rows to store for some reports: the latest attempt of each message. It omits attempts that
// are no longer listed, and attempts with an implausible number or due time.
func waitingRows(reports []protocol.RetryReport, now time.Time) (rows []*waitingRow) {
	newest := map[string]*waitingRow{}
	for _, r := range reports {
		for _, x := range r.Retries {
			row := &waitingRow{r.Queue, r.Host, x, waitingDigest(r.Queue, x.MessageID), x.Due.Add(max(0, x.Due.Sub(x.Failed))/4 + waitingGrace)}
			if !row.ends.After(now) || x.Due.After(now.Add(topology.MaxSchedule)) || x.Attempt > math.MaxInt32 {
				continue
			}
			other := newest[string(row.digest)]
			switch {
			case other == nil:
				newest[string(row.digest)] = row
				rows = append(rows, row)
			case !x.Failed.Before(other.Failed):
				*other = *row
			}
		}
	}
	return rows
}

// NoteRetries stores the reports of workers.
func (a *Archive) NoteRetries(ctx context.Context, reports []protocol.RetryReport) (err error) {
	defer failed.Annotate(&err, "cannot record %d reports of retries", len(reports))
	now := a.Now()
	rows := waitingRows(reports, now)
	heard := map[string]bool{}
	var missing int64
	for _, r := range reports {
		heard[r.Queue] = true
		missing += r.Missing
	}
	queues := make([]string, 0, len(heard))
	for queue := range heard {
		queues = append(queues, queue)
	}
	slices.Sort(queues)
	return a.write(ctx, func(tx *tx) error {
		var there int64
		if err := tx.Row(`SELECT count(*) FROM {waiting_message} WHERE ends > $1`, sqlkit.Millis(now)).Scan(&there); err != nil {
			return err
		}
		if most := max(0, MaxWaiting-there); int64(len(rows)) > most {
			missing += int64(len(rows)) - most
			rows = rows[:most]
		}
		if err := tx.writeWaiting(rows); err != nil {
			return err
		}
		if err := tx.Row(`SELECT count(*) FROM {waiting_queue}`).Scan(&there); err != nil {
			return err
		}
		for _, queue := range queues[:min(len(queues), max(0, maxReporting-int(there)))] {
			_, err := tx.Exec(`INSERT INTO {waiting_queue} (name, heard) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET heard = excluded.heard`,
				[]byte(queue), sqlkit.Millis(now))
			if err != nil {
				return err
			}
		}
		if missing > 0 {
			_, err := tx.Exec(`UPDATE {waiting_counter} SET n = CASE WHEN at > $2 THEN n + $1 ELSE $1 END, at = $3 WHERE name = 'missing'`,
				missing, sqlkit.Millis(now.Add(-missingFor)), sqlkit.Millis(now))
			return err
		}
		return nil
	})
}

// missingFor is the time after the last omitted report for which WaitingReports.Missing is valid.
const missingFor = 24 * time.Hour

func (t *tx) writeWaiting(rows []*waitingRow) error {
	const most = 200
	if len(rows) == 0 {
		return nil
	}
	var first int64
	err := t.Row(`UPDATE {waiting_counter} SET n = n + $1 WHERE name = 'id' RETURNING n`, len(rows)).Scan(&first)
	if err != nil {
		return err
	}
	first -= int64(len(rows)) - 1
	args := make([][]any, len(rows))
	for i, r := range rows {
		digest, text, err := t.mergedInto(r.queue, t.cfg.groupText(r.queue, r.Error))
		if err != nil {
			return err
		}
		args[i] = []any{
			first + int64(i), r.digest, []byte(r.queue), digest, []byte(text), []byte(r.Wait), []byte(r.MessageID), []byte(r.host),
			r.Attempt, sqlkit.Millis(r.Failed), sqlkit.Millis(r.Due), sqlkit.Millis(r.ends), []byte(failed.Cut(r.Error, maxErrorShown)),
		}
	}
	if t.cfg.Dialect == SQLite {
		return t.ExecEach(t.insertion("{waiting_message}", waitingColumns, "", 1)+replaceWaiting, args)
	}
	for chunk := range slices.Chunk(args, most) {
		if _, err := t.Exec(t.insertion("{waiting_message}", waitingColumns, "", len(chunk))+replaceWaiting, slices.Concat(chunk...)...); err != nil {
			return err
		}
	}
	return nil
}

// forgetWaiting removes messages that were archived as failed.
func (t *tx) forgetWaiting(added []*Arrival) error {
	var rows [][]any
	for _, e := range added {
		if id := e.m.Properties.MessageID; id != "" {
			rows = append(rows, []any{waitingDigest(e.m.Queue, id)})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if t.cfg.Dialect == SQLite {
		return t.ExecEach(`DELETE FROM {waiting_message} WHERE digest = $1`, rows)
	}
	marks := make([]string, len(rows))
	for i := range marks {
		marks[i] = fmt.Sprintf("$%d", i+1)
	}
	_, err := t.Exec(`DELETE FROM {waiting_message} WHERE digest IN (`+strings.Join(marks, ", ")+`)`, slices.Concat(rows...)...)
	return err
}

// ForgetOverdue removes messages that are no longer listed. If there are any, it also removes queues without a report
// within reportingFor.
func (a *Archive) ForgetOverdue(ctx context.Context) (err error) {
	defer failed.Annotate(&err, "cannot remove overdue retries")
	now := a.Now()
	var n int64
	const over = `SELECT count(*) FROM {waiting_message} WHERE ends <= $1`
	if err := a.db.Row(ctx, over, sqlkit.Millis(now)).Scan(&n); err != nil || n == 0 {
		return err // without this check, each call would write to the disk
	}
	return a.write(ctx, func(tx *tx) error {
		_, err := tx.Exec(`DELETE FROM {waiting_message} WHERE ends <= $1`, sqlkit.Millis(now))
		_, err2 := tx.Exec(`DELETE FROM {waiting_queue} WHERE heard < $1`, sqlkit.Millis(now.Add(-reportingFor)))
		return errors.Join(err, err2)
	})
}

// RemoveWaiting removes messages that no longer wait. It does not remove later attempts of these messages.
func (a *Archive) RemoveWaiting(ctx context.Context, rows []Waiting) (err error) {
	defer failed.Annotate(&err, "cannot remove %d retries", len(rows))
	if len(rows) == 0 {
		return nil
	}
	return a.write(ctx, func(tx *tx) error {
		_, err := tx.Exec(`DELETE FROM {waiting_message} WHERE `+a.d.in("id", "$1"), list(a.d, waitingIDs(rows)))
		return err
	})
}

// PostponeWaiting records the new wait queue and due time of postponed messages.
func (a *Archive) PostponeWaiting(ctx context.Context, rows []Waiting, wait string, due time.Time, delay time.Duration) (err error) {
	defer failed.Annotate(&err, "cannot record %d postponed retries", len(rows))
	if len(rows) == 0 {
		return nil
	}
	return a.write(ctx, func(tx *tx) error {
		_, err := tx.Exec(`UPDATE {waiting_message} SET wait = $2, due = $3, ends = $4 WHERE `+a.d.in("id", "$1"), list(a.d, waitingIDs(rows)),
			[]byte(wait), sqlkit.Millis(due), sqlkit.Millis(due.Add(delay/4+waitingGrace)))
		return err
	})
}

func waitingIDs(rows []Waiting) []WaitingID {
	ids := make([]WaitingID, len(rows))
	for i, w := range rows {
		ids[i] = w.ID
	}
	return ids
}

// OverduePlaces returns the wait queues of listed messages that should have returned the given time ago.
func (a *Archive) OverduePlaces(ctx context.Context, ago time.Duration) (map[WaitingPlace]bool, error) {
	places := map[WaitingPlace]bool{}
	var p WaitingPlace
	rows := a.db.Rows(ctx, `SELECT DISTINCT queue, wait FROM {waiting_message} WHERE due <= $1`, sqlkit.Millis(a.Now().Add(-ago)))
	for err := range rows.Scan(sqlkit.Text(&p.Queue), sqlkit.Text(&p.Wait)) {
		if err != nil {
			return nil, err
		}
		places[p] = true
	}
	return places, nil
}

// WaitingPlace is a work queue and the wait queue of its messages.
type WaitingPlace struct{ Queue, Wait string }
