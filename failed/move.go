package failed

import (
	"context"
	"errors"
	"fmt"
	"maps"
)

// move is a change of the state of messages.
type move struct {
	from, to State
	set      func(*selection) string // what else changes: ", column = value"
	verb     string
	details  map[string]any
}

// move changes the state of those messages that a filter selects, in one transaction
// with the act that tells of it.
func (a *Archive) move(ctx context.Context, f Filter, who Actor, m move) (n int64, err error) {
	if err := errors.Join(who.validate(), f.meant()); err != nil {
		return 0, err
	}
	s, err := a.selection(ctx, f)
	if err != nil || s == nil {
		return 0, err
	}
	err = a.writeMany(ctx, func(tx *tx) error {
		c, err := tx.move(s, m)
		if err != nil {
			return err
		}
		if n = c.of(codes[m.to]); n == 0 {
			return nil
		}
		if err := f.allows(n); err != nil {
			return err
		}
		if err := tx.count(c); err != nil {
			return err
		}
		details := map[string]any{"messages": n, "filter": f.describe()}
		maps.Copy(details, m.details)
		_, err = tx.act(who, m.verb, f.subject(), details)
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// move changes the state of what is selected, of that which is in state m.from, and
// returns how the counts change.
func (t *tx) move(s *selection, m move) (c counting, err error) {
	set := m.set(s) // before the arguments are taken
	rows := t.Rows(fmt.Sprintf(`UPDATE {message} AS m SET state = %d%s WHERE m.state = %d AND %s RETURNING grp, queue`,
		codes[m.to], set, codes[m.from], s.where()), s.args...)
	var group GroupID
	var queue int64
	for err := range rows.Scan(&group, &queue) {
		if err != nil {
			return c, err
		}
		c.add(group, queue, codes[m.from], -1)
		c.add(group, queue, codes[m.to], 1)
	}
	return c, nil
}
