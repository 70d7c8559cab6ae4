package failed

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// WaitingID numbers the waiting messages of an archive. A message gets another number with each attempt.
type WaitingID int64

// Waiting is a message that a worker has sent to a retry.
//
// Workers report it (reprise.Config.Announce), and nobody looks into the wait queue for it. So the list may lack messages, and may have
// some that do not wait any more: see Archive.Waiting.
type Waiting struct {
	ID        WaitingID
	Queue     string    // the work queue
	Wait      string    // the queue that it waits in; "": not known, or several, one after the other
	MessageID string    // "": the route makes no copies, and the publisher has set none
	Host      string    // of the worker
	Attempt   int       // number of the attempt that failed
	Failed    time.Time // end of that attempt
	Due       time.Time // of the next attempt, by the clock of the worker
	Error     string    // the first KiB of the attempt's error
	Group     string    // WaitingGroup.Key
}

// WaitingGroup are the waiting messages of one work queue whose errors have the same fingerprint, as those of a Group.
type WaitingGroup struct {
	Key     string  // for WaitingFilter.Group
	Failed  GroupID // the Group of such failures; 0: none was ever in the archive
	Queue   string
	Text    string // the fingerprint's text
	Example string // the error of one of them
	Counts  WaitingCounts
}

// WaitingQueue are the waiting messages of a work queue.
type WaitingQueue struct {
	Queue  string
	Counts WaitingCounts
}

// WaitingCounts are numbers of waiting messages.
type WaitingCounts struct {
	Messages int64     // all
	Due      int64     // of them: those whose time has come, and of which nothing was heard since
	Attempts int       // the largest Waiting.Attempt
	Next     time.Time // the earliest time that has not come; zero: none
}

// WaitingFilter selects waiting messages: those for which all that is set holds.
type WaitingFilter struct {
	IDs     []WaitingID
	Queue   string
	Group   string    // WaitingGroup.Key, or its first characters
	Attempt int       // at least so many
	Before  time.Time // due before
	Error   string    // a part of Waiting.Error, exactly as it is written there
}

// maxWaitingIDs is the largest number of WaitingFilter.IDs.
const maxWaitingIDs = 10_000

// Validate reports conditions that cannot be.
func (f WaitingFilter) Validate() error {
	switch {
	case f.Attempt < 0:
		return fmt.Errorf("%w: WaitingFilter.Attempt must not be negative: got %d", ErrInvalid, f.Attempt)
	case len(f.IDs) > maxWaitingIDs:
		return fmt.Errorf("%w: WaitingFilter.IDs has %d numbers: at most %d are possible", ErrInvalid, len(f.IDs), maxWaitingIDs)
	case strings.Trim(f.Group, "0123456789abcdef") != "" || len(f.Group) > 2*groupDigestSize:
		return fmt.Errorf("%w: WaitingFilter.Group %q: use the key of a group", ErrInvalid, f.Group)
	}
	return nil
}

const groupDigestSize = 16

// isZero reports whether the filter selects all waiting messages.
func (f WaitingFilter) isZero() bool {
	return f.IDs == nil && f.Queue == "" && f.Group == "" && f.Attempt == 0 && f.Before.IsZero() && f.Error == ""
}

// waitingWhere is the condition of a filter on {waiting_message} AS w.
func (a *Archive) waitingWhere(f WaitingFilter) (where string, args []any, err error) {
	if err := f.Validate(); err != nil {
		return "", nil, err
	}
	s := selection{d: a.d}
	all := []string{"w.ends > " + s.arg(sqlkit.Millis(a.now()))}
	if f.IDs != nil {
		all = append(all, a.d.in("w.id", s.arg(list(a.d, f.IDs))))
	}
	if f.Queue != "" {
		all = append(all, "w.queue = "+s.arg([]byte(f.Queue)))
	}
	if f.Group != "" {
		bound := func(fill string) []byte {
			b, _ := hex.DecodeString(f.Group + strings.Repeat(fill, 2*groupDigestSize-len(f.Group))) // it is valid
			return b
		}
		all = append(all, "w.grp >= "+s.arg(bound("0")), "w.grp <= "+s.arg(bound("f")))
	}
	if f.Attempt > 0 {
		all = append(all, "w.attempt >= "+s.arg(f.Attempt))
	}
	if !f.Before.IsZero() {
		all = append(all, "w.due < "+s.arg(sqlkit.Millis(f.Before)))
	}
	if f.Error != "" {
		all = append(all, a.d.part("w.error", s.arg([]byte(f.Error))))
	}
	return strings.Join(all, " AND "), s.args, nil
}

