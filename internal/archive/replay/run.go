package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/background"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/retry"
)

// run is the execution of a replay.
type run struct {
	*Replayer
	replay *failed.Replay // last known state of the replay
	pace   *pace
	looked time.Time // time at which replay was read
	judged int64     // number of messages that had failed again at the last call of judge
	seen   failed.ID // the latest message that failed again and was judged
	failed int       // consecutive batches that failed without an accepted message
	warned warnedQueues
	edit   *failed.Editor // nil: no edit
	secret string         // generates the keys of requests; "": messages do not request reports

	askAgain time.Time // time of the next attempt to declare the queue for outcomes; zero: no failure yet
}

// stopError ends a replay in state ReplayStopped. why becomes Replay.Why.
type stopError struct{ why string }

func (s *stopError) Error() string { return s.why }

// errOver is returned unless the state of the replay is ReplayRunning.
var errOver = errors.New("replay ended")

// execute runs a replay until its state is final, or until an error prevents that.
func (r *Replayer) execute(ctx context.Context, id failed.ReplayID) (*failed.Replay, error) {
	x := &run{Replayer: r, replay: &failed.Replay{ID: id}}
	if err := x.retry(ctx, x.refresh); err != nil && !errors.Is(err, errOver) {
		return nil, err
	}
	if !x.replay.Ended.IsZero() {
		return x.replay, nil
	}
	err := x.withLease(ctx, x.proceed)
	if errors.Is(err, errOver) { // the release has completed the cancellation
		longer, cancel := background.Grace(ctx, background.NoteGrace)
		defer cancel()
		err = x.retry(longer, x.refresh)
	}
	if err != nil && !errors.Is(err, errOver) {
		return x.replay, err
	}
	r.cfg.Logger.Info("replay ended", "replay", id, "state", x.replay.State, "why", x.replay.Why, "sent", x.replay.Sent, "refused", x.replay.Refused)
	return x.replay, nil
}

// proceed sends the messages and ends the replay.
func (x *run) proceed(ctx context.Context) error {
	if err := x.retry(ctx, x.refresh); err != nil { // the previous Replayer may have sent some messages
		return err
	}
	x.cfg.Logger.Info("replay began", "replay", x.replay.ID, "messages", x.replay.Total, "sent", x.replay.Sent)
	err := x.prepareEdit()
	if err == nil {
		err = x.canary(ctx)
	}
	if err == nil {
		err = x.sendAll(ctx)
	}
	if why, byItself := errors.AsType[*stopError](err); byItself {
		return x.end(ctx, failed.ReplayStopped, why.why)
	}
	if err == nil {
		return x.end(ctx, failed.ReplayDone, "")
	}
	return err
}

// prepareEdit compiles the edit before the first message.
func (x *run) prepareEdit() (err error) {
	if x.replay.Plan.Edit == nil {
		return nil
	}
	if x.edit, err = x.replay.Plan.Edit.Compile(x.secrets); err != nil {
		return &stopError{fmt.Sprintf("cannot apply the edit: %v", err)}
	}
	return nil
}

// canary sends the first message and waits for its outcome. After a crash it waits again, with the full timeout.
func (x *run) canary(ctx context.Context) error {
	if x.replay.Plan.Canary <= 0 || x.replay.Sent > 1 {
		return nil
	}
	for x.replay.Sent == 0 { // a refused message cannot be the canary
		if more, err := x.sendBatch(ctx, 1); err != nil || !more {
			return err
		}
	}
	for until := time.Now().Add(x.replay.Plan.Canary); ; {
		left := time.Until(until)
		if err := retry.Sleep(ctx, max(0, min(left, x.cfg.Poll))); err != nil {
			return err
		}
		if err := x.retry(ctx, x.refresh); err != nil {
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
			return &stopError{fmt.Sprintf("the canary is unproven: it has no outcome after %s", x.replay.Plan.Canary)}
		}
	}
}

// Limits of the attempts to declare the queue for outcomes. If an attempt fails, the replay continues without requests.
const (
	askTimeout = 5 * time.Second // maximum duration of an attempt to declare the queue
	askPause   = time.Minute     // delay before the next attempt
)

// ask prepares requests for outcome reports. While the queue for outcomes cannot be declared, the replay sends
// messages without a request.
func (x *run) ask(ctx context.Context) error {
	// If the last batch failed, the broker may have been unreachable and may be reachable now, so ask does not wait
	// for askAgain.
	if x.outcomes == nil || x.secret != "" || x.failed == 0 && time.Now().Before(x.askAgain) {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	err := x.outcomes.Declare(limited)
	for errors.Is(err, reprise.ErrDisconnected) && limited.Err() == nil {
		// another process may have created the queue at the same time: see collector.declare
		err = x.outcomes.Declare(limited)
	}
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if x.askAgain.IsZero() {
			x.cfg.Logger.Warn("replay does not request outcomes", "replay", x.replay.ID, "error", err)
		}
		x.askAgain = time.Now().Add(askPause)
		return nil
	}
	return x.retry(ctx, func(ctx context.Context) (err error) {
		x.secret, err = x.archive.AskOutcomes(ctx, x.replay.ID)
		return err
	})
}

// retried returns the reason to stop the replay if the first attempt of any message has failed, regardless of the
// current outcome of the message.
func (x *run) retried(ctx context.Context) error {
	if x.outcomes == nil {
		return nil
	}
	text, yes := "", false
	err := x.retry(ctx, func(ctx context.Context) (err error) {
		text, yes, err = x.archive.Retried(ctx, x.replay.ID)
		return err
	})
	if err != nil || !yes {
		return err
	}
	why := "a message failed its first attempt"
	if text != "" {
		why += ": " + text
	}
	return &stopError{why}
}

