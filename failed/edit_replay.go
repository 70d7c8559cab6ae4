package failed

import "context"

// EditAndReplay is Edit, and BeginReplay of that message alone, in one transaction: either
// both are done or nothing is. So what is sent is what whoever edits has seen: if somebody
// else has edited the message since, that is ErrState. The Filter of the plan is not
// looked at.
func (a *Archive) EditAndReplay(ctx context.Context, id ID, seen int, c Content, p Plan, who Actor) (r *Replay, err error) {
	defer annotate(&err, "editing and replaying message %d", id)
	p.Filter = Filter{IDs: []ID{id}}
	e, err := editOf(id, seen, c, who)
	if err != nil {
		return nil, err
	}
	b, err := a.beginning(ctx, p, who)
	if err != nil {
		return nil, err
	}
	err = a.write(ctx, func(tx *tx) error {
		if err := tx.edit(e); err != nil {
			return err
		}
		r, err = tx.begin(b)
		return err
	})
	return r, err
}
