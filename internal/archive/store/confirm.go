package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Check returns a *FilterError that wraps ErrNotFound if f names a group, a replay or a message that the archive does
// not contain. Without Check, a mistyped ID silently selects no messages.
func (a *Archive) Check(ctx context.Context, f failed.Filter) error {
	exists := func(param, what, table string, id int64) error {
		if id == 0 {
			return nil
		}
		err := a.db.Row(ctx, `SELECT id FROM `+table+` WHERE id = $1`, id).Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			return &failed.FilterError{Param: param, Err: &failed.NotFoundError{What: what, ID: id}}
		}
		if err != nil {
			return fmt.Errorf("cannot look up %s %d: %w", what, id, err)
		}
		return nil
	}
	err := cmp.Or(
		exists("group", "group", "{group}", int64(f.Group)),
		exists("replay", "replay", "{replay}", int64(f.Replay)),
		exists("refused_by", "replay", "{replay}", int64(f.RefusedBy)),
		exists("act", "act", "{act}", f.Act),
		exists("sent_by", "replay", "{replay}", int64(f.SentBy)),
	)
	if err != nil || len(f.IDs) == 0 {
		return err
	}
	missing := map[failed.ID]bool{}
	for _, id := range f.IDs {
		missing[id] = true
	}
	var id failed.ID
	for err := range a.db.Rows(ctx, `SELECT m.id FROM {message} m WHERE `+a.d.in("m.id", "$1"), list(a.d, f.IDs)).Scan(&id) {
		if err != nil {
			return fmt.Errorf("cannot look up messages: %w", err)
		}
		delete(missing, id)
	}
	for _, id := range f.IDs {
		if missing[id] {
			return &failed.FilterError{Param: "id", Err: &failed.NotFoundError{What: "message", ID: int64(id)}}
		}
	}
	return nil
}

// Newest returns the ID of the newest message, or 0. Use the result for Filter.Through. Archive assigns IDs in the order in
// which transactions commit, so a message that becomes visible later has a higher ID.
func (a *Archive) Newest(ctx context.Context) (id failed.ID, err error) {
	defer failed.Annotate(&err, "cannot read the newest message")
	err = a.db.Row(ctx, `SELECT last FROM {counter} WHERE name = 'message'`).Scan(&id)
	return id, err
}

// CountState returns the exact number of messages in state s that f selects, without erased messages in state discarded,
// which Restore skips. Unlike Count it has no limit, so it can take a long time. Use the result for Filter.AtMost.
func (a *Archive) CountState(ctx context.Context, f failed.Filter, s failed.State) (n int64, err error) {
	defer failed.Annotate(&err, "cannot count messages")
	if f.States != nil && !slices.Contains(f.States, s) {
		return 0, f.Validate()
	}
	ctx = sqlkit.Long(ctx)
	f.All, f.States = false, []failed.State{s}
	which, err := a.selection(ctx, f)
	if err != nil || which == nil {
		return 0, err
	}
	where := which.where()
	if s == failed.Discarded {
		where += erasable // no counter
	} else if counted, ok, err := a.counted(ctx, f); ok || err != nil {
		return counted, err
	}
	err = a.db.Row(ctx, `SELECT count(*) FROM {message} m WHERE `+where, which.args...).Scan(&n)
	return n, err
}
