package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/params"
)

// Discard moves the failed messages that f selects to state discarded, and returns their number. The reason must not be
// empty. The messages stay in the archive, and Restore returns them to state failed. If f selects more than f.AtMost
// failed messages, Discard changes nothing and returns ErrState.
func (a *Archive) Discard(ctx context.Context, f failed.Filter, reason string, who failed.Actor) (n int64, err error) {
	defer failed.Annotate(&err, "cannot discard messages")
	if strings.TrimSpace(reason) == "" {
		return 0, failed.Invalid("reason must not be empty")
	}
	return a.move(ctx, f, who, move{
		from: failed.Failed, to: failed.Discarded, verb: actDiscard,
		set: func(s *selection) string { return `, discarded = ` + s.arg([]byte(reason)) }, details: map[string]any{"reason": reason},
	})
}

// Restore undoes Discard. It moves the discarded messages that f selects to state failed, and returns their number. It
// skips erased messages.
func (a *Archive) Restore(ctx context.Context, f failed.Filter, who failed.Actor) (n int64, err error) {
	defer failed.Annotate(&err, "cannot restore messages")
	return a.move(ctx, f, who, move{
		from: failed.Discarded, to: failed.Failed, verb: actRestore,
		set: func(*selection) string { return `, discarded = NULL` }, where: erasable,
	})
}

// move describes a state change of messages.
type move struct {
	from, to failed.State
	set      func(*selection) string // returns further changes as SQL: ", column = value"
	where    string                  // a condition in addition to the selection
	verb     string
	details  map[string]any
}

// move changes the state of the selected messages, and writes the audit log entry in the same transaction.
func (a *Archive) move(ctx context.Context, f failed.Filter, who failed.Actor, m move) (n int64, err error) {
	if err := errors.Join(who.Validate(), f.CheckForAct()); err != nil {
		return 0, err
	}
	s, err := a.selection(ctx, f)
	if err != nil || s == nil {
		return 0, err
	}
	err = a.writeMany(ctx, func(tx *tx) error {
		ids, err := tx.move(s, m)
		if n = int64(len(ids)); err != nil || n == 0 {
			return err
		}
		if err := f.Allows(n); err != nil {
			return err
		}
		details := map[string]any{"messages": n, "filter": f.Describe()}
		maps.Copy(details, m.details)
		return tx.actOn(ids, who, m.verb, f.Subject(), details)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// move changes the state of the selected messages that are in state m.from, and returns their IDs.
func (t *tx) move(s *selection, m move) (ids []failed.ID, err error) {
	var c countChanges
	set := m.set(s) // before s.args is read, because set may add an argument
	var id failed.ID
	var group failed.GroupID
	var queue int64
	for err := range t.Rows(fmt.Sprintf(`UPDATE {message} AS m SET state = %d%s WHERE %s RETURNING id, grp, queue`,
		codes[m.to], set, s.in(codes[m.from])+m.where), s.args...).Scan(&id, &group, &queue) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
		c.add(group, queue, codes[m.from], -1)
		c.add(group, queue, codes[m.to], 1)
	}
	return ids, t.count(c)
}

// update executes a statement that changes the state of messages, and adds the resulting count changes to c. The
// statement must return the group, the queue and the code of the former state of each message. update returns the
// number of messages.
func (t *tx) update(c *countChanges, to failed.State, statement string, args ...any) (n int64, err error) {
	var group failed.GroupID
	var queue int64
	var from int
	for err := range t.Rows(statement, args...).Scan(&group, &queue, &from) {
		if err != nil {
			return n, err
		}
		c.add(group, queue, from, -1)
		c.add(group, queue, codes[to], 1)
		n++
	}
	return n, nil
}

// Emptied describes messages that were removed from a queue.
type Emptied struct {
	Queue    string
	Reason   string
	Messages int
	Saved    bool // whether the archive has the messages
}

// EncodeDiscarded returns a message in state discarded for NoteEmptied.
func (a *Archive) EncodeDiscarded(m failed.Message, why string) (*Arrival, error) {
	e, err := a.encode(m)
	e.m.State, e.m.Discarded = failed.Discarded, why
	return &e, err
}

// NoteEmptied archives the saved messages and writes the Act for the removal.
func (a *Archive) NoteEmptied(ctx context.Context, x Emptied, saved []*Arrival, who failed.Actor) error {
	return a.write(ctx, func(tx *tx) error {
		if err := tx.add(saved); err != nil {
			return err
		}
		ids := make([]failed.ID, len(saved))
		for i, e := range saved {
			ids[i] = e.m.ID
		}
		return tx.actOn(ids, who, actEmpty, "", map[string]any{"queue": params.Text(x.Queue), "messages": x.Messages, "reason": x.Reason, "saved": x.Saved})
	})
}