// Waiting lists the messages that announced workers have sent to a retry, the next due first. It is made of the workers' reports,
// which a Rescheduler takes into the archive, and so it is for display:
//
//   - It lacks messages whose report was lost, those that were retried while no Rescheduler ran and the queue of reports was full,
//     those of workers that do not announce, delays of less than a second, and what exceeds MaxWaiting.
//   - A message is listed until its next attempt is reported, or it arrives in the failed list, or an act removes it, else until it is
//     overdue by a minute and a quarter of its delay: a success is not reported.
//   - Two messages of a queue with the same id are listed as one.
//   - Due is the clock of the worker.
func (a *Archive) Waiting(ctx context.Context, f WaitingFilter, p Page) (out []Waiting, next string, err error) {
	defer annotate(&err, "listing waiting messages")
	size, err := p.size()
	if err != nil {
		return nil, "", err
	}
	where, args, err := a.waitingWhere(f)
	if err != nil {
		return nil, "", err
	}
	if p.After != "" {
		var due, id int64
		if err := readCursor(p.After, ofWaiting, &due, &id); err != nil {
			return nil, "", err
		}
		where += fmt.Sprintf(" AND (w.due, w.id) > (%d, %d)", due, id)
	}
	out, err = a.waiting(ctx, where, args, size+1)
	if err == nil && len(out) > size {
		last := out[size-1]
		out, next = out[:size], cursorOf(ofWaiting, sqlkit.Millis(last.Due), int64(last.ID))
	}
	return out, next, err
}

func (a *Archive) waiting(ctx context.Context, where string, args []any, limit int) (out []Waiting, err error) {
	rows := a.db.Rows(ctx, fmt.Sprintf(`SELECT w.id, w.queue, w.wait, w.message_id, w.host, w.attempt, w.failed, w.due, w.error, w.grp
		FROM {waiting_message} w WHERE %s ORDER BY w.due, w.id LIMIT %d`, where, limit), args...)
	var w Waiting
	var group []byte
	for err := range rows.Scan(&w.ID, &w.Queue, &w.Wait, &w.MessageID, &w.Host, &w.Attempt, sqlkit.Time(&w.Failed), sqlkit.Time(&w.Due), &w.Error, &group) {
		if err != nil {
			return nil, err
		}
		w.Group = hex.EncodeToString(group)
		out = append(out, w)
	}
	return out, nil
}

// CountWaiting returns the number of waiting messages that are listed.
func (a *Archive) CountWaiting(ctx context.Context, f WaitingFilter) (c WaitingCounts, err error) {
	defer annotate(&err, "counting waiting messages")
	where, args, err := a.waitingWhere(f)
	if err != nil {
		return c, err
	}
	err = a.db.Row(ctx, `SELECT `+a.waitingCounts()+` FROM {waiting_message} w WHERE `+where, args...).
		Scan(&c.Messages, &c.Due, &c.Attempts, sqlkit.Time(&c.Next))
	return c, err
}

func (a *Archive) waitingCounts() string {
	now := sqlkit.Millis(a.now())
	return fmt.Sprintf(`count(*), COALESCE(sum(CASE WHEN w.due <= %d THEN 1 ELSE 0 END), 0), COALESCE(max(w.attempt), 0), COALESCE(min(CASE WHEN w.due > %[1]d THEN w.due END), 0)`, now)
}

