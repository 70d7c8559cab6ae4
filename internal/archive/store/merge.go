package store

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// GroupRule names a group of failures. The first rule that matches an error replaces the fingerprint of the error.
type GroupRule struct {
	Queue string         // the work queue; "": all
	Error *regexp.Regexp // matches any part of the last error
	Name  string         // the text of the group, in which $1 is the first submatch of Error
}

// Validate returns an error if Error or Name is missing.
func (r GroupRule) Validate() error {
	if r.Error == nil || strings.TrimSpace(r.Name) == "" {
		return failed.Invalid("group rule must have an Error and a Name: got %v and %s", r.Error, brief.Quoted(r.Name))
	}
	return nil
}

// groupText returns the text of the group of an error, before merges.
func (c Config) groupText(queue, errorText string) string {
	for _, r := range c.Groups {
		if r.Queue != "" && r.Queue != queue {
			continue
		}
		if at := r.Error.FindStringSubmatchIndex(errorText); at != nil {
			return cmp.Or(groupName(string(r.Error.ExpandString(nil, r.Name, errorText, at))), failed.Fingerprint(errorText))
		}
	}
	return failed.Fingerprint(errorText)
}

// groupName returns a name as the text of a group: on one line, and not longer than other texts.
func groupName(s string) string {
	return failed.Cut(strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "?"), failed.MaxFingerprint)
}

// mergedInto returns the digest and the text of the group that contains the failures with the given text of a group.
func (t *tx) mergedInto(queue, text string) (target []byte, name string, err error) {
	digest := groupDigest(queue, text)
	err = t.Row(`SELECT target, text FROM {merged} WHERE digest = $1`, digest).Scan(&target, &name)
	if errors.Is(err, sql.ErrNoRows) {
		return digest, text, nil
	}
	return target, name, err
}

const (
	actMerge   = "merge groups"
	actUnmerge = "unmerge group"
	actRegroup = "regroup"
)

// grouped is a group whose messages may move to other groups.
type grouped struct {
	id            failed.GroupID
	queue         string
	digest        []byte
	text, example string
	Counts
	first, latest, muted int64
}

func (t *tx) grouped(id failed.GroupID) (g grouped, err error) {
	err = t.Row(`SELECT g.id, q.name, g.digest, g.text, g.example, g.failed, g.replaying, g.replayed, g.discarded, g.first, g.latest, g.muted
		FROM {group} g JOIN {queue} q ON q.id = g.queue WHERE g.id = $1`, int64(id)).
		Scan(&g.id, &g.queue, &g.digest, &g.text, &g.example, &g.Failed, &g.Replaying, &g.Replayed, &g.Discarded, &g.first, &g.latest, &g.muted)
	if errors.Is(err, sql.ErrNoRows) {
		err = &failed.NotFoundError{What: "group", ID: int64(id)}
	}
	return g, err
}

// Merge moves all messages of groups of one work queue to the group with the text name, and returns the ID of that
// group. Later failures with the same errors also arrive in it. With one group, Merge renames the group. The group is
// muted if all groups are muted.
//
// Merge moves the messages in several transactions. After an error, call Regroup to move the remaining messages.
func (a *Archive) Merge(ctx context.Context, ids []failed.GroupID, name string, who failed.Actor) (into failed.GroupID, err error) {
	defer failed.Annotate(&err, "cannot merge groups")
	if name = groupName(name); name == "" || len(ids) == 0 {
		return 0, failed.Invalid("a merge must have groups and a name")
	}
	if err := who.Validate(); err != nil {
		return 0, err
	}
	ids = slices.Clone(ids)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	var target []byte
	err = a.write(ctx, func(tx *tx) error {
		groups := make([]grouped, len(ids))
		for i, id := range ids {
			if groups[i], err = tx.grouped(id); err != nil {
				return err
			}
			if groups[i].queue != groups[0].queue {
				return failed.Invalid("groups must be of one work queue: got %s and %s", groups[0].queue, groups[i].queue)
			}
		}
		target = groupDigest(groups[0].queue, name)
		if into, err = tx.mergeRules(groups, target, name); err != nil {
			return err
		}
		var n int64
		for _, g := range groups {
			n += g.Total()
		}
		_, err := tx.act(who, actMerge, fmt.Sprint("group/", into), map[string]any{"groups": ids, "name": name, "messages": n})
		return err
	})
	for _, id := range ids {
		if err == nil && id != into {
			_, err = a.regroup(ctx, id, target, name)
		}
	}
	return into, err
}

