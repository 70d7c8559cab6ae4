package store

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Group describes the failures in one work queue that share a fingerprint.
type Group struct {
	ID      failed.GroupID `json:"id"`
	Queue   params.Text    `json:"queue"`
	Text    string         `json:"text"`    // the fingerprint of the errors; "" if the error is unknown
	Example string         `json:"example"` // the error of the latest arrival
	Counts  Counts         `json:"counts"`
	First   time.Time      `json:"first"`          // time of the first failure of any message that was ever in the group
	Last    time.Time      `json:"last"`           // time of the latest failure of any message that was ever in the group
	Muted   time.Time      `json:"muted,omitzero"` // no notifications until this time, or 9999-12-31T00:00:00Z: until the group is unmuted; zero: not muted

	Merged    bool      `json:"merged,omitzero"` // an operator merged or renamed the group, and can undo it
	Regrouped time.Time `json:"-"`               // when Merge, Unmerge or Regroup last moved messages into the group; zero: never

	// Hours and Days count the failures per hour and per day, regardless of the current states of the messages. The
	// buckets are in ascending order, without gaps, and end with the current bucket.
	Hours []Bucket `json:"hours"` // 24 buckets
	Days  []Bucket `json:"days"`  // 30 buckets, in UTC
}

// Counts contains the number of messages in each state.
type Counts struct {
	Failed    int64 `json:"failed"`
	Replaying int64 `json:"replaying"`
	Replayed  int64 `json:"replayed"`
	Discarded int64 `json:"discarded"`
}

// Total returns the number of messages in all states.
func (c Counts) Total() int64 { return c.Failed + c.Replaying + c.Replayed + c.Discarded }

// Words returns the numbers that are not zero, for example "10 failed, 3 replayed".
func (c Counts) Words() string {
	var parts []string
	for i, n := range c.byCode() {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, counted[i]))
		}
	}
	return strings.Join(parts, ", ")
}

// Bucket is the number of failures from Start until the Start of the next bucket.
type Bucket struct {
	Start time.Time `json:"start"`
	N     int64     `json:"n"`
}

// GroupFilter selects the groups that meet all conditions that are set.
type GroupFilter struct {
	Queue params.Text
	State failed.State // the group has at least one message in this state
	Text  string       // a substring of Group.Text; case-sensitive

	// MostFailed sorts groups by the number of messages in state failed, in descending order.
	// Default: by the latest failure, newest first.
	MostFailed bool
}

// QueueSummary contains the statistics of a work queue.
type QueueSummary struct {
	Queue  params.Text `json:"queue"`
	Counts Counts      `json:"counts"`
	Purged int64       `json:"purged"`          // number of messages of this queue that the retention has ever removed
	Oldest time.Time   `json:"oldest,omitzero"` // last failure of the oldest message in state failed; zero: none
	Newest time.Time   `json:"newest,omitzero"` // last failure of the newest message in state failed; zero: none
}

