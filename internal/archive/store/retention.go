package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// purgeBatch is the maximum number of messages that one transaction removes, so that arrivals do not wait long.
const purgeBatch = 1000

// Purge permanently removes the messages that exceed their retention, and returns their number. The retention is
// Config.Retention, or the rule for the queue in Config.Rules. If the configuration sets no retention, Purge does
// nothing. It skips messages in state replaying. If it removes messages, it logs their number, and writes an Act with
// the actor and the number of messages by queue and state.
//
// If ctx is canceled, Purge stops, and the Act counts the messages that were removed before.
func (a *Archive) Purge(ctx context.Context, who failed.Actor) (total int64, err error) {
	if err := who.Validate(); err != nil {
		return 0, fmt.Errorf("cannot remove expired messages: %w", err)
	}
	if !a.cfg.Expires() {
		return 0, nil
	}
	p := purge{who: who, cutoffs: a.cutoffs(), queues: make(map[string]map[failed.State]int64)}
	for more := true; more && err == nil; {
		var removed purge
		err = a.writeMany(ctx, func(tx *tx) (err error) {
			removed = p.clone()
			more, err = tx.purge(&removed)
			return err
		})
		if err == nil {
			p = removed
		}
	}
	if p.total > 0 {
		a.cfg.Logger.InfoContext(ctx, "purged", "by", p.who, "messages", p.total, "before", p.cutoffs.latest, "act", p.act)
	}
	if err != nil {
		err = fmt.Errorf("cannot remove expired messages: %w", err)
	}
	return p.total, err
}

// WouldPurge returns the number of messages that Purge would remove.
func (a *Archive) WouldPurge(ctx context.Context) (n int64, err error) {
	defer failed.Annotate(&err, "cannot count expired messages")
	if !a.cfg.Expires() {
		return 0, nil
	}
	cutoffs := a.cutoffs()
	args := []any{sqlkit.Millis(cutoffs.latest)}
	limit := "CASE q.name"
	for _, r := range a.cfg.Rules {
		args = append(args, []byte(r.Queue), sqlkit.Millis(cutoffs.queues[r.Queue]))
		limit += fmt.Sprintf(" WHEN $%d THEN CAST($%d AS BIGINT)", len(args)-1, len(args))
	}
	args = append(args, sqlkit.Millis(cutoffs.others))
	limit += fmt.Sprintf(" ELSE CAST($%d AS BIGINT) END", len(args))
	if len(a.cfg.Rules) == 0 {
		args, limit = args[:1], "$1"
	}
	err = a.db.Row(sqlkit.Long(ctx), `SELECT count(*) FROM {message} m JOIN {queue} q ON q.id = m.queue WHERE m.state <> 1 AND m.archived < $1 AND m.archived < `+limit, args...).Scan(&n)
	return n, err
}

// cutoffs contains the times of arrival before which Purge removes messages.
type cutoffs struct {
	queues map[string]time.Time // of queues with a rule
	others time.Time            // of all other queues; the zero time if there is no limit
	latest time.Time
}

func (a *Archive) cutoffs() cutoffs {
	now := a.Now()
	all := cutoffs{queues: make(map[string]time.Time, len(a.cfg.Rules))}
	if a.cfg.Retention > 0 {
		all.others = now.Add(-a.cfg.Retention)
	}
	all.latest = all.others
	for _, r := range a.cfg.Rules {
		at := now.Add(-r.Retention)
		all.queues[r.Queue], all.latest = at, latest(all.latest, at)
	}
	return all
}

// of returns the cutoff for a queue.
func (a cutoffs) of(queue string) time.Time {
	if at, found := a.queues[queue]; found {
		return at
	}
	return a.others
}

// purge is a running Purge.
type purge struct {
	who     failed.Actor
	cutoffs cutoffs
	after   failed.ID // the last ID that was examined
	total   int64
	queues  map[string]map[failed.State]int64
	act     int64
}

func (p purge) clone() purge {
	queues := make(map[string]map[failed.State]int64)
	for name, n := range p.queues {
		queues[name] = maps.Clone(n)
	}
	p.queues = queues
	return p
}

