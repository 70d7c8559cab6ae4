package failed

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// run is a replay that is being carried out.
type run struct {
	*Replayer
	replay *Replay // as it was last seen
	pace   *pace
	looked time.Time // when that was
	judged int64     // how many had failed again when they were last judged
	seen   ID        // the latest of them
	failed int       // how often in a row the broker has taken nothing
	warned warned
	edit   *editor // nil: messages are sent as they are
	secret string  // from which the keys of requests are made; "": messages ask for no reports

	askAgain time.Time // when to declare the queue for outcomes again; zero: it was not refused
}

// stopped is why a replay ends by itself.
type stopped struct{ why string }

func (s *stopped) Error() string { return s.why }

// errOver says that a replay has been ended by somebody, or is to be.
var errOver = errors.New("the replay has ended")

// noteGrace is for what the store has to know when the Replayer is to end.
const noteGrace = 5 * time.Second

// carryOut carries out a replay to its end.
func (r *Replayer) carryOut(ctx context.Context, id ReplayID) (*Replay, error) {
	x := &run{Replayer: r, replay: &Replay{ID: id}}
	if err := x.insist(ctx, x.look); err != nil && !errors.Is(err, errOver) {
		return nil, err
	}
	if !x.replay.Ended.IsZero() {
		return x.replay, nil
	}
	err := x.claimed(ctx, x.proceed)
	if errors.Is(err, errOver) { // what was to be cancelled is so now
		longer, cancel := grace(ctx, noteGrace)
		defer cancel()
		err = x.insist(longer, x.look)
	}
	if err != nil && !errors.Is(err, errOver) {
		return x.replay, err
	}
	r.cfg.Logger.Info("replay ended", "replay", id, "state", x.replay.State, "why", x.replay.Why, "sent", x.replay.Sent, "refused", x.replay.Refused)
	return x.replay, nil
}

// proceed sends what is to be sent, and ends the replay.
func (x *run) proceed(ctx context.Context) error {
	if err := x.insist(ctx, x.look); err != nil { // who had it before may have sent some
		return err
	}
	x.cfg.Logger.Info("replay began", "replay", x.replay.ID, "messages", x.replay.Total, "sent", x.replay.Sent)
	err := x.prepareEdit()
	if err == nil {
		err = x.canary(ctx)
	}
	if err == nil {
		err = x.all(ctx)
	}
	if why, byItself := errors.AsType[*stopped](err); byItself {
		return x.end(ctx, ReplayStopped, why.why)
	}
	if err == nil {
		return x.end(ctx, ReplayDone, "")
	}
	return err
}

// prepareEdit reads the edit before anything is sent.
func (x *run) prepareEdit() (err error) {
	if x.replay.Plan.Edit == nil {
		return nil
	}
	if x.edit, err = x.replay.Plan.Edit.compile(x.secrets); err != nil {
		return &stopped{fmt.Sprintf("the edit cannot be carried out: %v", err)}
	}
	return nil
}

// canary sends the first message and waits for its outcome. After a crash it waits again.
func (x *run) canary(ctx context.Context) error {
	if x.replay.Plan.Canary <= 0 || x.replay.Sent > 1 {
		return nil
	}
	for x.replay.Sent == 0 { // what cannot be sent is no canary
		if more, err := x.some(ctx, 1); err != nil || !more {
			return err
		}
	}
	for until := time.Now().Add(x.replay.Plan.Canary); ; {
		left := time.Until(until)
		if err := sleep(ctx, max(0, min(left, x.cfg.Poll))); err != nil {
			return err
		}
		if err := x.insist(ctx, x.look); err != nil {
			return err
		}
		if x.replay.Back > 0 {
			return x.failedAgain(ctx)
		}
		if err := x.retried(ctx); err != nil {
			return err
		}
		switch {
		case x.replay.Succeeded > 0:
			return nil
		case left <= 0:
			return x.silent(ctx)
		}
	}
}

// A queue for outcomes that cannot be declared must not hold up a replay.
const (
	askTimeout = 5 * time.Second // of an attempt to declare it
	askPause   = time.Minute     // before the next one
)

