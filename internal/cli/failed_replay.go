package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/reprisemq/reprise/internal/api"
)

type failedReplayCmd struct {
	selection
	All        bool          `help:"All that are in state failed."`
	To         string        `placeholder:"QUEUE" help:"Send them to this queue, or to EXCHANGE/KEY. Default: the queue that each failed in."`
	Rate       perSecond     `placeholder:"N/s" help:"Send so many at most: 10/s, 100/m. Default: no limit."`
	Ramp       bool          `help:"Begin with one per second, then 2, 5, 10 and so on, up to --rate."`
	Canary     time.Duration `placeholder:"TIME" help:"Send one first, and wait so long whether it comes back before the others."`
	IgnoreSame bool          `name:"ignore-same" help:"Go on when messages come back with the same error. Default: it stops then."`
	Detach     bool          `help:"Print the number of the replay, and do not wait for its end."`
	Yes        bool          `short:"y" help:"Do not ask."`
	DryRun     bool          `name:"dry-run" help:"Say how many there are, and send none."`
	JSON       bool          `name:"json" help:"Print the result as JSON."`
	serverFlags
}

// Help shows examples below the flags.
func (failedReplayCmd) Help() string {
	return `Sends messages back, edited ones as they were edited, with all their attempts before them. What is
selected is so at the beginning; what fails later is not part of it. The console sends them, whether
this command waits or not. Ctrl-C cancels: what has not been sent is failed again.

Examples:
  reprise failed replay 17 18 19
  reprise failed replay --group 3 --canary 1m --ramp --rate 100/s
  reprise failed replay --queue orders --since 1d --dry-run
  reprise failed replay --error 'no such shard' --to orders-by-hand
  reprise failed replay --refused-by 4 --to orders-by-hand
  reprise failed replay --all --yes --detach

A message that can never be sent, such as one larger than the broker takes, stays failed, with the
reason on it, and the others are sent; --refused-by ID sends those once more. What is wrong with the
target stops the replay.

Exit codes: 0 all were sent, 1 failed, 2 wrong flags, 3 it stopped by itself, was cancelled, or some
cannot be sent.
`
}

// Run replays messages.
func (c *failedReplayCmd) Run(ctx context.Context, streams IO) error {
	plan, err := c.plan()
	if err != nil {
		return err
	}
	client, err := c.client(streams)
	if err != nil {
		return err
	}
	if c.DryRun || c.asks(streams) {
		done, err := client.WouldReplay(ctx, plan)
		if err != nil {
			return c.asked(err)
		}
		if c.DryRun {
			return c.preview(streams, done)
		}
		fmt.Fprint(streams.Stderr, c.destinationsText(done.Destinations))
		if ok, err := confirm(ctx, streams, fmt.Sprintf("Send %s to %s?", plural(int(done.Messages), "message"), c.target())); !ok {
			return err
		}
	}
	r, err := client.BeginReplay(ctx, plan)
	if said, ok := errors.AsType[*api.Error](err); ok && said.Status == http.StatusNotFound && len(c.IDs) == 0 {
		return tell(streams, api.Done{}, c.JSON, "sent", 0) // as with all that is done to none
	}
	if err != nil {
		return c.asked(err)
	}
	if c.Detach {
		if c.JSON {
			return json.NewEncoder(streams.Stdout).Encode(r)
		}
		if _, err := fmt.Fprintln(streams.Stdout, r.ID); err != nil {
			return err
		}
		return leftAlone(len(c.IDs), r.Total)
	}
	if r, err = c.wait(ctx, streams, client, r); err != nil {
		return c.asked(err)
	}
	if c.JSON {
		err = json.NewEncoder(streams.Stdout).Encode(r)
	} else {
		_, err = fmt.Fprintln(streams.Stdout, replayText(r))
	}
	switch {
	case err != nil:
	case r.State == "done" && r.Refused > 0:
		err = stoppedError{fmt.Errorf("%s cannot be sent, and failed as before: `reprise failed ls --refused-by %d` says why", plural(int(r.Refused), "message"), r.ID)}
	case r.State == "done":
		err = leftAlone(len(c.IDs), r.Total)
	default:
		err = stoppedError{fmt.Errorf("replay %d stopped before its end%s", r.ID, unsent(r))}
	}
	return err
}

// preview prints what would be sent where.
func (c *failedReplayCmd) preview(streams IO, p api.Preview) error {
	if c.JSON {
		if err := json.NewEncoder(streams.Stdout).Encode(p); err != nil {
			return err
		}
		return leftAlone(len(c.IDs), p.Messages)
	}
	err := tell(streams, p.Done, false, "sent to "+c.target(), len(c.IDs))
	fmt.Fprint(streams.Stdout, c.destinationsText(p.Destinations))
	return err
}

