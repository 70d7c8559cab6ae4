package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// List returns a page of messages, the latest failure first. If few messages match, a page may be short or empty
// although more messages follow. Only an empty cursor marks the last page.
func (a *Archive) List(ctx context.Context, f failed.Filter, p Page) (out []failed.Summary, next string, err error) {
	defer failed.Annotate(&err, "cannot list messages")
	size, err := p.size()
	if err != nil {
		return nil, "", err
	}
	before := int64(fromTheTop)
	if p.After != "" {
		if err = readCursor(p.After, ofMessages, &before); err != nil {
			return nil, "", err
		}
	}
	s, err := a.selection(ctx, f)
	if err != nil || s == nil {
		return nil, "", err
	}
	found, before, end, err := a.page(ctx, s, before, size)
	if err != nil {
		return nil, "", err
	}
	if !end {
		next = cursorOf(ofMessages, before)
	}
	out, err = a.summaries(ctx, found, f)
	return out, next, err
}

// selection validates a filter and returns its selection, or nil if the filter cannot select any message.
func (a *Archive) selection(ctx context.Context, f failed.Filter) (*selection, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	var queue int64
	if f.Queue != "" {
		err := a.db.Row(ctx, `SELECT id FROM {queue} WHERE name = $1`, []byte(f.Queue)).Scan(&queue)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	s := selectionOf(f, a.d, queue)
	if f.Group != 0 && len(s.terms) > 0 {
		var n int
		if err := a.db.Row(ctx, `SELECT count(*) FROM {group} WHERE id = $1 AND regrouped > 0`, int64(f.Group)).Scan(&n); err != nil {
			return nil, err
		}
		s.regrouped = n > 0
	}
	if f.SentBy == 0 {
		return s, nil
	}
	err := a.db.Row(ctx, `SELECT CASE WHEN ended > 0 AND ended <= $2 THEN 1 ELSE 0 END FROM {replay} WHERE id = $1`, int64(f.SentBy), overdue(a.Now())).Scan(&s.overdue)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return s, err
}

// summaries returns the messages at the given positions, in descending order of the position. Refusals and outcomes
// refer to the replay that f selects with RefusedBy or SentBy, or else to the latest replay of the message.
func (a *Archive) summaries(ctx context.Context, at []int64, f failed.Filter) ([]failed.Summary, error) {
	if len(at) == 0 {
		return nil, nil
	}
	out := make([]failed.Summary, 0, len(at))
	refused, outcome := `m.refused`, a.outcomeColumn(`m.replay`)
	if f.RefusedBy != 0 {
		refused = fmt.Sprintf(`(SELECT i.refused FROM {item} i WHERE i.replay = %d AND i.message = m.id)`, f.RefusedBy)
	}
	if f.SentBy != 0 {
		outcome = a.outcomeColumn(fmt.Sprint(f.SentBy))
	}
	rows := a.db.Rows(ctx, `SELECT m.id, m.grp, m.state, q.name, m.failed_queue, m.archived, m.exchange, m.routing_key,
			m.attempts, m.reason, m.error, m.first_failed, m.last_failed, CASE WHEN m.edited > 0 THEN 1 ELSE 0 END, m.replay, m.back, m.back_of, m.discarded, `+refused+`, m.message_id, m.size, `+outcome+`
		FROM {message} m JOIN {queue} q ON q.id = m.queue WHERE `+a.d.in("m.pos", "$1")+` ORDER BY m.pos DESC`, list(a.d, at))
	var s failed.Summary
	var state int
	var found sql.NullInt64
	for err := range rows.Scan(&s.ID, &s.Group, &state, &s.Queue, &s.FailedQueue, sqlkit.Time(&s.Archived), &s.Exchange, &s.RoutingKey,
		&s.Attempts, &s.Reason, &s.Error, sqlkit.Time(&s.FirstFailed), sqlkit.Time(&s.LastFailed), &s.Edited, &s.ReplayedBy, &s.Back, &s.BackOf,
		sqlkit.Text(&s.Discarded), sqlkit.Text(&s.Refused), &s.MessageID, &s.Size, &found) {
		if err != nil {
			return nil, err
		}
		s.State = failed.States()[state]
		s.Outcome, s.WhyUnknown = outcomeFrom(found)
		out = append(out, s)
	}
	return out, nil
}

// Each yields complete messages, the oldest failure first, and holds one message at a time in memory. It does not
// include messages that arrive during the iteration. The iteration stops after the first error.
func (a *Archive) Each(ctx context.Context, f failed.Filter) iter.Seq2[*failed.Message, error] {
	return func(yield func(*failed.Message, error) bool) {
		ids, err := a.ids(ctx, f)
		for _, id := range ids {
			var m *failed.Message
			m, err = a.get(ctx, id)
			if errors.Is(err, failed.ErrNotFound) { // a purge has removed the message
				err = nil
				continue
			}
			if err != nil || !yield(m, nil) {
				break
			}
		}
		if err != nil {
			yield(nil, fmt.Errorf("cannot read messages: %w", err))
		}
	}
}

// ids returns the IDs of all selected messages, the oldest failure first.
func (a *Archive) ids(ctx context.Context, f failed.Filter) (ids []failed.ID, err error) {
	s, err := a.selection(ctx, f)
	if err != nil || s == nil {
		return nil, err
	}
	var id failed.ID
	for err := range a.db.Rows(sqlkit.Long(ctx), `SELECT m.id FROM {message} m WHERE `+s.where()+` ORDER BY m.pos`, s.args...).Scan(&id) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// Count returns the number of messages that f selects. If the filter sets only queue, states and group, the result is
// exact. For other filters, Count may stop after a few thousand messages and set Total.More.
func (a *Archive) Count(ctx context.Context, f failed.Filter) (t Total, err error) {
	defer failed.Annotate(&err, "cannot count messages")
	s, err := a.selection(ctx, f)
	if err != nil || s == nil {
		return t, err
	}
	if counted, ok, err := a.counted(ctx, f); ok || err != nil {
		return Total{N: counted}, err
	}
	at, more, err := a.some(ctx, s)
	return Total{N: int64(len(at)), More: more}, err
}

// counted returns the number of selected messages from the counters, if the filter sets only conditions with counters.
// Otherwise ok is false.
func (a *Archive) counted(ctx context.Context, f failed.Filter) (n int64, ok bool, err error) {
	if !f.HasOnlyCounters() {
		return 0, false, nil
	}
	later := `0` // in the same statement as the counters, so that both refer to the same moment
	if f.Through > 0 {
		rest := f
		rest.Through = 0
		s, err := a.selection(ctx, rest)
		if err != nil || s == nil {
			return 0, err == nil, err
		}
		later = fmt.Sprintf(`(SELECT count(*) FROM {message} m WHERE m.id > %d AND %s)`, f.Through, s.where())
	}
	query := `SELECT COALESCE(sum(failed), 0), COALESCE(sum(replaying), 0), COALESCE(sum(replayed), 0), COALESCE(sum(discarded), 0), ` + later + ` FROM `
	var args []any
	if f.Group != 0 {
		args = append(args, int64(f.Group))
		query += `{group} WHERE id = $1`
		if f.Queue != "" {
			args = append(args, []byte(f.Queue))
			query += ` AND queue = (SELECT id FROM {queue} WHERE name = $2)`
		}
	} else {
		query += `{queue}`
		if f.Queue != "" {
			args = append(args, []byte(f.Queue))
			query += ` WHERE name = $1`
		}
	}
	var c Counts
	if err := a.db.Row(ctx, query, args...).Scan(&c.Failed, &c.Replaying, &c.Replayed, &c.Discarded, &n); err != nil {
		return 0, false, err
	}
	n = -n
	by := c.byCode()
	for state, code := range codes {
		if f.States == nil || slices.Contains(f.States, state) {
			n += by[code]
		}
	}
	return n, true, nil
}
