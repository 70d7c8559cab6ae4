package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Replay returns a replay. It returns ErrNotFound if the replay does not exist.
func (a *Archive) Replay(ctx context.Context, id failed.ReplayID) (r *failed.Replay, err error) {
	defer failed.Annotate(&err, "cannot read replay %d", id)
	all, err := a.replays(ctx, `id = $1`, int64(id))
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, &failed.NotFoundError{What: "replay", ID: int64(id)}
	}
	return &all[0], nil
}

// Replays lists replays, newest first.
func (a *Archive) Replays(ctx context.Context, p Page) (all []failed.Replay, next string, err error) {
	defer failed.Annotate(&err, "cannot list replays")
	size, before, err := p.bounds(ofReplays)
	if err != nil {
		return nil, "", err
	}
	all, err = a.replays(ctx, `id < $1 ORDER BY id DESC LIMIT $2`, before, size+1)
	if len(all) > size {
		return all[:size], cursorOf(ofReplays, int64(all[size-1].ID)), nil
	}
	return all, "", err
}

// Running returns all replays that have not ended, oldest first.
func (a *Archive) Running(ctx context.Context) (all []failed.Replay, err error) {
	defer failed.Annotate(&err, "cannot list replays")
	return a.replays(ctx, `ended = 0 ORDER BY id`)
}