// failedAgain returns the reason to stop after the canary failed again, with its error.
func (x *run) failedAgain(ctx context.Context) error {
	text := ""
	err := x.retry(ctx, func(ctx context.Context) error {
		list, _, err := x.store.List(ctx, failed.Filter{Replay: x.replay.ID}, store.Page{Size: 1})
		if err == nil && len(list) > 0 {
			text = ": " + list[0].Error
		}
		return err
	})
	if err != nil {
		return err
	}
	return &stopError{"the canary failed again" + text}
}

// sendAll sends the unsent messages at the pace of the plan.
func (x *run) sendAll(ctx context.Context) error {
	x.pace = newPace(x.replay.Plan, x.cfg.Batch, time.Now())
	for {
		for {
			wait := x.pace.wait(time.Now())
			if err := retry.Sleep(ctx, min(wait, x.cfg.Poll)); err != nil {
				return err
			}
			if err := x.judge(ctx); err != nil {
				return err
			}
			if wait <= x.cfg.Poll {
				break
			}
		}
		more, err := x.sendBatch(ctx, x.pace.size(time.Now()))
		if err != nil || !more {
			return err
		}
	}
}

// end ends the replay, unless it has already ended.
func (x *run) end(ctx context.Context, s failed.ReplayState, why string) error {
	longer, cancel := background.Grace(ctx, background.NoteGrace)
	defer cancel()
	err := x.retry(longer, func(ctx context.Context) error {
		return x.store.EndReplay(ctx, x.replay.ID, s, why, policyReplay)
	})
	if err != nil && !errors.Is(err, errOver) {
		return err
	}
	return x.retry(longer, x.refresh)
}

// refresh reads the state of the replay. It returns errOver unless the state is ReplayRunning.
func (x *run) refresh(ctx context.Context) error {
	replay, err := x.store.Replay(ctx, x.replay.ID)
	if err != nil {
		return err
	}
	x.replay, x.looked = replay, time.Now()
	if replay.State != failed.ReplayRunning {
		return errOver
	}
	return nil
}

// retry calls the function do until the database responds. If do returns ErrState and the replay is no longer running,
// retry returns errOver.
func (x *run) retry(ctx context.Context, do func(context.Context) error) error {
	for failures := 1; ; failures++ {
		err := do(ctx)
		switch {
		case errors.Is(err, failed.ErrState):
			if err := x.retry(ctx, x.refresh); err != nil {
				return err
			}
			return err
		case err == nil, errors.Is(err, errOver), errors.Is(err, failed.ErrNotFound), errors.Is(err, failed.ErrInvalid):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		delay := background.StoreBackoff.Delay(failures)
		x.cfg.Logger.Warn("replay waits", "replay", x.replay.ID, "error", err, "next_try", delay)
		if err := retry.Sleep(ctx, delay); err != nil {
			return err
		}
	}
}

// withLease runs f while this Replayer has the lease of the replay. It returns ErrTaken if another Replayer has the
// lease. If another Replayer takes the lease while f runs, withLease also cancels the context of f.
func (x *run) withLease(ctx context.Context, f func(context.Context) error) error {
	id, mine := x.replay.ID, false
	h := background.Lease{Lease: x.cfg.Lease, Claim: func(ctx context.Context) (bool, error) {
		return x.store.ClaimReplay(ctx, id, x.owner, x.cfg.Lease)
	}}
	err := x.retry(ctx, func(ctx context.Context) (err error) {
		mine, err = h.Claim(ctx)
		return err
	})
	switch {
	case err != nil:
		return err
	case !mine:
		return background.ErrTaken
	}
	err = h.Run(ctx, f)
	longer, cancel := background.Grace(ctx, background.NoteGrace)
	defer cancel()
	if bad := x.store.ReleaseReplay(longer, id, x.owner); bad != nil && !errors.Is(bad, context.Canceled) {
		x.cfg.Logger.Warn("replay waits", "replay", id, "error", bad, "next_try", time.Duration(0))
	}
	return err
}

// judge reads the state of the replay at most once per Config.Poll. It stops the replay if a message has failed
// again with its previous fingerprint, because the other messages will probably fail, too. With Plan.Ramp, it also
// stops the replay if a first attempt has failed. With Plan.IgnoreSame, it does neither.
func (x *run) judge(ctx context.Context) error {
	if time.Since(x.looked) < x.cfg.Poll {
		return nil
	}
	if err := x.retry(ctx, x.refresh); err != nil {
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
	err := x.retry(ctx, func(ctx context.Context) (err error) {
		why, err = x.repeatedFailure(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return why
}

// repeatedFailure returns the reason to stop the replay, based on the messages that failed again since the previous call.
func (x *run) repeatedFailure(ctx context.Context) (why, err error) {
	latest := x.seen
	page := store.Page{Size: 100}
	for {
		list, next, err := x.store.List(ctx, failed.Filter{Replay: x.replay.ID}, page)
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
			case errors.Is(err, failed.ErrNotFound): // a purge has removed the message
				continue
			case err != nil:
				return nil, err
			case was.ReplayedBy != x.replay.ID: // a publisher may have forged the header
				continue
			}
			is, err := x.store.Get(ctx, s.ID)
			switch {
			case errors.Is(err, failed.ErrNotFound):
				continue
			case err != nil:
				return nil, err
			}
			if failed.Fingerprint(is.Error) == failed.Fingerprint(was.Error) {
				return &stopError{fmt.Sprintf("message %d failed again as %d with the same error: %s", was.ID, is.ID, is.Error)}, nil
			}
		}
		if next == "" || !fresh && len(list) > 0 {
			x.seen = latest
			return nil, nil
		}
		page.After = next
	}
}