// ask prepares the requests for outcomes that messages are to carry. If the queue for outcomes cannot be declared, messages are
// sent without a request until it can.
func (x *run) ask(ctx context.Context) error {
	// A broker that takes nothing may have been unreachable, and be reachable now.
	if x.outcomes == nil || x.secret != "" || x.failed == 0 && time.Now().Before(x.askAgain) {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := x.outcomes.declare(limited); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if x.askAgain.IsZero() {
			x.cfg.Logger.Warn("replay asks for no outcomes", "replay", x.replay.ID, "error", err)
		}
		x.askAgain = time.Now().Add(askPause)
		return nil
	}
	return x.insist(ctx, func(ctx context.Context) (err error) {
		x.secret, err = x.outcomes.archive.askOutcomes(ctx, x.replay.ID)
		return err
	})
}

// retried returns why the replay has to stop if the first attempt of a message has failed, whatever became of it since.
func (x *run) retried(ctx context.Context) error {
	if x.outcomes == nil {
		return nil
	}
	text, yes := "", false
	err := x.insist(ctx, func(ctx context.Context) (err error) {
		text, yes, err = x.outcomes.archive.retried(ctx, x.replay.ID)
		return err
	})
	if err != nil || !yes {
		return err
	}
	why := "a message failed its first attempt"
	if text != "" {
		why += ": " + text
	}
	return &stopped{why}
}

// silent decides what a canary without an outcome means.
func (x *run) silent(ctx context.Context) error {
	if x.outcomes == nil {
		return nil
	}
	stop := false
	err := x.insist(ctx, func(ctx context.Context) error {
		list, _, err := x.store.List(ctx, Filter{SentBy: x.replay.ID, Outcome: OutcomePending}, Page{Size: 1})
		if err != nil || len(list) == 0 { // no report was asked for
			return err
		}
		m := list[0]
		to, err := x.returns.to(ctx, sentFrom{m.Queue, m.FailedQueue, m.Exchange, m.RoutingKey}, x.replay.Plan.To)
		if err == nil {
			stop, err = x.outcomes.archive.hasReported(ctx, to.Queue)
		}
		return err
	})
	if err == nil && stop {
		return &stopped{fmt.Sprintf("the canary has no outcome after %s", x.replay.Plan.Canary)}
	}
	return err
}

// failedAgain says how the canary failed again.
func (x *run) failedAgain(ctx context.Context) error {
	text := ""
	err := x.insist(ctx, func(ctx context.Context) error {
		list, _, err := x.store.List(ctx, Filter{Replay: x.replay.ID}, Page{Size: 1})
		if err == nil && len(list) > 0 {
			text = ": " + list[0].Error
		}
		return err
	})
	if err != nil {
		return err
	}
	return &stopped{"the canary failed again" + text}
}

// all sends what has not been sent.
func (x *run) all(ctx context.Context) error {
	x.pace = newPace(x.replay.Plan, x.cfg.Batch, time.Now())
	for {
		for {
			wait := x.pace.wait(time.Now())
			if err := sleep(ctx, min(wait, x.cfg.Poll)); err != nil {
				return err
			}
			if err := x.judge(ctx); err != nil {
				return err
			}
			if wait <= x.cfg.Poll {
				break
			}
		}
		more, err := x.some(ctx, x.pace.size(time.Now()))
		if err != nil || !more {
			return err
		}
	}
}

// end ends the replay, unless somebody has.
func (x *run) end(ctx context.Context, s ReplayState, why string) error {
	longer, cancel := grace(ctx, noteGrace)
	defer cancel()
	err := x.insist(longer, func(ctx context.Context) error {
		return x.store.EndReplay(ctx, x.replay.ID, s, why, policyReplay)
	})
	if err != nil && !errors.Is(err, errOver) {
		return err
	}
	return x.insist(longer, x.look)
}