// mergeRules records that failures of the groups belong to the group with the given digest, and returns its ID.
func (t *tx) mergeRules(groups []grouped, target []byte, name string) (into failed.GroupID, err error) {
	if _, err := t.Exec(`DELETE FROM {merged} WHERE digest = $1`, target); err != nil {
		return 0, err
	}
	last := slices.MaxFunc(groups, func(a, b grouped) int { return cmp.Compare(a.latest, b.latest) })
	sum := failures{text: name, example: last.example, first: sqlkit.TimeOf(last.first), last: sqlkit.TimeOf(last.latest)}
	muted := last.muted
	for _, g := range groups {
		sum.first, muted = earliest(sum.first, sqlkit.TimeOf(g.first)), min(muted, g.muted)
		if _, err := t.Exec(`UPDATE {merged} SET target = $2, text = $3 WHERE target = $1`, g.digest, target, []byte(name)); err != nil {
			return 0, err
		}
		if err := t.mergeRule(g.digest, target, name); err != nil {
			return 0, err
		}
	}
	if err := t.Row(`SELECT id FROM {queue} WHERE name = $1`, []byte(last.queue)).Scan(&sum.queue); err != nil {
		return 0, err
	}
	var known int
	if err := t.Row(`SELECT count(*) FROM {group} WHERE digest = $1`, target).Scan(&known); err != nil {
		return 0, err
	}
	if into, err = t.failed(target, &sum); err != nil || known > 0 {
		return into, err
	}
	_, err = t.Exec(`UPDATE {group} SET muted = $2, regrouped = $3 WHERE id = $1`, int64(into), muted, sqlkit.Millis(t.Now()))
	return into, err
}

// mergeRule records that failures of the group with a digest belong to the group with the digest target.
func (t *tx) mergeRule(digest, target []byte, name string) error {
	if bytes.Equal(digest, target) {
		return nil
	}
	_, err := t.Exec(`INSERT INTO {merged} (digest, target, text) VALUES ($1, $2, $3)
		ON CONFLICT (digest) DO UPDATE SET target = excluded.target, text = excluded.text`, digest, target, []byte(name))
	return err
}

// Unmerge undoes all merges into a group: the messages move to the groups of their errors. Erased messages stay. It
// returns the number of moved messages, or ErrState if the group is not merged.
func (a *Archive) Unmerge(ctx context.Context, id failed.GroupID, who failed.Actor) (moved int64, err error) {
	defer failed.Annotate(&err, "cannot unmerge group %d", id)
	if err := who.Validate(); err != nil {
		return 0, err
	}
	err = a.write(ctx, func(tx *tx) error {
		g, err := tx.grouped(id)
		if err != nil {
			return err
		}
		n, err := tx.Exec(`DELETE FROM {merged} WHERE target = $1`, g.digest)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("%w: group %d is not merged", failed.ErrState, id)
		}
		_, err = tx.act(who, actUnmerge, fmt.Sprint("group/", id), map[string]any{"name": g.text, "messages": g.Total()})
		return err
	})
	if err != nil {
		return 0, err
	}
	return a.regroup(ctx, id, nil, "")
}