// maxWaitingGroups bounds the groups of WaitingGroups.
const maxWaitingGroups = 500

// WaitingGroups returns the groups of waiting messages, those with the most first, and at most 500.
func (a *Archive) WaitingGroups(ctx context.Context, f WaitingFilter) (out []WaitingGroup, err error) {
	defer annotate(&err, "grouping waiting messages")
	where, args, err := a.waitingWhere(f)
	if err != nil {
		return nil, err
	}
	rows := a.db.Rows(ctx, fmt.Sprintf(`SELECT w.grp, w.queue,
			(SELECT x.text FROM {waiting_message} x WHERE x.grp = w.grp ORDER BY x.due, x.id LIMIT 1),
			(SELECT x.error FROM {waiting_message} x WHERE x.grp = w.grp ORDER BY x.due, x.id LIMIT 1), %s, COALESCE((SELECT g.id FROM {group} g WHERE g.digest = w.grp), 0)
		FROM {waiting_message} w WHERE %s GROUP BY w.grp, w.queue ORDER BY count(*) DESC, w.grp LIMIT %d`, a.waitingCounts(), where, maxWaitingGroups), args...)
	var g WaitingGroup
	var key []byte
	for err := range rows.Scan(&key, &g.Queue, &g.Text, &g.Example, &g.Counts.Messages, &g.Counts.Due, &g.Counts.Attempts, sqlkit.Time(&g.Counts.Next), &g.Failed) {
		if err != nil {
			return nil, err
		}
		g.Key = hex.EncodeToString(key)
		out = append(out, g)
	}
	return out, nil
}

// WaitingQueues returns the work queues with waiting messages, by name, and at most 500.
func (a *Archive) WaitingQueues(ctx context.Context, f WaitingFilter) (out []WaitingQueue, err error) {
	defer annotate(&err, "counting waiting messages by queue")
	where, args, err := a.waitingWhere(f)
	if err != nil {
		return nil, err
	}
	rows := a.db.Rows(ctx, fmt.Sprintf(`SELECT w.queue, %s FROM {waiting_message} w WHERE %s GROUP BY w.queue ORDER BY w.queue LIMIT %d`,
		a.waitingCounts(), where, maxWaitingGroups), args...)
	var q WaitingQueue
	for err := range rows.Scan(&q.Queue, &q.Counts.Messages, &q.Counts.Due, &q.Counts.Attempts, sqlkit.Time(&q.Counts.Next)) {
		if err != nil {
			return nil, err
		}
		out = append(out, q)
	}
	return out, nil
}

// WaitingReports is what is known of the reports that the list of waiting messages is made of.
type WaitingReports struct {
	Missing int64     // retries that were left out within a day: there were more than MaxWaiting, or the workers could not report them
	Last    time.Time // when the last one was left out
	Queues  []string  // work queues whose workers have reported a retry within a week, by name
}

// Reports reports whether the workers of a work queue have reported a retry within a week.
func (r WaitingReports) Reports(queue string) bool {
	_, found := slices.BinarySearch(r.Queues, queue)
	return found
}

// WaitingReports returns what is known of the workers' reports.
func (a *Archive) WaitingReports(ctx context.Context) (r WaitingReports, err error) {
	defer annotate(&err, "reading who reports retries")
	now := a.now()
	if err := a.db.Row(ctx, `SELECT n, at FROM {waiting_counter} WHERE name = 'missing'`).Scan(&r.Missing, sqlkit.Time(&r.Last)); err != nil {
		return r, err
	}
	if r.Last.Before(now.Add(-missingFor)) {
		r.Missing = 0
	}
	var queue string
	for err := range a.db.Rows(ctx, `SELECT name FROM {waiting_queue} WHERE heard > $1`, sqlkit.Millis(now.Add(-reportingFor))).Scan(&queue) {
		if err != nil {
			return r, err
		}
		r.Queues = append(r.Queues, queue)
	}
	slices.Sort(r.Queues)
	return r, nil
}