// Groups returns a page of groups. A page may be short or empty although more groups follow. Only an empty cursor marks
// the last page. A group that changes between two calls may move in the list, and may then be on both pages or on
// neither.
func (a *Archive) Groups(ctx context.Context, f GroupFilter, p Page) (groups []Group, next string, err error) {
	defer failed.Annotate(&err, "cannot list groups")
	size, err := p.size()
	if err != nil {
		return nil, "", err
	}
	order, kind := "latest", ofGroupsByLast
	if f.MostFailed {
		order, kind = "failed", ofGroupsByFailed
	}
	at := [2]int64{math.MaxInt64, math.MaxInt64}
	if p.After != "" {
		if err = readCursor(p.After, kind, &at[0], &at[1]); err != nil {
			return nil, "", err
		}
	}
	query := selection{d: a.d}
	where, ok := f.where(&query)
	if where == "" || ok == "" {
		return nil, "", failed.Invalid("state %s not found (use failed, replaying, replayed or discarded)", brief.Quoted(string(f.State)))
	}
	type place struct {
		id failed.GroupID
		at int64
	}
	var found []place
	end := false
	limit := 4 * (size + 1)
	for looked := 0; !end && len(found) <= size && looked < maxLooked; limit = min(4*limit, maxLooked) {
		n := 0
		rows := a.db.Rows(ctx, fmt.Sprintf(`SELECT g.%[1]s, g.id, CASE WHEN %[2]s THEN 1 ELSE 0 END FROM {group} g
				WHERE %[3]s AND (g.%[1]s, g.id) < (%[4]d, %[5]d) ORDER BY g.%[1]s DESC, g.id DESC LIMIT %[6]d`,
			order, ok, where, at[0], at[1], limit), query.args...)
		var ok bool
		for err := range rows.Scan(&at[0], &at[1], &ok) {
			if err != nil {
				return nil, "", err
			}
			n++
			if ok {
				found = append(found, place{failed.GroupID(at[1]), at[0]})
			}
			if len(found) > size {
				break
			}
		}
		looked += n
		end = n < limit && len(found) <= size
	}
	if len(found) > size {
		found = found[:size]
		at = [2]int64{found[size-1].at, int64(found[size-1].id)}
	}
	ids := make([]failed.GroupID, len(found))
	for i, f := range found {
		ids[i] = f.id
	}
	groups, err = a.groupsOf(ctx, ids)
	if err != nil || end {
		return groups, "", err
	}
	return groups, cursorOf(kind, at[0], at[1]), nil
}

// Group returns a group. It returns ErrNotFound if the group does not exist.
func (a *Archive) Group(ctx context.Context, id failed.GroupID) (g *Group, err error) {
	defer failed.Annotate(&err, "cannot read group %d", id)
	groups, err := a.groupsOf(ctx, []failed.GroupID{id})
	if err != nil {
		return nil, err
	}
	if len(groups) == 0 {
		return nil, &failed.NotFoundError{What: "group", ID: int64(id)}
	}
	return &groups[0], nil
}

// where returns the conditions that an index supports, and the conditions that must be checked for each group.
func (f GroupFilter) where(s *selection) (indexed, others string) {
	conditions, look := []string{"1 = 1"}, []string{"1 = 1"}
	if f.Queue != "" {
		conditions = append(conditions, `g.queue = (SELECT id FROM {queue} WHERE name = `+s.arg([]byte(f.Queue))+`)`)
	}
	if f.State != "" {
		code, ok := codes[f.State]
		if !ok {
			return "", ""
		}
		condition := `g.` + counted[code] + ` > 0`
		if f.State == failed.Failed {
			conditions = append(conditions, condition)
		} else {
			look = append(look, condition)
		}
	}
	if f.Text != "" {
		look = append(look, s.d.part("g.text", s.arg([]byte(f.Text))))
	}
	return strings.Join(conditions, " AND "), strings.Join(look, " AND ")
}

// groupsOf returns groups with their Hours and Days, in the order of ids.
func (a *Archive) groupsOf(ctx context.Context, ids []failed.GroupID) ([]Group, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	place := make(map[failed.GroupID]int)
	for i, id := range ids {
		place[id] = i
	}
	groups := make([]Group, len(ids))
	rows := a.db.Rows(ctx, `SELECT g.id, q.name, g.text, g.example, g.failed, g.replaying, g.replayed, g.discarded, g.first, g.latest, g.muted, g.regrouped,
			CASE WHEN EXISTS (SELECT 1 FROM {merged} x WHERE x.target = g.digest) THEN 1 ELSE 0 END
		FROM {group} g JOIN {queue} q ON q.id = g.queue WHERE `+a.d.in("g.id", "$1"), list(a.d, ids))
	var g Group
	for err := range rows.Scan(&g.ID, &g.Queue, &g.Text, &g.Example, &g.Counts.Failed, &g.Counts.Replaying, &g.Counts.Replayed,
		&g.Counts.Discarded, sqlkit.Time(&g.First), sqlkit.Time(&g.Last), sqlkit.Time(&g.Muted), sqlkit.Time(&g.Regrouped), &g.Merged) {
		if err != nil {
			return nil, err
		}
		groups[place[g.ID]] = g
	}
	if err := a.trends(ctx, groups, place); err != nil {
		return nil, err
	}
	// A purge may have removed a group since it was found.
	out := groups[:0]
	for _, g := range groups {
		if g.ID != 0 {
			out = append(out, g)
		}
	}
	return out, nil
}