// Regroup moves the messages of a work queue, or of all work queues if queue is "", to the groups in which they would
// arrive now, and returns the number of moved messages. Call it after a change of Config.Groups.
func (a *Archive) Regroup(ctx context.Context, queue string, who failed.Actor) (moved int64, err error) {
	defer failed.Annotate(&err, "cannot regroup messages")
	details := map[string]any{}
	if queue != "" {
		details["queue"] = params.Text(queue)
	}
	if err := a.Record(ctx, who, actRegroup, "", details); err != nil {
		return 0, err
	}
	var ids []failed.GroupID
	var id failed.GroupID
	query, args := `SELECT g.id FROM {group} g`, []any(nil)
	if queue != "" {
		query, args = query+` WHERE g.queue = (SELECT q.id FROM {queue} q WHERE q.name = $1)`, []any{[]byte(queue)}
	}
	for err := range a.db.Rows(ctx, query+` ORDER BY g.id`, args...).Scan(&id) {
		if err != nil {
			return 0, err
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		n, err := a.regroup(ctx, id, nil, "")
		if moved += n; err != nil && !errors.Is(err, failed.ErrNotFound) { // a purge may have removed the group
			return moved, err
		}
	}
	return moved, nil
}

// regroup moves the messages of a group to the groups in which they would arrive now. If target is not nil, it first
// merges the errors of the messages into the group with this digest and name.
func (a *Archive) regroup(ctx context.Context, id failed.GroupID, target []byte, name string) (moved int64, err error) {
	for _, state := range everyState {
		for after, more := int64(-1), true; more; {
			err := a.write(ctx, func(tx *tx) error {
				r := regrouping{tx: tx, target: target, name: name, known: map[string]bool{}}
				if r.from, err = tx.grouped(id); err != nil {
					return err
				}
				last, n, err := r.move(state, after)
				after, more = last, n == purgeBatch
				moved += int64(len(r.moved))
				return err
			})
			if err != nil {
				return moved, err
			}
		}
	}
	return moved, a.write(ctx, func(tx *tx) error { return tx.removeEmpty([]failed.GroupID{id}) })
}

// regrouping moves one batch of messages from a group.
type regrouping struct {
	*tx
	from   grouped
	target []byte
	name   string
	known  map[string]bool // texts, and whether their messages move
	queue  int64
	moved  []*Arrival
}

// move moves messages whose positions are higher than after. It returns the last position, and the number of messages
// that it examined.
func (r *regrouping) move(state int, after int64) (last int64, n int, err error) {
	var e Arrival
	var erased bool
	var batch []*Arrival
	// An erased message has no error, and moves with the text of its group.
	rows := r.Rows(fmt.Sprintf(`SELECT m.pos, m.queue, COALESCE((SELECT c.error FROM {content} c WHERE c.message = m.id), m.error),
			m.first_failed, m.last_failed, CASE WHEN EXISTS (SELECT 1 FROM {content} c WHERE c.message = m.id) THEN 0 ELSE 1 END
		FROM {message} m WHERE m.state = %d AND m.grp = %d AND m.pos > %d ORDER BY m.pos LIMIT %d`, state, r.from.id, after, purgeBatch))
	for err := range rows.Scan(&e.pos, &r.queue, &e.m.Error, sqlkit.Time(&e.m.FirstFailed), sqlkit.Time(&e.m.LastFailed), &erased) {
		if err != nil {
			return 0, 0, err
		}
		e := e
		e.m.State, e.m.Queue, e.text = failed.States()[state], r.from.queue, r.from.text
		if !erased {
			e.text = r.cfg.groupText(e.m.Queue, e.m.Error)
		}
		batch = append(batch, &e)
		last = e.pos
	}
	for _, e := range batch {
		moves, err := r.moves(e.text)
		if err != nil {
			return 0, 0, err
		}
		if moves {
			r.moved = append(r.moved, e)
		}
	}
	return last, len(batch), r.apply()
}

// moves reports whether messages with this text of a group move.
func (r *regrouping) moves(text string) (bool, error) {
	if moves, found := r.known[text]; found {
		return moves, nil
	}
	if r.target != nil {
		if err := r.mergeRule(groupDigest(r.from.queue, text), r.target, r.name); err != nil {
			return false, err
		}
	}
	digest, _, err := r.mergedInto(r.from.queue, text)
	r.known[text] = !bytes.Equal(digest, r.from.digest)
	return r.known[text], err
}

// apply assigns the moved messages to their groups, and updates the counts and the trend of the former group.
func (r *regrouping) apply() error {
	if len(r.moved) == 0 {
		return nil
	}
	if err := r.group(r.moved); err != nil {
		return err
	}
	at := map[failed.GroupID][]int64{}
	trend := map[bucket]int64{}
	var c countChanges
	for _, e := range r.moved {
		at[e.m.Group] = append(at[e.m.Group], e.pos)
		c.add(r.from.id, r.queue, codes[e.m.State], -1)
		for _, b := range bucketsOf(e.m.LastFailed) {
			trend[b]++
		}
	}
	for b, n := range trend {
		if _, err := r.Exec(`UPDATE {trend} SET n = n - $4 WHERE grp = $1 AND span = $2 AND start = $3`, int64(r.from.id), b.span, b.start, n); err != nil {
			return err
		}
	}
	for id, positions := range at {
		if _, err := r.Exec(`UPDATE {message} SET grp = $2 WHERE `+r.d.in("pos", "$1"), list(r.d, positions), int64(id)); err != nil {
			return err
		}
		if _, err := r.Exec(`UPDATE {group} SET regrouped = $2 WHERE id = $1`, int64(id), sqlkit.Millis(r.Now())); err != nil {
			return err
		}
	}
	return r.count(c)
}

// removeEmpty removes groups without messages.
func (t *tx) removeEmpty(groups []failed.GroupID) error {
	for _, statement := range []string{
		`DELETE FROM {group} WHERE failed = 0 AND replaying = 0 AND replayed = 0 AND discarded = 0 AND ` + t.d.in("id", "$1"),
		`DELETE FROM {trend} WHERE ` + t.d.in("grp", "$1") + ` AND NOT EXISTS (SELECT 1 FROM {group} WHERE id = grp)`,
	} {
		if _, err := t.Exec(statement, list(t.d, groups)); err != nil {
			return err
		}
	}
	return nil
}
