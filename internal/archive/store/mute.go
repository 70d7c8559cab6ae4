package store

import (
	"context"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// MutedForever is the value of Group.Muted for a group that is muted until Unmute.
var MutedForever = time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC)

const (
	actMute   = "mute"
	actUnmute = "unmute"
)

// Mute excludes a group from notifications until the given time. It replaces the time of an earlier Mute. It returns
// ErrInvalid if until is not in the future.
func (a *Archive) Mute(ctx context.Context, id failed.GroupID, until time.Time, who failed.Actor) (err error) {
	defer failed.Annotate(&err, "cannot mute group %d", id)
	if !until.After(a.Now()) {
		return failed.Invalid("end of the mute must be in the future: got %s", until.UTC().Format(time.RFC3339))
	}
	details := map[string]any{}
	if until.Before(MutedForever) {
		details["until"] = until.UTC().Format(time.RFC3339)
	} else {
		until = MutedForever
	}
	return a.mute(ctx, id, until, who, actMute, details)
}

// Unmute undoes Mute. If the group is not muted, Unmute has no effect.
func (a *Archive) Unmute(ctx context.Context, id failed.GroupID, who failed.Actor) (err error) {
	defer failed.Annotate(&err, "cannot unmute group %d", id)
	return a.mute(ctx, id, time.Time{}, who, actUnmute, nil)
}

func (a *Archive) mute(ctx context.Context, id failed.GroupID, until time.Time, who failed.Actor, verb string, details map[string]any) error {
	if err := who.Validate(); err != nil {
		return err
	}
	return a.write(ctx, func(tx *tx) error {
		n, err := tx.Exec(`UPDATE {group} SET muted = $2 WHERE id = $1 AND muted <> $2`, int64(id), sqlkit.Millis(until))
		switch {
		case err != nil:
			return err
		case n > 0:
			_, err = tx.act(who, verb, fmt.Sprint("group/", id), details)
			return err
		}
		if err := tx.Row(`SELECT COUNT(*) FROM {group} WHERE id = $1`, int64(id)).Scan(&n); err != nil {
			return err
		}
		if n == 0 {
			return &failed.NotFoundError{What: "group", ID: int64(id)}
		}
		return nil
	})
}

// MutedAt reports whether the group is muted at time t.
func (g *Group) MutedAt(t time.Time) bool { return g.Muted.After(t) }

// RecentGroups returns the n groups with the latest failures and the n newest groups, in ascending order of IDs. It
// does not set Example, Merged, Hours or Days.
func (a *Archive) RecentGroups(ctx context.Context, n int) (all []Group, err error) {
	defer failed.Annotate(&err, "cannot list recent groups")
	var g Group
	rows := a.db.Rows(ctx, `SELECT g.id, q.name, g.text, g.failed, g.replaying, g.replayed, g.discarded, g.first, g.latest, g.muted, g.regrouped
		FROM {group} g JOIN {queue} q ON q.id = g.queue WHERE g.id IN (
			SELECT id FROM (SELECT id FROM {group} ORDER BY latest DESC, id DESC LIMIT $1) AS l
			UNION SELECT id FROM (SELECT id FROM {group} ORDER BY id DESC LIMIT $1) AS n) ORDER BY g.id`, n)
	for err := range rows.Scan(&g.ID, &g.Queue, &g.Text, &g.Counts.Failed, &g.Counts.Replaying, &g.Counts.Replayed, &g.Counts.Discarded,
		sqlkit.Time(&g.First), sqlkit.Time(&g.Last), sqlkit.Time(&g.Muted), sqlkit.Time(&g.Regrouped)) {
		if err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	return all, nil
}
