package store

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// WaitingID is the ID of a waiting message in an archive. The ID changes with each attempt of the message.
type WaitingID int64

// Waiting is a message that waits for a retry.
//
// Workers report such messages (reprise.Config.Announce); the archive does not read the wait queues. Therefore the
// list may lack messages, and may contain messages that no longer wait: see Archive.Waiting.
type Waiting struct {
	ID        WaitingID   `json:"id"`
	Queue     params.Text `json:"queue"`                // the work queue
	Wait      params.Text `json:"wait,omitempty"`       // The wait queue. "" if it is unknown, or if the message passes through several queues.
	MessageID params.Text `json:"message_id,omitempty"` // "" if the route does not copy the message and the publisher did not set an ID.
	Host      params.Text `json:"host,omitempty"`       // the host of the worker
	Attempt   int         `json:"attempt"`              // number of the failed attempt
	Failed    time.Time   `json:"failed"`               // time at which the attempt failed
	Due       time.Time   `json:"due"`                  // time of the next attempt, by the clock of the worker
	Error     params.Text `json:"error"`                // the first KiB of the error
	Group     string      `json:"group"`                // the key of its group
}

// WaitingGroup contains the waiting messages of a work queue whose errors have the same fingerprint. It corresponds
// to a Group.
type WaitingGroup struct {
	Key     string         `json:"group"`                  // for WaitingFilter.Group
	Failed  failed.GroupID `json:"failed_group,omitempty"` // the Group of these failures; 0: the archive does not contain such a group
	Queue   params.Text    `json:"queue"`
	Text    string         `json:"text"`    // the fingerprint
	Example params.Text    `json:"example"` // the error of one message
	Counts  WaitingCounts  `json:"counts"`
}

// WaitingQueue counts the waiting messages of a work queue.
type WaitingQueue struct {
	Queue  params.Text   `json:"queue"`
	Counts WaitingCounts `json:"counts"`
}

// WaitingCounts summarizes waiting messages.
type WaitingCounts struct {
	Messages int64     `json:"messages"`      // all messages
	Due      int64     `json:"due"`           // messages that are due and whose next attempt was not reported yet
	Attempts int       `json:"attempts"`      // the largest number of attempts
	Next     time.Time `json:"next,omitzero"` // the earliest due time in the future; zero: none
}

// WaitingFilter selects the waiting messages that match all fields that are set.
type WaitingFilter struct {
	IDs     []WaitingID `json:"ids,omitzero"`
	Queue   params.Text `json:"queue,omitempty"`
	Group   string      `json:"group,omitempty"`   // the key of a group, or a prefix of it
	Attempt int         `json:"attempt,omitempty"` // the inclusive minimum of the number of attempts
	Before  time.Time   `json:"before,omitzero"`   // the exclusive maximum of the due time
	Error   params.Text `json:"error,omitempty"`   // a substring of the error; case-sensitive
}

// maxWaitingIDs is the maximum number of WaitingFilter.IDs.
const maxWaitingIDs = 10_000

// Validate reports invalid conditions.
func (f WaitingFilter) Validate() error {
	switch {
	case f.Attempt < 0:
		return failed.Invalid("WaitingFilter.Attempt must not be negative: got %d", f.Attempt)
	case len(f.IDs) > maxWaitingIDs:
		return failed.Invalid("WaitingFilter.IDs must have at most %[2]d IDs: got %[1]d", len(f.IDs), maxWaitingIDs)
	case strings.Trim(f.Group, "0123456789abcdef") != "" || len(f.Group) > 2*groupDigestSize:
		return failed.Invalid("WaitingFilter.Group must be the key of a group: got %s", brief.Quoted(f.Group))
	}
	return nil
}

const groupDigestSize = 16

// IsZero reports whether the filter selects all waiting messages.
func (f WaitingFilter) IsZero() bool {
	return f.IDs == nil && f.Queue == "" && f.Group == "" && f.Attempt == 0 && f.Before.IsZero() && f.Error == ""
}

// Params returns the parameters of the filter.
func (f *WaitingFilter) Params() params.Params {
	return params.Params{
		{Name: "id", Of: &f.IDs, Help: "IDs of waiting messages, one parameter for each."},
		{Name: "queue", Of: &f.Queue, Help: "The work queue."},
		{Name: "group", Of: &f.Group, Help: "Key of a group, or its first characters."},
		{Name: "attempt", Of: &f.Attempt, Help: "Minimum number of attempts."},
		{Name: "before", Of: &f.Before, Help: "Due before this time, or within a duration such as 10m."},
		{Name: "error", Of: &f.Error, Help: "A substring of the error."},
	}
}

// WaitingNames are the parameter names of a WaitingFilter.
var WaitingNames = new(WaitingFilter).Params().Names()

// Values returns the filter as URL parameters.
func (f WaitingFilter) Values() url.Values { return f.Params().Values() }

