package failed

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Plan says what to replay and how.
type Plan struct {
	// Filter selects the messages, of those in state failed.
	Filter Filter

	// To is where they are sent. Nil: to the work queue that each failed in.
	To *Target

	// Rate is the most messages to send per second. 0: no limit.
	Rate float64

	// Ramp begins with one message per second, then 2, 5, 10 and so on up to Rate,
	// or without an end.
	Ramp bool

	// Edit changes the messages when they are sent. Nil: they are sent as they are.
	Edit *BulkEdit

	// Canary makes the replay send one message first, and wait for its outcome. If it succeeds, the others are sent. If its first
	// attempt fails, the replay stops. Canary is the longest time to wait. If there is no outcome then, the replay stops if a
	// report was asked for and workers of the queue have reported outcomes before; else it goes on. 0: no canary.
	Canary time.Duration

	// IgnoreSame lets the replay go on although messages fail again with a fingerprint
	// that they had before. By default it stops by itself.
	IgnoreSame bool
}

// Target is an exchange and a routing key.
type Target struct{ Exchange, RoutingKey string }

// ReplayState is how far a replay is.
type ReplayState string

// The states of a replay.
const (
	ReplayRunning    ReplayState = "running"
	ReplayCancelling ReplayState = "cancelling" // by a person; what is on its way is waited for
	ReplayDone       ReplayState = "done"       // all has been sent that can be
	ReplayCancelled  ReplayState = "cancelled"  // by a person
	ReplayStopped    ReplayState = "stopped"    // by itself: Replay.Why says why
)

// Replay is a selection of messages on their way back.
type Replay struct {
	ID    ReplayID
	Plan  Plan
	State ReplayState
	Why   string // it was cancelled or stopped, or the first that is Refused
	Actor Actor  // who began it
	Begun time.Time
	Ended time.Time // zero while it runs

	Total   int64 // messages selected
	Sent    int64 // of them, sent and confirmed
	Refused int64 // of them, such as can never be sent: Message.Refused says why

	// Of those sent: see Outcome.
	Back      int64 // failed again
	Succeeded int64
	Settled   int64
	Retrying  int64
	Unknown   int64

	// Verifying says that it is ReplayDone, not all outcomes are known, and VerifyTime is not over.
	Verifying bool
}

// Left is how many messages are neither sent nor refused.
func (r *Replay) Left() int64 { return r.Total - r.Sent - r.Refused }

// validate reports what cannot be done.
func (p Plan) validate() error {
	if p.Rate < 0 || math.IsNaN(p.Rate) || math.IsInf(p.Rate, 0) {
		return fmt.Errorf("%w: Plan.Rate %v: use messages per second, or 0 for no limit", ErrInvalid, p.Rate)
	}
	if p.To != nil && *p.To == (Target{}) {
		return fmt.Errorf("%w: Plan.To is empty: name a routing key, and an exchange unless it is a queue; or leave it nil for the queue that each message failed in", ErrInvalid)
	}
	if p.Canary < 0 {
		return fmt.Errorf("%w: Plan.Canary %s is negative: use 0 for none", ErrInvalid, p.Canary)
	}
	if p.Edit != nil {
		return p.Edit.Validate()
	}
	return nil
}

// Replay returns a replay, or ErrNotFound.
func (a *Archive) Replay(ctx context.Context, id ReplayID) (r *Replay, err error) {
	defer annotate(&err, "reading replay %d", id)
	all, err := a.replays(ctx, `id = $1`, int64(id))
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, &NotFoundError{"replay", int64(id)}
	}
	return &all[0], nil
}