// Lengths of Group.Hours and Group.Days.
const (
	trendHours = 24
	trendDays  = 30
)

func (a *Archive) trends(ctx context.Context, groups []Group, place map[failed.GroupID]int) error {
	now := a.Now().Unix()
	hours, days := now-now%hour-(trendHours-1)*hour, now-now%day-(trendDays-1)*day
	var ids []failed.GroupID
	for i := range groups {
		groups[i].Hours, groups[i].Days = buckets(hours, hour, trendHours), buckets(days, day, trendDays)
		if groups[i].ID != 0 {
			ids = append(ids, groups[i].ID)
		}
	}
	since := func(span, start int64) string {
		return fmt.Sprintf(`SELECT grp, span, start, n FROM {trend} WHERE %s AND span = %d AND start >= %d`, a.d.in("grp", "$1"), span, start)
	}
	rows := a.db.Rows(ctx, since(hour, hours)+` UNION ALL `+since(day, days), list(a.d, ids))
	var id failed.GroupID
	var span, start, n int64
	for err := range rows.Scan(&id, &span, &start, &n) {
		if err != nil {
			return err
		}
		list, from := groups[place[id]].Hours, hours
		if span == day {
			list, from = groups[place[id]].Days, days
		}
		if i := (start - from) / span; i < int64(len(list)) { // the clock of another process may be ahead
			list[i].N = n
		}
	}
	return nil
}

func buckets(start, span int64, n int) []Bucket {
	out := make([]Bucket, n)
	for i := range out {
		out[i].Start = time.Unix(start+int64(i)*span, 0).UTC()
	}
	return out
}

// Queues returns all work queues that ever had a message in the archive, sorted by name.
func (a *Archive) Queues(ctx context.Context) (out []QueueSummary, err error) {
	defer failed.Annotate(&err, "cannot list queues")
	where, order := a.d.along([]equal{{"m.state", "0"}, {"m.queue", "q.id"}}, 0, fromTheTop)
	end := func(direction string) string {
		// The subquery selects m.pos, which the index contains. If it selected another column, SQLite would choose
		// another index.
		return fmt.Sprintf(`COALESCE((SELECT e.last_failed FROM {message} e WHERE e.pos = (SELECT m.pos FROM {message} m WHERE %s ORDER BY %s%s LIMIT 1)), 0)`,
			where, strings.Join(order, direction+", "), direction)
	}
	rows := a.db.Rows(ctx, `SELECT q.name, q.failed, q.replaying, q.replayed, q.discarded, q.purged, `+end("")+`, `+end(" DESC")+`
		FROM {queue} q ORDER BY q.name`)
	var s QueueSummary
	for err := range rows.Scan(&s.Queue, &s.Counts.Failed, &s.Counts.Replaying, &s.Counts.Replayed, &s.Counts.Discarded, &s.Purged,
		sqlkit.Time(&s.Oldest), sqlkit.Time(&s.Newest)) {
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// Failure is the summary of an archived message.
type Failure struct {
	ID    failed.ID
	Queue string    // the work queue
	Time  time.Time // the time of the last failure
}

// Failures returns at most n messages with an ID greater than after, in ascending order of IDs, which is the order of
// arrival.
func (a *Archive) Failures(ctx context.Context, after failed.ID, n int) (all []Failure, err error) {
	defer failed.Annotate(&err, "cannot list failures")
	var x Failure
	for err := range a.db.Rows(ctx, `SELECT m.id, q.name, m.last_failed FROM {message} m JOIN {queue} q ON q.id = m.queue WHERE m.id > $1 ORDER BY m.id LIMIT $2`,
		int64(after), n).Scan(&x.ID, &x.Queue, sqlkit.Time(&x.Time)) {
		if err != nil {
			return nil, err
		}
		all = append(all, x)
	}
	return all, nil
}