// ParseWaitingFilter parses a filter. The parameter "before" may also be a duration from now, such as 10m.
func ParseWaitingFilter(v url.Values, now time.Time) (f WaitingFilter, err error) {
	r := params.Reader{Values: params.FromNow(v, now, "before"), Now: now}
	r.ReadAll(f.Params())
	if r.Err == nil {
		r.Err = f.Validate()
	}
	return f, r.Err
}

// waitingWhere returns the filter as a condition on {waiting_message} AS w.
func (a *Archive) waitingWhere(f WaitingFilter) (where string, args []any, err error) {
	if err := f.Validate(); err != nil {
		return "", nil, err
	}
	s := selection{d: a.d}
	all := []string{"w.ends > " + s.arg(sqlkit.Millis(a.Now()))}
	if f.IDs != nil {
		all = append(all, a.d.in("w.id", s.arg(list(a.d, f.IDs))))
	}
	if f.Queue != "" {
		all = append(all, "w.queue = "+s.arg([]byte(f.Queue)))
	}
	if f.Group != "" {
		bound := func(fill string) []byte {
			b, _ := hex.DecodeString(f.Group + strings.Repeat(fill, 2*groupDigestSize-len(f.Group))) // f.Group is valid
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

// Waiting lists the messages that wait for a retry by an announced worker, in ascending order of Due. The list is for
// display only, because it is built from the reports that a Rescheduler receives from workers:
//
//   - It lacks messages whose report was lost, and messages that were retried while no Rescheduler ran and the queue of
//     reports was full. It also lacks messages of workers that do not announce, delays of less than a second, and
//     messages beyond MaxWaiting.
//   - It contains a message until its next attempt is reported, the message is archived as failed, or an act removes
//     it. Workers do not report successes, so the list also omits a message that is overdue by one minute plus a
//     quarter of its delay.
//   - Two messages of a queue with the same message ID count as one message.
//   - Due is measured by the clock of the worker.
func (a *Archive) Waiting(ctx context.Context, f WaitingFilter, p Page) (out []Waiting, next string, err error) {
	defer failed.Annotate(&err, "cannot list waiting messages")
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

// SelectWaiting returns up to limit waiting messages that a filter selects, the next due first.
func (a *Archive) SelectWaiting(ctx context.Context, f WaitingFilter, limit int) ([]Waiting, error) {
	where, args, err := a.waitingWhere(f)
	if err != nil {
		return nil, err
	}
	return a.waiting(ctx, where, args, limit)
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

// CountWaiting counts the listed messages that f selects.
func (a *Archive) CountWaiting(ctx context.Context, f WaitingFilter) (c WaitingCounts, err error) {
	defer failed.Annotate(&err, "cannot count waiting messages")
	where, args, err := a.waitingWhere(f)
	if err != nil {
		return c, err
	}
	err = a.db.Row(ctx, `SELECT `+a.waitingCounts()+` FROM {waiting_message} w WHERE `+where, args...).
		Scan(&c.Messages, &c.Due, &c.Attempts, sqlkit.Time(&c.Next))
	return c, err
}

func (a *Archive) waitingCounts() string {
	now := sqlkit.Millis(a.Now())
	return fmt.Sprintf(`count(*), COALESCE(sum(CASE WHEN w.due <= %d THEN 1 ELSE 0 END), 0), COALESCE(max(w.attempt), 0), COALESCE(min(CASE WHEN w.due > %[1]d THEN w.due END), 0)`, now)
}

// maxWaitingGroups is the maximum number of groups that WaitingGroups returns.
const maxWaitingGroups = 500

// WaitingGroups returns the groups of waiting messages, in descending order of the number of messages. It returns at
// most 500 groups.
func (a *Archive) WaitingGroups(ctx context.Context, f WaitingFilter) (out []WaitingGroup, err error) {
	defer failed.Annotate(&err, "cannot group waiting messages")
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

// WaitingQueues returns the work queues with waiting messages, sorted by name. It returns at most 500 queues.
func (a *Archive) WaitingQueues(ctx context.Context, f WaitingFilter) (out []WaitingQueue, err error) {
	defer failed.Annotate(&err, "cannot count waiting messages by queue")
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

// WaitingReports describes the reports from which the list of waiting messages is built.
type WaitingReports struct {
	Missing int64     // retries beyond MaxWaiting, and retries that workers omitted; 0 after 24 hours without such a retry
	Last    time.Time // the time of the latest such retry
	Queues  []string  // work queues whose workers have reported a retry in the last 7 days, sorted by name
}

// Reports reports whether the workers of a work queue have reported a retry in the last 7 days.
func (r WaitingReports) Reports(queue string) bool {
	_, found := slices.BinarySearch(r.Queues, queue)
	return found
}

// WaitingReports describes the reports that the archive has received.
func (a *Archive) WaitingReports(ctx context.Context) (r WaitingReports, err error) {
	defer failed.Annotate(&err, "cannot read the workers that report retries")
	now := a.Now()
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
