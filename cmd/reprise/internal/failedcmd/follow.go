package failedcmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
)

// follow waits until a replay has stopped, then waits at most the duration verify for the outcomes, and prints the
// result. The argument picked is the number of messages that were selected by ID.
func follow(ctx context.Context, f remote.Console, streams terminal.IO, client *api.Client, r api.Replay, verify time.Duration, asJSON bool, picked int) error {
	r, err := waitForReplay(ctx, f, streams, client, r)
	if err != nil {
		return err
	}
	for until := time.Now().Add(verify); r.Verifying && time.Now().Before(until) && ctx.Err() == nil; {
		select {
		case <-time.After(polling):
		case <-ctx.Done():
		}
		if now, err := client.Replay(ctx, r.ID); err == nil {
			r = now
		}
	}
	switch err := streams.Result(asJSON, r, replayText(r)+"\n"); {
	case err != nil:
		return err
	case isSent(r) && r.Refused > 0:
		return exit.Stopped(fmt.Errorf("cannot send %s; they are still failed (see `reprise failed ls --refused-by %d`)", terminal.Plural(int(r.Refused), "message"), r.ID))
	case isSent(r) && verify > 0 && r.Succeeded < r.Sent:
		return exit.Stopped(fmt.Errorf("%d of %s have not succeeded: `reprise failed ls --state all --sent-by %d` shows their outcomes", r.Sent-r.Succeeded, terminal.Plural(int(r.Sent), "message"), r.ID))
	case isSent(r):
		return remote.CheckAllChanged(picked, r.Total)
	}
	return exit.Stopped(exit.ErrPrinted) // the result contains the state
}

// polling is the interval between requests for the progress of a replay.
const polling = 300 * time.Millisecond

// waitForReplay shows the progress of a replay until it has stopped. If ctx is canceled, it cancels the replay.
func waitForReplay(ctx context.Context, f remote.Console, streams terminal.IO, client *api.Client, r api.Replay) (api.Replay, error) {
	bar := terminal.NewProgress(streams, "sending")
	defer bar.End()
	wrong := 0
	for unended(r) {
		bar.Show(r.Sent, r.Total)
		select {
		case <-time.After(polling):
		case <-ctx.Done():
			later, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
			defer stop()
			cancelled, err := cancelReplay(later, client, r.ID, "interrupted")
			if err != nil {
				return r, fmt.Errorf("cannot cancel replay %d, which continues: %w", r.ID, err)
			}
			return cancelled, nil
		}
		now, err := client.Replay(ctx, r.ID)
		if ctx.Err() != nil {
			continue
		}
		if err != nil {
			if wrong++; wrong < maxFailedPolls { // a restarted console continues the replay
				continue
			}
			return r, fmt.Errorf("replay %d continues when the console runs again: %w", r.ID, f.Explained(err))
		}
		r, wrong = now, 0
	}
	return r, nil
}

// isSent reports whether a replay has sent all messages that it can send.
func isSent(r api.Replay) bool { return r.State == "done" }

func unended(r api.Replay) bool { return r.State == "running" || r.State == "cancelling" }

// cancelReplay cancels a replay, and waits up to cancelTimeout for the replay to stop.
func cancelReplay(ctx context.Context, client *api.Client, id int64, reason string) (api.Replay, error) {
	r, err := client.Cancel(ctx, id, reason)
	for until := time.Now().Add(cancelTimeout); err == nil && unended(r) && time.Now().Before(until); {
		select {
		case <-time.After(polling):
		case <-ctx.Done():
			return r, nil
		}
		if now, err := client.Replay(ctx, id); err == nil {
			r = now
		}
	}
	return r, err
}

// cancelTimeout limits the wait for the outcomes of the messages in flight. It is sufficient if the broker responds.
const cancelTimeout = 5 * time.Second

// maxFailedPolls is the maximum number of consecutive failed requests to the console.
const maxFailedPolls = 20

// replayState describes the state of a replay.
func replayState(r api.Replay) string {
	if r.Verifying {
		return r.State + ", verifying"
	}
	return r.State
}

// replayText describes the result of a replay.
func replayText(r api.Replay) string {
	canary := ""
	if r.Plan.Canary > 0 && r.Sent > 1 { // a replay continues only after its canary has succeeded
		canary = "canary passed, "
	}
	parts := []string{fmt.Sprintf("replay %d %s: %s%d of %s sent", r.ID, replayState(r), canary, r.Sent, terminal.Plural(int(r.Total), "message"))}
	if r.Refused > 0 {
		parts = append(parts, fmt.Sprintf("%d cannot be", r.Refused))
	}
	for _, o := range []struct {
		n    int64
		name failed.Outcome
	}{
		{r.Succeeded, failed.OutcomeSucceeded},
		{r.Back, failed.OutcomeFailedAgain},
		{r.Settled, failed.OutcomeSettled},
		{r.Retrying, failed.OutcomeRetrying},
		{r.Unknown, failed.OutcomeUnknown},
	} {
		if o.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", o.n, o.name))
		}
	}
	text := strings.Join(parts, ", ")
	if r.Why != "" {
		text += " (" + terminal.OneLine(r.Why) + ")"
	}
	return text
}