// destinationsText says how many messages go back where. With --to they all go to
// one place, which is said already.
func (c *failedReplayCmd) destinationsText(all []api.Destination) string {
	var b strings.Builder
	for _, d := range all {
		switch {
		case c.To != "":
		case d.Unknown:
			fmt.Fprintf(&b, "  %d of %s nowhere: nothing says in which queue they failed; --to names one\n", d.Messages, oneLiner(string(d.FailedQueue)))
		default:
			fmt.Fprintf(&b, "  %d of %s to %s\n", d.Messages, oneLiner(string(d.FailedQueue)), oneLiner(string(d.RoutingKey)))
		}
	}
	return b.String()
}

func (c *failedReplayCmd) plan() (api.Plan, error) {
	s, err := c.some(c.All)
	if err != nil {
		return api.Plan{}, err
	}
	to, err := parseTarget(c.To)
	if err != nil {
		return api.Plan{}, err
	}
	if c.Canary < 0 {
		return api.Plan{}, usagef("--canary %s: give a time above zero", c.Canary)
	}
	p := api.Plan{Selection: s, Rate: float64(c.Rate), Ramp: c.Ramp, Canary: api.Duration(c.Canary), IgnoreSame: c.IgnoreSame}
	if to != nil {
		p.To = &api.Target{Exchange: api.Text(to.Exchange), RoutingKey: api.Text(to.RoutingKey)}
	}
	return p, nil
}

func (c *failedReplayCmd) target() string {
	to, _ := parseTarget(c.To) // it has been read before
	return targetText(to)
}

// asks reports whether somebody is there to be asked, and ought to be: they do not
// know yet how many messages they have chosen.
func (c *failedReplayCmd) asks(streams IO) bool {
	return !c.Yes && len(c.IDs) == 0 && terminal(streams.Stdin) && terminal(streams.Stderr)
}

// polling is how often it is asked how far a replay is.
const polling = 300 * time.Millisecond

// wait shows how far a replay is until it has ended. The end of ctx cancels it.
func (c *failedReplayCmd) wait(ctx context.Context, streams IO, client *api.Client, r api.Replay) (api.Replay, error) {
	bar := newProgress(streams, "sending")
	defer bar.end()
	wrong := 0
	for unended(r) {
		bar.show(r.Sent, r.Total)
		select {
		case <-time.After(polling):
		case <-ctx.Done():
			later, stop := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
			defer stop()
			cancelled, err := cancelReplay(later, client, r.ID, "interrupted")
			if err != nil {
				return r, fmt.Errorf("replay %d goes on, it cannot be cancelled: %w", r.ID, err)
			}
			return cancelled, nil
		}
		now, err := client.Replay(ctx, r.ID)
		if ctx.Err() != nil {
			continue
		}
		if err != nil {
			if wrong++; wrong < patientPolls { // a console that is started again goes on with it
				continue
			}
			return r, fmt.Errorf("replay %d goes on as soon as the console does: %w", r.ID, c.asked(err))
		}
		r, wrong = now, 0
	}
	return r, nil
}

func unended(r api.Replay) bool { return r.State == "running" || r.State == "cancelling" }

// cancelReplay cancels a replay, and waits a little until it is known what has become of
// the messages that are on their way.
func cancelReplay(ctx context.Context, client *api.Client, id int64, reason string) (api.Replay, error) {
	r, err := client.Cancel(ctx, id, reason)
	for until := time.Now().Add(cancelPatience); err == nil && unended(r) && time.Now().Before(until); {
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

// cancelPatience is longer than it takes unless the broker does not answer.
const cancelPatience = 5 * time.Second

// patientPolls is how often in a row a console may not answer.
const patientPolls = 20

// unsent says what became of messages that were not sent.
func unsent(r api.Replay) string {
	if r.Sent == r.Total {
		return ""
	}
	return fmt.Sprintf(": %s failed as before, without having been sent", plural(int(r.Total-r.Sent), "message"))
}

// replayText says what became of a replay.
func replayText(r api.Replay) string {
	text := fmt.Sprintf("replay %d %s: %d of %s sent", r.ID, r.State, r.Sent, plural(int(r.Total), "message"))
	if r.Refused > 0 {
		text += fmt.Sprintf(", %d cannot be", r.Refused)
	}
	if r.Back > 0 {
		text += fmt.Sprintf(", %d came back", r.Back)
	}
	if r.Why != "" {
		text += " (" + oneLiner(r.Why) + ")"
	}
	return text
}

func terminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// confirm asks a question; anything but y and yes is no.
func confirm(ctx context.Context, streams IO, question string) (bool, error) {
	fmt.Fprintf(streams.Stderr, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // which cannot be interrupted; it ends with the process
		line, _ := bufio.NewReader(streams.Stdin).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case a := <-answer:
		if a == "y" || a == "yes" {
			return true, nil
		}
		return false, stoppedError{errors.New("nothing was done")}
	case <-ctx.Done():
		return false, stoppedError{errors.New("interrupted: nothing was done")}
	}
}
