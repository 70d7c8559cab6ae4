package failed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

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
	return r, err
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
	written []byte // the plan
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
	r := &Replay{ID: ReplayID(id), Plan: b.plan, State: ReplayRunning, Actor: b.who, Begun: sqlkit.TimeOf(sqlkit.Millis(t.now()))}
	c, err := t.move(b.s, move{from: Failed, to: Replaying, set: func(*selection) string { return fmt.Sprint(`, refused = NULL, replay = `, id) }})
	if err != nil {
		return nil, err
	}
	if r.Total = c.of(codes[Replaying]); r.Total == 0 {
		return nil, fmt.Errorf("%w: nothing that is failed is selected", ErrNotFound)
	}
	if err := b.plan.Filter.allows(r.Total); err != nil {
		return nil, err
	}
	if err := t.count(c); err != nil {
		return nil, err
	}
	if _, err := t.Exec(`INSERT INTO {item} (replay, message, pos) SELECT replay, id, pos FROM {message} WHERE state = 1 AND replay = $1`, id); err != nil {
		return nil, err
	}
	if _, err := t.Exec(`INSERT INTO {replay} (id, plan, state, why, actor, begun, total) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		id, string(b.written), string(r.State), []byte{}, []byte(b.who), sqlkit.Millis(r.Begun), r.Total); err != nil {
		return nil, err
	}
	details := map[string]any{"messages": r.Total, "filter": b.plan.Filter.describe(), "rate": b.plan.Rate, "ramp": b.plan.Ramp, "canary": b.plan.Canary.String()}
	if b.plan.To != nil {
		details["to"] = b.plan.To
	}
	if _, err := t.act(b.who, actReplay, fmt.Sprint("replay/", id), details); err != nil {
		return nil, err
	}
	return r, nil
}
