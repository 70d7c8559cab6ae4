package failed

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Group are the failures of one work queue that have the same fingerprint.
type Group struct {
	ID      GroupID
	Queue   string
	Text    string // the fingerprint's text; "" where no error is known
	Example string // the error of the message that arrived last
	Counts  Counts
	First   time.Time // earliest of the first failures that the archive has ever had of it
	Last    time.Time // latest of the last failures that the archive has ever had of it
	Muted   time.Time // until then no notification mentions it: see Archive.Mute. Zero: it was not muted

	// Hours and Days say how many messages failed when, whatever has become of them since.
	// Both go from older to newer, without gaps, and end with the bucket that is under way.
	Hours []Bucket // 24
	Days  []Bucket // 30, in UTC
}

// Counts are numbers of messages by state.
type Counts struct {
	Failed    int64 `json:"failed"`
	Replaying int64 `json:"replaying"`
	Replayed  int64 `json:"replayed"`
	Discarded int64 `json:"discarded"`
}

// Total is the number of messages in whatever state.
func (c Counts) Total() int64 { return c.Failed + c.Replaying + c.Replayed + c.Discarded }

// Bucket counts the failures from Start until the next one's.
type Bucket struct {
	Start time.Time `json:"start"`
	N     int64     `json:"n"`
}

// GroupFilter selects groups: those for which all that is set holds.
type GroupFilter struct {
	Queue string
	State State  // at least one message is in it
	Text  string // a part of Group.Text, exactly as it is written there

	// MostFailed lists the groups with the most messages in state failed first. Default: the
	// latest failure first.
	MostFailed bool
}

// QueueSummary is what the archive has of a work queue.
type QueueSummary struct {
	Queue  string
	Counts Counts
	Purged int64 // removed by retention, over all time

	// Last failures of the oldest and the newest message in state failed; zero if
	// none is.
	Oldest, Newest time.Time
}

// Groups lists groups. A page may be short, and even empty, although there are
// more: only an empty string is the end. A group that changes between two pages changes its place, and may be on both or
// on neither.
func (a *Archive) Groups(ctx context.Context, f GroupFilter, p Page) (groups []Group, next string, err error) {
	defer annotate(&err, "listing groups")
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
		return nil, "", fmt.Errorf("%w: there is no state %q: use %q", ErrInvalid, f.State, States())
	}
	type place struct {
		id GroupID
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
				found = append(found, place{GroupID(at[1]), at[0]})
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
	ids := make([]GroupID, len(found))
	for i, f := range found {
		ids[i] = f.id
	}
	groups, err = a.groupsOf(ctx, ids)
	if err != nil || end {
		return groups, "", err
	}
	return groups, cursorOf(kind, at[0], at[1]), nil
}

// Group returns a group, or ErrNotFound.
func (a *Archive) Group(ctx context.Context, id GroupID) (g *Group, err error) {
	defer annotate(&err, "reading group %d", id)
	groups, err := a.groupsOf(ctx, []GroupID{id})
	if err != nil {
		return nil, err
	}
	if len(groups) == 0 {
		return nil, &NotFoundError{"group", int64(id)}
	}
	return &groups[0], nil
}

// where is what an index finds of a filter, and what has to be looked at.
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
		if f.State == Failed {
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

// groupsOf returns groups with their trends, in the order of the IDs.
func (a *Archive) groupsOf(ctx context.Context, ids []GroupID) ([]Group, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	place := make(map[GroupID]int)
	for i, id := range ids {
		place[id] = i
	}
	groups := make([]Group, len(ids))
	rows := a.db.Rows(ctx, `SELECT g.id, q.name, g.text, g.example, g.failed, g.replaying, g.replayed, g.discarded, g.first, g.latest, g.muted
		FROM {group} g JOIN {queue} q ON q.id = g.queue WHERE `+a.d.in("g.id", "$1"), list(a.d, ids))
	var g Group
	for err := range rows.Scan(&g.ID, &g.Queue, &g.Text, &g.Example, &g.Counts.Failed, &g.Counts.Replaying, &g.Counts.Replayed,
		&g.Counts.Discarded, sqlkit.Time(&g.First), sqlkit.Time(&g.Last), sqlkit.Time(&g.Muted)) {
		if err != nil {
			return nil, err
		}
		groups[place[g.ID]] = g
	}
	if err := a.trends(ctx, groups, place); err != nil {
		return nil, err
	}
	// A group may have been purged since it was found.
	out := groups[:0]
	for _, g := range groups {
		if g.ID != 0 {
			out = append(out, g)
		}
	}
	return out, nil
}

// Numbers of buckets of a Trend.
const (
	trendHours = 24
	trendDays  = 30
)

func (a *Archive) trends(ctx context.Context, groups []Group, place map[GroupID]int) error {
	now := a.now().Unix()
	hours, days := now-now%hour-(trendHours-1)*hour, now-now%day-(trendDays-1)*day
	var ids []GroupID
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
	var id GroupID
	var span, start, n int64
	for err := range rows.Scan(&id, &span, &start, &n) {
		if err != nil {
			return err
		}
		list, from := groups[place[id]].Hours, hours
		if span == day {
			list, from = groups[place[id]].Days, days
		}
		if i := (start - from) / span; i < int64(len(list)) { // clocks differ: one may be ahead
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

// Queues returns all work queues of which there ever was a message, by name.
func (a *Archive) Queues(ctx context.Context) (out []QueueSummary, err error) {
	defer annotate(&err, "listing queues")
	where, order := a.d.along([]equal{{"m.state", "0"}, {"m.queue", "q.id"}}, 0, fromTheTop)
	end := func(direction string) string {
		// The position first, which the index has: for another column SQLite takes another index.
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
