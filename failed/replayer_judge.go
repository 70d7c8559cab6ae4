package failed

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// judge looks now and then at what has come back, and stops the replay if one of its
// messages has failed with the fingerprint it had before: then the others will.
func (x *run) judge(ctx context.Context) error {
	if time.Since(x.looked) < x.cfg.Poll {
		return nil
	}
	if err := x.insist(ctx, x.look); err != nil {
		return err
	}
	if x.replay.Plan.IgnoreSame || x.replay.Back == x.judged {
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

// same returns why the replay has to stop, of what has come back since it was last
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
				return &stopped{fmt.Sprintf("message %d came back as %d with the same error: %s", was.ID, is.ID, is.Error)}, nil
			}
		}
		if next == "" || !fresh && len(list) > 0 {
			x.seen = latest
			return nil, nil
		}
		page.After = next
	}
}