// Replays lists replays, newest first.
func (a *Archive) Replays(ctx context.Context, p Page) (all []Replay, next string, err error) {
	defer annotate(&err, "listing replays")
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

// Running returns all replays that are under way, oldest first.
func (a *Archive) Running(ctx context.Context) (all []Replay, err error) {
	defer annotate(&err, "listing replays")
	return a.replays(ctx, `ended = 0 ORDER BY id`)
}

func (a *Archive) replays(ctx context.Context, which string, args ...any) (all []Replay, err error) {
	rows := a.db.Rows(ctx, `SELECT id, plan, edit, state, why, actor, begun, ended, total, sent, refused, back, succeeded, settled, retrying, pending FROM {replay} WHERE `+which, args...)
	var r Replay
	var stored storedPlan
	var edit sql.NullString
	var pending int64
	for err := range rows.Scan(&r.ID, sqlkit.JSON(&stored), &edit, &r.State, &r.Why, &r.Actor, sqlkit.Time(&r.Begun), sqlkit.Time(&r.Ended),
		&r.Total, &r.Sent, &r.Refused, &r.Back, &r.Succeeded, &r.Settled, &r.Retrying, &pending) {
		if err != nil {
			return nil, err
		}
		r.verify(pending, a.now())
		r.Plan = Plan{Filter: Filter(stored.Filter), To: stored.To, Rate: stored.Rate, Ramp: stored.Ramp, Canary: stored.Canary, IgnoreSame: stored.IgnoreSame}
		if r.Plan.Edit, err = decodeEdit(edit); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

const maxNext = 16 << 20

// unsentOf returns up to n messages of a running replay that have not been sent, the
// oldest failure first; none if it has ended, or is about to. Fewer, but at least one if there is
// any, where their bodies would take more than 16 MiB together.
func (a *Archive) unsentOf(ctx context.Context, id ReplayID, n int) (_ []*Message, err error) {
	defer annotate(&err, "reading what replay %d has to send", id)
	if n <= 0 {
		return nil, fmt.Errorf("%w: %d messages: ask for one at least", ErrInvalid, n)
	}
	rows := a.db.Rows(ctx, `SELECT i.message, m.size FROM {item} i JOIN {message} m ON m.id = i.message
		WHERE i.replay = $1 AND i.sent = 0 AND EXISTS (SELECT 1 FROM {replay} WHERE id = $1 AND state = 'running') ORDER BY i.pos LIMIT $2`, int64(id), n)
	var ids []ID
	var next ID
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
	out := make([]*Message, len(ids))
	for i, id := range ids {
		var err error
		if out[i], err = a.get(ctx, id); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// markSent notes that messages of a replay have been sent and confirmed, and why they ask for no report, if they do not: they are
// replayed. It may be told of one more than once. A message that it is told of
// after the end of the replay is replayed as well, if it is in state failed: it
// has been sent.
func (a *Archive) markSent(ctx context.Context, id ReplayID, ids []ID, why unasked) (err error) {
	defer annotate(&err, "noting %d messages of replay %d as sent", len(ids), id)
	if len(ids) == 0 {
		return nil
	}
	return a.write(ctx, func(tx *tx) error { return tx.markSent(id, ids, why) })
}

func (t *tx) markSent(id ReplayID, ids []ID, why unasked) error {
	var c counting
	if err := t.replayed(id, ids, &c); err != nil {
		return err
	}
	code := codePending
	if why != asked {
		code = codeUnknown
	}
	var sent []sentBase
	var s sentBase
	var counts [codeFailedAgain + 1]int // by outcome: a message may have failed again already
	rows := t.Rows(fmt.Sprintf(`UPDATE {item} SET sent = 1, unasked = %d, outcome = CASE WHEN outcome > %d THEN outcome ELSE %[2]d END
		WHERE replay = $1 AND sent = 0 AND `, why, code)+t.d.in("message", "$2")+` RETURNING message, base, outcome`, int64(id), list(t.d, ids))
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

// replayed changes the state of messages that a replay has sent. A message that waits in a later replay, which would send it a second
// time, is taken out of it.
func (t *tx) replayed(id ReplayID, ids []ID, c *counting) error {
	waiting := make(map[ID]ReplayID) // 0: the message is failed again, since the replay has ended
	var message ID
	var replay ReplayID
	var state int
	// There are no states in the conditions: databases take an index of all messages in a state then.
	rows := t.Rows(`SELECT m.id, m.replay, m.state FROM {item} i JOIN {message} m ON m.id = i.message
		WHERE i.replay = $1 AND i.sent = 0 AND `+t.d.in("i.message", "$2"), int64(id), list(t.d, ids))
	for err := range rows.Scan(&message, &replay, &state) {
		switch {
		case err != nil:
			return err
		case state == codes[Replaying]:
			waiting[message] = replay
		case state == codes[Failed]:
			waiting[message] = 0
		}
	}
	from := map[State][]ID{}
	for _, message := range ids {
		replay, found := waiting[message]
		switch {
		case !found:
			continue
		case replay == id:
			from[Replaying] = append(from[Replaying], message)
			continue
		case replay != 0:
			if err := t.refuse(replay, refusal{message, fmt.Sprintf("replay %d has sent it", id)}, c); err != nil {
				return err
			}
		}
		from[Failed] = append(from[Failed], message)
	}
	for state, messages := range from {
		_, err := t.update(c, Replayed, fmt.Sprintf(`UPDATE {message} SET state = 2, replay = %d, refused = NULL WHERE %s RETURNING grp, queue, %d`,
			id, t.d.in("id", "$1"), codes[state]), list(t.d, messages))
		if err != nil {
			return err
		}
	}
	return nil
}

// refusal is why a message can never be sent.
type refusal struct {
	ID  ID
	Why string
}

// markRefused notes that messages of a running replay can never be sent as they are: they
// are failed again, with the reason on them, and the replay goes on without them. It
// may be told of one more than once; one that has been sent, or is not of the replay,
// is left as it is.
func (a *Archive) markRefused(ctx context.Context, id ReplayID, refusals []refusal) (err error) {
	defer annotate(&err, "noting that %d messages of replay %d cannot be sent", len(refusals), id)
	if len(refusals) == 0 {
		return nil
	}
	return a.write(ctx, func(tx *tx) error {
		var c counting
		for _, r := range refusals {
			if err := tx.refuse(id, r, &c); err != nil {
				return err
			}
		}
		return tx.count(c)
	})
}

func (t *tx) refuse(id ReplayID, r refusal, c *counting) error {
	why := cut(r.Why, maxErrorShown)
	n, err := t.update(c, Failed, `UPDATE {message} SET state = 0, replay = 0, refused = $3 WHERE id = $2 AND state = 1 AND replay = $1 RETURNING grp, queue, 1`,
		int64(id), int64(r.ID), []byte(why))
	if err != nil || n == 0 {
		return err
	}
	if _, err := t.Exec(`UPDATE {item} SET sent = 2, refused = $3 WHERE replay = $1 AND message = $2`, int64(id), int64(r.ID), []byte(why)); err != nil {
		return err
	}
	_, err = t.Exec(`UPDATE {replay} SET refused = refused + 1, why = CASE WHEN length(why) > 0 THEN why ELSE $2 END WHERE id = $1`,
		int64(id), []byte(unsent(r)))
	return err
}

// EndReplay ends a running replay: done, cancelled or stopped, and why. What was not
// sent is in state failed again. Done is refused while there is anything left to send.
//
// While a process has claimed the replay, messages of it may be on their way. If they were
// in state failed again at once, somebody could send them a second time. So the replay is
// ReplayCancelling, and becomes ReplayCancelled when that process releases it, or when the
// lease is over and the next process releases it or ends it once more.
func (a *Archive) EndReplay(ctx context.Context, id ReplayID, s ReplayState, why string, who Actor) (err error) {
	defer annotate(&err, "ending replay %d", id)
	if err := who.validate(); err != nil {
		return err
	}
	switch s {
	case ReplayDone, ReplayCancelled, ReplayStopped:
	default:
		return fmt.Errorf("%w: a replay does not end as %q: use %q, %q or %q", ErrInvalid, s, ReplayDone, ReplayCancelled, ReplayStopped)
	}
	return a.writeMany(ctx, func(tx *tx) error {
		var r Replay
		var lease int64
		err := tx.Row(`SELECT state, why, total, sent, refused, lease FROM {replay} WHERE id = $1`, int64(id)).
			Scan(&r.State, &r.Why, &r.Total, &r.Sent, &r.Refused, &lease)
		claimed := lease > sqlkit.Millis(a.now())
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return &NotFoundError{"replay", int64(id)}
		case err != nil:
			return err
		case r.State == ReplayCancelling && s == ReplayCancelled && !claimed:
			return tx.ended(id, s)
		case r.State != ReplayRunning:
			return fmt.Errorf("%w: it is %s already", ErrState, r.State)
		case s == ReplayDone && r.Left() > 0:
			return fmt.Errorf("%w: %d of %d messages have not been sent: it is cancelled or stopped", ErrState, r.Left(), r.Total)
		}
		if claimed && s == ReplayCancelled {
			_, err = tx.Exec(`UPDATE {replay} SET state = $2 WHERE id = $1`, int64(id), string(ReplayCancelling))
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

// ended ends a replay; what it has not sent is failed again.
func (t *tx) ended(id ReplayID, as ReplayState) error {
	rest := &selection{d: t.d, others: []string{fmt.Sprint(`m.replay = `, id)}, until: math.MaxInt64}
	_, err := t.move(rest, move{from: Replaying, to: Failed, set: func(*selection) string { return `, replay = 0` }})
	if err != nil {
		return err
	}
	_, err = t.Exec(`UPDATE {replay} SET state = $2, ended = $3 WHERE id = $1`, int64(id), string(as), sqlkit.Millis(t.now()))
	return err
}

// BeginReplay selects the messages of the plan for a new replay, in one transaction:
// they become replaying, and what arrives later is not part of it. It sends
// nothing: that is a Replayer's work. ErrNotFound if nothing is selected; ErrState if more
// messages are selected than Filter.AtMost.
func (a *Archive) BeginReplay(ctx context.Context, p Plan, who Actor) (r *Replay, err error) {
	defer annotate(&err, "beginning a replay")
	b, err := a.beginning(ctx, p, who)
	if err != nil {
		return nil, err
	}
	err = a.writeMany(ctx, func(tx *tx) error {
		r, err = tx.begin(b)
		return err
	})
	if err != nil {
		return nil, err // the commit may have failed
	}
	return r, nil
}

// storedPlan is a Plan as {replay}.plan has it, in JSON whose names are those of the fields.
type storedPlan struct {
	Filter     storedFilter
	To         *Target
	Rate       float64
	Ramp       bool
	Canary     time.Duration
	IgnoreSame bool
}

type storedFilter Filter

// beginning is a replay that is ready to begin.
type beginning struct {
	plan    Plan
	who     Actor
	written []byte         // the plan, without its edit
	edit    sql.NullString // null: none
	s       *selection
}

func (a *Archive) beginning(ctx context.Context, p Plan, who Actor) (b beginning, err error) {
	b = beginning{plan: p, who: who}
	if err := errors.Join(who.validate(), p.validate(), p.Filter.meant()); err != nil {
		return b, err
	}
	if b.written, err = json.Marshal(storedPlan{storedFilter(p.Filter), p.To, p.Rate, p.Ramp, p.Canary, p.IgnoreSame}); err != nil {
		return b, err
	}
	if b.edit, err = encodeEdit(p.Edit); err != nil {
		return b, err
	}
	b.s, err = a.selection(ctx, p.Filter)
	if err == nil && b.s == nil {
		err = fmt.Errorf("%w: nothing is selected", ErrNotFound)
	}
	return b, err
}

func (t *tx) begin(b beginning) (*Replay, error) {
	id, err := t.next("replay", 1)
	if err != nil {
		return nil, err
	}
	r := &Replay{ID: ReplayID(id), Plan: b.plan, State: ReplayRunning, Actor: b.who, Begun: t.now()}
	r.Total, err = t.move(b.s, move{from: Failed, to: Replaying, set: func(*selection) string { return fmt.Sprint(`, refused = NULL, replay = `, id) }})
	if err != nil {
		return nil, err
	}
	if r.Total == 0 {
		return nil, fmt.Errorf("%w: nothing that is failed is selected", ErrNotFound)
	}
	if err := b.plan.Filter.allows(r.Total); err != nil {
		return nil, err
	}
	if _, err := t.Exec(`INSERT INTO {item} (replay, message, pos, base) SELECT replay, id, pos, edited FROM {message} WHERE state = 1 AND replay = $1`, id); err != nil {
		return nil, err
	}
	if _, err := t.Exec(`INSERT INTO {replay} (id, plan, edit, state, why, actor, begun, total) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		id, string(b.written), b.edit, string(r.State), []byte{}, []byte(b.who), sqlkit.Millis(r.Begun), r.Total); err != nil {
		return nil, err
	}
	details := map[string]any{"messages": r.Total, "filter": b.plan.Filter.describe(), "rate": b.plan.Rate, "ramp": b.plan.Ramp, "canary": b.plan.Canary.String()}
	if b.plan.To != nil {
		details["to"] = b.plan.To
	}
	if b.edit.Valid {
		details["edit"] = json.RawMessage(b.edit.String)
	}
	if _, err := t.act(b.who, actReplay, fmt.Sprint("replay/", id), details); err != nil {
		return nil, err
	}
	return r, nil
}