func (a *Archive) replays(ctx context.Context, which string, args ...any) (all []failed.Replay, err error) {
	rows := a.db.Rows(ctx, `SELECT id, plan, edit, state, why, actor, begun, ended, total, sent, refused, back, succeeded, settled, retrying, pending FROM {replay} WHERE `+which, args...)
	var r failed.Replay
	var stored storedPlan
	var edit sql.NullString
	var pending int64
	for err := range rows.Scan(&r.ID, sqlkit.JSON(&stored), &edit, &r.State, &r.Why, &r.Actor, sqlkit.Time(&r.Begun), sqlkit.Time(&r.Ended),
		&r.Total, &r.Sent, &r.Refused, &r.Back, &r.Succeeded, &r.Settled, &r.Retrying, &pending) {
		if err != nil {
			return nil, err
		}
		verify(&r, pending, a.Now())
		r.Plan = failed.Plan{Filter: stored.Selected(), Rate: stored.Rate, Ramp: stored.Ramp, Canary: stored.Canary, IgnoreSame: stored.IgnoreSame, ByQueueName: stored.ByQueueName}
		if to := stored.To; to != nil {
			r.Plan.To = &failed.Target{Exchange: string(to.Exchange), RoutingKey: string(to.RoutingKey)}
		}
		if r.Plan.Edit, err = decodeEdit(edit); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

const maxNext = 16 << 20

// UnsentOf returns up to n unsent messages of a replay in state running, the oldest failure first. For other states
// it returns none. It returns fewer messages if their bodies together exceed 16 MiB, but at least one if any is
// unsent.
func (a *Archive) UnsentOf(ctx context.Context, id failed.ReplayID, n int) (_ []*failed.Message, err error) {
	defer failed.Annotate(&err, "cannot read the messages of replay %d", id)
	if n <= 0 {
		return nil, failed.Invalid("number of messages must be at least 1: got %d", n)
	}
	rows := a.db.Rows(ctx, `SELECT i.message, m.size FROM {item} i JOIN {message} m ON m.id = i.message
		WHERE i.replay = $1 AND i.sent = 0 AND EXISTS (SELECT 1 FROM {replay} WHERE id = $1 AND state = 'running') ORDER BY i.pos LIMIT $2`, int64(id), n)
	var ids []failed.ID
	var next failed.ID
	var size, bytes int
	for err := range rows.Scan(&next, &bytes) {
		if err != nil {
			return nil, err
		}
		if size += bytes; len(ids) > 0 && size > maxNext {
			break
		}
		ids = append(ids, next)
	}
	out := make([]*failed.Message, len(ids))
	for i, id := range ids {
		var err error
		if out[i], err = a.get(ctx, id); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// MarkSent records that the broker has confirmed messages of a replay, and changes their state to replayed. The
// parameter why is the reason why the messages did not request a report; the value Asked means that they did. reached is the queue
// that the replay found for messages without a known work queue, or "". A caller may pass a message more than once. If the replay is no longer running and the message is in state failed, its state
// also becomes replayed, because it was sent.
func (a *Archive) MarkSent(ctx context.Context, id failed.ReplayID, ids []failed.ID, why UnaskedReason, reached string) (err error) {
	defer failed.Annotate(&err, "cannot record %d messages of replay %d as sent", len(ids), id)
	if len(ids) == 0 {
		return nil
	}
	return a.write(ctx, func(tx *tx) error { return tx.markSent(id, ids, why, reached) })
}

func (t *tx) markSent(id failed.ReplayID, ids []failed.ID, why UnaskedReason, reached string) error {
	var c countChanges
	if err := t.replayed(id, ids, &c); err != nil {
		return err
	}
	code := codePending
	if why != Asked {
		code = codeUnknown
	}
	var at []byte
	if reached != "" {
		at = []byte(reached)
	}
	var sent []sentBase
	var s sentBase
	var counts [codeFailedAgain + 1]int // by outcome: some messages may already have failed again
	rows := t.Rows(fmt.Sprintf(`UPDATE {item} SET sent = 1, reached = $3, unasked = %d, outcome = CASE WHEN outcome > %d THEN outcome ELSE %[2]d END
		WHERE replay = $1 AND sent = 0 AND `, why, code)+t.d.in("message", "$2")+` RETURNING message, base, outcome`, int64(id), list(t.d, ids), at)
	for err := range rows.Scan(&s.message, &s.base, &code) {
		if err != nil {
			return err
		}
		sent = append(sent, s)
		counts[code]++
	}
	_, err := t.Exec(`UPDATE {replay} SET sent = sent + $2, pending = pending + $3, back = back + $4 WHERE id = $1`,
		int64(id), len(sent), counts[codePending], counts[codeFailedAgain])
	return errors.Join(err, t.count(c), t.recordEdits(id, sent))
}

// replayed changes the state of messages that a replay has sent. It removes a message from a later replay, which
// would send it a second time.
func (t *tx) replayed(id failed.ReplayID, ids []failed.ID, c *countChanges) error {
	waiting := make(map[failed.ID]failed.ReplayID) // 0: the message is in state failed, because the replay is no longer running
	var message failed.ID
	var replay failed.ReplayID
	var state int
	// The conditions omit the state. Otherwise the database would choose an index on the state.
	rows := t.Rows(`SELECT m.id, m.replay, m.state FROM {item} i JOIN {message} m ON m.id = i.message
		WHERE i.replay = $1 AND i.sent = 0 AND `+t.d.in("i.message", "$2"), int64(id), list(t.d, ids))
	for err := range rows.Scan(&message, &replay, &state) {
		switch {
		case err != nil:
			return err
		case state == codes[failed.Replaying]:
			waiting[message] = replay
		case state == codes[failed.Failed]:
			waiting[message] = 0
		}
	}
	from := map[failed.State][]failed.ID{}
	for _, message := range ids {
		replay, found := waiting[message]
		switch {
		case !found:
			continue
		case replay == id:
			from[failed.Replaying] = append(from[failed.Replaying], message)
			continue
		case replay != 0:
			if err := t.refuse(replay, Refusal{message, fmt.Sprintf("replay %d has sent it", id)}, c); err != nil {
				return err
			}
		}
		from[failed.Failed] = append(from[failed.Failed], message)
	}
	for state, messages := range from {
		_, err := t.update(c, failed.Replayed, fmt.Sprintf(`UPDATE {message} SET state = 2, replay = %d, refused = NULL WHERE %s RETURNING grp, queue, %d`,
			id, t.d.in("id", "$1"), codes[state]), list(t.d, messages))
		if err != nil {
			return err
		}
	}
	return nil
}

// Refusal is the reason why a replay cannot send a message.
type Refusal struct {
	ID  failed.ID
	Why string
}

// MarkRefused records that a running replay cannot send messages in their present form. The messages return to state
// failed, with the reason, and the replay continues without them. A caller may pass a message more than once.
// MarkRefused ignores messages that were sent, or that do not belong to the replay.
func (a *Archive) MarkRefused(ctx context.Context, id failed.ReplayID, refusals []Refusal) (err error) {
	defer failed.Annotate(&err, "cannot record %d refusals of replay %d", len(refusals), id)
	if len(refusals) == 0 {
		return nil
	}
	return a.write(ctx, func(tx *tx) error {
		var c countChanges
		for _, r := range refusals {
			if err := tx.refuse(id, r, &c); err != nil {
				return err
			}
		}
		return tx.count(c)
	})
}

func (t *tx) refuse(id failed.ReplayID, r Refusal, c *countChanges) error {
	why := failed.Cut(r.Why, maxErrorShown)
	n, err := t.update(c, failed.Failed, `UPDATE {message} SET state = 0, replay = 0, refused = $3 WHERE id = $2 AND state = 1 AND replay = $1 RETURNING grp, queue, 1`,
		int64(id), int64(r.ID), []byte(why))
	if err != nil || n == 0 {
		return err
	}
	if _, err := t.Exec(`UPDATE {item} SET sent = 2, refused = $3 WHERE replay = $1 AND message = $2`, int64(id), int64(r.ID), []byte(why)); err != nil {
		return err
	}
	_, err = t.Exec(`UPDATE {replay} SET refused = refused + 1, why = CASE WHEN length(why) > 0 THEN why ELSE $2 END WHERE id = $1`,
		int64(id), []byte(RefusalText(r)))
	return err
}

// EndReplay ends a running replay as done, cancelled or stopped, with a reason. Unsent messages return to state failed.
// It returns ErrState if s is ReplayDone and messages are left to send.
//
// While a process has the lease of the replay, messages may be in flight. If they returned to state failed immediately,
// an operator could send them a second time. Therefore a cancelled replay is first in state ReplayCancelling, and
// becomes ReplayCancelled when that process releases the lease. If the lease expires instead, the next process that
// claims and releases it, or calls EndReplay again, completes the change.
func (a *Archive) EndReplay(ctx context.Context, id failed.ReplayID, s failed.ReplayState, why string, who failed.Actor) (err error) {
	defer failed.Annotate(&err, "cannot end replay %d", id)
	if err := who.Validate(); err != nil {
		return err
	}
	switch s {
	case failed.ReplayDone, failed.ReplayCancelled, failed.ReplayStopped:
	default:
		return failed.Invalid("final state of a replay must be %q, %q or %q: got %q", failed.ReplayDone, failed.ReplayCancelled, failed.ReplayStopped, s)
	}
	return a.writeMany(ctx, func(tx *tx) error {
		var r failed.Replay
		var lease int64
		err := tx.Row(`SELECT state, why, total, sent, refused, lease FROM {replay} WHERE id = $1`, int64(id)).
			Scan(&r.State, &r.Why, &r.Total, &r.Sent, &r.Refused, &lease)
		claimed := lease > sqlkit.Millis(a.Now())
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return &failed.NotFoundError{What: "replay", ID: int64(id)}
		case err != nil:
			return err
		case r.State == failed.ReplayCancelling && s == failed.ReplayCancelled && !claimed:
			return tx.ended(id, s)
		case r.State != failed.ReplayRunning:
			return fmt.Errorf("%w: replay is already %s", failed.ErrState, r.State)
		case s == failed.ReplayDone && r.Left() > 0:
			return fmt.Errorf("%w: replay must end as cancelled or stopped: %d of %d messages are not sent", failed.ErrState, r.Left(), r.Total)
		}
		if claimed && s == failed.ReplayCancelled {
			_, err = tx.Exec(`UPDATE {replay} SET state = $2 WHERE id = $1`, int64(id), string(failed.ReplayCancelling))
		} else {
			err = tx.ended(id, s)
		}
		if err != nil {
			return err
		}
		if _, err := tx.Exec(`UPDATE {replay} SET why = $2 WHERE id = $1`, int64(id), []byte(cmp.Or(why, r.Why))); err != nil {
			return err
		}
		_, err = tx.act(who, actEndReplay, fmt.Sprint("replay/", id), map[string]any{
			"state": s, "why": why, "messages": r.Total, "sent": r.Sent, "refused": r.Refused,
		})
		return err
	})
}

// ended ends a replay and returns its unsent messages to state failed.
func (t *tx) ended(id failed.ReplayID, as failed.ReplayState) error {
	rest := &selection{d: t.d, others: []string{fmt.Sprint(`m.replay = `, id)}, until: math.MaxInt64}
	_, err := t.move(rest, move{from: failed.Replaying, to: failed.Failed, set: func(*selection) string { return `, replay = 0` }})
	if err != nil {
		return err
	}
	_, err = t.Exec(`UPDATE {replay} SET state = $2, ended = $3 WHERE id = $1`, int64(id), string(as), sqlkit.Millis(t.Now()))
	return err
}

// BeginReplay selects the messages of the plan for a new replay, in one transaction. Their state becomes replaying.
// Messages that arrive later do not belong to the replay. BeginReplay does not send messages; a Replayer does. It
// returns ErrNotFound if the filter selects no failed messages, and ErrState if it selects more than Filter.AtMost.
func (a *Archive) BeginReplay(ctx context.Context, p failed.Plan, who failed.Actor) (r *failed.Replay, err error) {
	defer failed.Annotate(&err, "cannot begin a replay")
	b, err := a.beginning(ctx, p, who)
	if err != nil {
		return nil, err
	}
	err = a.writeMany(ctx, func(tx *tx) error {
		r, err = tx.begin(b)
		return err
	})
	if err != nil {
		return nil, err // r is invalid if the commit failed
	}
	return r, nil
}

// storedPlan is the JSON form of a Plan in the column {replay}.plan.
type storedPlan struct {
	failed.Selection
	To         *storedTarget
	Rate       float64
	Ramp       bool
	Canary     time.Duration
	IgnoreSame bool

	ByQueueName bool
}

// storedTarget is a Target whose names need not be UTF-8.
type storedTarget struct{ Exchange, RoutingKey params.Text }

// beginning is a validated replay that can be stored.
type beginning struct {
	plan    failed.Plan
	who     failed.Actor
	written []byte         // the plan as JSON, without its edit
	edit    sql.NullString // null: no edit
	s       *selection
}

func (a *Archive) beginning(ctx context.Context, p failed.Plan, who failed.Actor) (b beginning, err error) {
	b = beginning{plan: p, who: who}
	if err := errors.Join(who.Validate(), p.Validate(), p.Filter.CheckForAct()); err != nil {
		return b, err
	}
	var to *storedTarget
	if p.To != nil {
		to = &storedTarget{params.Text(p.To.Exchange), params.Text(p.To.RoutingKey)}
	}
	if b.written, err = json.Marshal(storedPlan{failed.SelectionOf(p.Filter), to, p.Rate, p.Ramp, p.Canary, p.IgnoreSame, p.ByQueueName}); err != nil {
		return b, err
	}
	if b.edit, err = encodeEdit(p.Edit); err != nil {
		return b, err
	}
	b.s, err = a.selection(ctx, p.Filter)
	if err == nil && b.s == nil {
		err = fmt.Errorf("%w: no message is selected", failed.ErrNotFound)
	}
	return b, err
}

func (t *tx) begin(b beginning) (*failed.Replay, error) {
	id, err := t.next("replay", 1)
	if err != nil {
		return nil, err
	}
	r := &failed.Replay{ID: failed.ReplayID(id), Plan: b.plan, State: failed.ReplayRunning, Actor: b.who, Begun: t.Now()}
	moved, err := t.move(b.s, move{from: failed.Failed, to: failed.Replaying, set: func(*selection) string { return fmt.Sprint(`, refused = NULL, replay = `, id) }})
	if err != nil {
		return nil, err
	}
	if r.Total = int64(len(moved)); r.Total == 0 {
		return nil, fmt.Errorf("%w: no failed message is selected", failed.ErrNotFound)
	}
	if err := b.plan.Filter.Allows(r.Total); err != nil {
		return nil, err
	}
	if _, err := t.Exec(`INSERT INTO {item} (replay, message, pos, base) SELECT replay, id, pos, edited FROM {message} WHERE state = 1 AND replay = $1`, id); err != nil {
		return nil, err
	}
	if _, err := t.Exec(`INSERT INTO {replay} (id, plan, edit, state, why, actor, begun, total) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		id, string(b.written), b.edit, string(r.State), []byte{}, []byte(b.who), sqlkit.Millis(r.Begun), r.Total); err != nil {
		return nil, err
	}
	details := map[string]any{"messages": r.Total, "filter": b.plan.Filter.Describe(), "rate": b.plan.Rate, "ramp": b.plan.Ramp, "canary": b.plan.Canary.String()}
	if b.plan.To != nil {
		details["to"] = b.plan.To
	}
	if b.plan.ByQueueName {
		details["by_queue_name"] = true
	}
	if b.edit.Valid {
		details["edit"] = json.RawMessage(b.edit.String)
	}
	if _, err := t.act(b.who, actReplay, fmt.Sprint("replay/", id), details); err != nil {
		return nil, err
	}
	return r, nil
}

// RefusalText returns the reason for a refusal, with the ID of the message.
func RefusalText(r Refusal) string { return fmt.Sprintf("cannot send message %d: %s", r.ID, r.Why) }