// look sees how far the replay is. errOver: it has ended, or is to.
func (x *run) look(ctx context.Context) error {
	replay, err := x.store.Replay(ctx, x.replay.ID)
	if err != nil {
		return err
	}
	x.replay, x.looked = replay, time.Now()
	if replay.State != ReplayRunning {
		return errOver
	}
	return nil
}

// insist does something with the store until it answers. errOver: it does not allow
// it, since the replay has ended.
func (x *run) insist(ctx context.Context, do func(context.Context) error) error {
	for failures := 1; ; failures++ {
		err := do(ctx)
		switch {
		case errors.Is(err, ErrState):
			if err := x.insist(ctx, x.look); err != nil {
				return err
			}
			return err
		case err == nil, errors.Is(err, errOver), errors.Is(err, ErrNotFound), errors.Is(err, ErrInvalid):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		delay := storeBackoff.Delay(failures)
		x.cfg.Logger.Warn("replay waits", "replay", x.replay.ID, "error", err, "next_try", delay)
		if err := sleep(ctx, delay); err != nil {
			return err
		}
	}
}

// claimed runs f while this Replayer has the replay for itself: errTaken if it has
// not, and why the context of f ends if that has come to be so.
func (x *run) claimed(ctx context.Context, f func(context.Context) error) error {
	id, mine := x.replay.ID, false
	h := hold{lease: x.cfg.Lease, claim: func(ctx context.Context) (bool, error) {
		return x.store.claimReplay(ctx, id, x.owner, x.cfg.Lease)
	}}
	err := x.insist(ctx, func(ctx context.Context) (err error) {
		mine, err = h.claim(ctx)
		return err
	})
	switch {
	case err != nil:
		return err
	case !mine:
		return errTaken
	}
	err = h.run(ctx, f)
	longer, cancel := grace(ctx, noteGrace)
	defer cancel()
	if bad := x.store.releaseReplay(longer, id, x.owner); bad != nil && !errors.Is(bad, context.Canceled) {
		x.cfg.Logger.Warn("replay waits", "replay", id, "error", bad, "next_try", time.Duration(0))
	}
	return err
}

// judge looks now and then at what has failed again, and stops the replay if one of its
// messages has failed with the fingerprint it had before: then the others will.
func (x *run) judge(ctx context.Context) error {
	if time.Since(x.looked) < x.cfg.Poll {
		return nil
	}
	if err := x.insist(ctx, x.look); err != nil {
		return err
	}
	if x.replay.Plan.IgnoreSame {
		return nil
	}
	if x.replay.Plan.Ramp {
		if err := x.retried(ctx); err != nil {
			return err
		}
	}
	if x.replay.Back == x.judged {
		return nil
	}
	x.judged = x.replay.Back
	var why error
	err := x.insist(ctx, func(ctx context.Context) (err error) {
		why, err = x.same(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return why
}

// same returns why the replay has to stop, of what has failed again since it was last
// asked.
func (x *run) same(ctx context.Context) (why, err error) {
	latest := x.seen
	page := Page{Size: 100}
	for {
		list, next, err := x.store.List(ctx, Filter{Replay: x.replay.ID}, page)
		if err != nil {
			return nil, err
		}
		fresh := false
		for _, s := range list {
			if s.ID <= x.seen {
				continue
			}
			fresh, latest = true, max(latest, s.ID)
			was, err := x.store.Get(ctx, s.BackOf)
			switch {
			case errors.Is(err, ErrNotFound): // purged
				continue
			case err != nil:
				return nil, err
			case was.ReplayedBy != x.replay.ID: // somebody has made that up
				continue
			}
			is, err := x.store.Get(ctx, s.ID)
			switch {
			case errors.Is(err, ErrNotFound):
				continue
			case err != nil:
				return nil, err
			}
			if fingerprint(is.Error) == fingerprint(was.Error) {
				return &stopped{fmt.Sprintf("message %d failed again as %d with the same error: %s", was.ID, is.ID, is.Error)}, nil
			}
		}
		if next == "" || !fresh && len(list) > 0 {
			x.seen = latest
			return nil, nil
		}
		page.After = next
	}
}