// purge removes one batch, and writes or updates the Act.
func (t *tx) purge(p *purge) (more bool, err error) {
	// IDs ascend with the time of arrival, so the oldest messages come first. Messages in state replaying are skipped.
	newer := false
	var ids []failed.ID
	var at []int64
	var c countChanges
	n := make(map[int64]int64)
	looked := 0
	rows := t.Rows(`SELECT m.id, m.pos, m.grp, m.queue, m.state, m.archived, q.name FROM {message} m JOIN {queue} q ON q.id = m.queue
		WHERE m.state <> 1 AND m.id > $2 ORDER BY m.id LIMIT $1`, purgeBatch, int64(p.after))
	var id failed.ID
	var group failed.GroupID
	var pos, queue, archived int64
	var state int
	var name string
	for err := range rows.Scan(&id, &pos, &group, &queue, &state, &archived, &name) {
		if err != nil {
			return false, err
		}
		looked++
		p.after = id
		newer = newer || archived >= sqlkit.Millis(p.cutoffs.latest)
		if archived >= sqlkit.Millis(p.cutoffs.of(name)) {
			continue
		}
		ids, at = append(ids, id), append(at, pos)
		c.add(group, queue, state, -1)
		n[queue]++
		if p.queues[name] == nil {
			p.queues[name] = make(map[failed.State]int64)
		}
		p.queues[name][failed.States()[state]]++
	}
	more = looked == purgeBatch && !newer
	if len(ids) == 0 {
		return more, nil
	}
	p.total += int64(len(ids))
	if err := t.remove(ids, at); err != nil {
		return false, err
	}
	if err := t.count(c); err != nil {
		return false, err
	}
	for queue, n := range n {
		if _, err := t.Exec(`UPDATE {queue} SET purged = purged + $2 WHERE id = $1`, queue, n); err != nil {
			return false, err
		}
	}
	groups := make([]failed.GroupID, 0, len(c.groups))
	for id := range c.groups {
		groups = append(groups, id)
	}
	if err := t.removeEmpty(groups); err != nil {
		return false, err
	}
	if _, err := t.Exec(`DELETE FROM {item} WHERE replay IN (SELECT id FROM {replay} WHERE ended > 0 AND ended < $1)`, sqlkit.Millis(p.cutoffs.others)); err != nil {
		return false, err
	}
	return more, t.purged(p)
}

// remove deletes messages, with their contents and revisions.
func (t *tx) remove(ids []failed.ID, at []int64) error {
	d := t.d
	for _, table := range []string{"content", "revision", "delivery", "origin", "acted"} {
		if _, err := t.Exec(`DELETE FROM {`+table+`} WHERE `+d.in("message", "$1"), list(d, ids)); err != nil {
			return err
		}
	}
	if err := t.forget(at); err != nil {
		return err
	}
	_, err := t.Exec(`DELETE FROM {message} WHERE `+d.in("pos", "$1"), list(d, at))
	return err
}

// forget removes messages from the search index.
func (t *tx) forget(at []int64) error {
	pos := "pos"
	if t.d.Dialect == SQLite {
		pos = "rowid"
	}
	_, err := t.Exec(`DELETE FROM {search} WHERE `+t.d.in(pos, "$1"), list(t.d, at))
	return err
}

// purged writes the Act of a purge, or updates the numbers in it.
func (t *tx) purged(p *purge) (err error) {
	queues := make(map[params.Text]map[failed.State]int64)
	for name, n := range p.queues {
		queues[params.Text(name)] = n
	}
	details := map[string]any{"messages": p.total, "queues": queues}
	if t.cfg.Retention > 0 {
		details["before"], details["retention"] = p.cutoffs.others, t.cfg.Retention.String()
	}
	if len(t.cfg.Rules) > 0 {
		rules := make(map[params.Text]string)
		for _, r := range t.cfg.Rules {
			rules[params.Text(r.Queue)] = r.Retention.String()
		}
		details["rules"] = rules
	}
	if p.act == 0 {
		p.act, err = t.act(p.who, actPurge, "", details)
		return err
	}
	written, err := json.Marshal(details)
	if err != nil {
		return err
	}
	_, err = t.Exec(`UPDATE {act} SET details = $2 WHERE id = $1`, p.act, string(written))
	return err
}
