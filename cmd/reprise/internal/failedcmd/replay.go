package failedcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/destination"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/flags"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

type replayCmd struct {
	selection     `group:"Selection:"`
	All           bool            `help:"Select all messages in state failed."`
	To            string          `placeholder:"QUEUE" help:"Target: a queue, or EXCHANGE/KEY. Default: the queue of the failure."`
	ByQueueName   bool            `name:"by-queue-name" help:"${byQueueName}"`
	Rate          flags.PerSecond `placeholder:"N/s" help:"Maximum rate, such as 10/s, 100/m or 5000/h. Default: no limit."`
	Ramp          bool            `help:"Start with one message per second, then 2, 5, 10 and so on, up to --rate."`
	Canary        time.Duration   `placeholder:"TIME" help:"Send one message first and wait for its outcome for at most this time. Stop if its first attempt fails, or if it has no outcome."`
	Verify        time.Duration   `placeholder:"TIME" help:"Wait for the outcomes of all messages for at most this time. The exit code is 3 unless all succeed."`
	IgnoreSame    bool            `name:"ignore-same" help:"Continue if a message fails again with the same error. Default: stop."`
	Detach        bool            `help:"Print the ID of the replay, and do not wait until the replay stops."`
	bulkEditFlags `group:"Edit:"`
	remote.Act
}

// Help implements kong.HelpProvider.
func (replayCmd) Help() string {
	return `Publishes messages again, with their edits and without earlier attempts. The command selects the messages
at the start; later failures are not part of the replay. The console sends the messages, even if the command exits.
Ctrl-C cancels the replay, and unsent messages return to state failed.

Examples:
  reprise failed replay 17 18 19
  reprise failed replay --group 3 --canary 1m --ramp --rate 100/s --verify 10m
  reprise failed replay --queue orders --since 1d --dry-run
  reprise failed replay --error 'no such shard' --to orders-by-hand
  reprise failed replay --refused-by 4 --to orders-by-hand
  reprise failed replay --all --yes --detach
  reprise failed replay --group 3 --patch '[{"op":"replace","path":"/currency","value":"EUR"}]' --dry-run
  reprise failed replay --group 3 --replace 'Strasse' --with 'Straße'

If only the name of its queue leads a message back, it stays failed with the reason, because a program that
republishes it under this routing key can lose it. --by-queue-name sends it. A message that the broker cannot
accept, for example because of its size, also stays failed, and the replay continues. --refused-by ID selects these messages. A problem of the target stops the replay.

--patch, --replace, --set-header and --remove-header edit each message when it is sent. The archive keeps the
original. A message that the edit does not change, or that does not allow the edit, stays failed. --dry-run prints
their number and some of the changes.

After the last message, the replay has the state verifying until all outcomes are known, for at most 24 hours. A
worker reports a success before it acknowledges the message. A message that fails again is a new message in the
archive; --back-from ID selects these messages.

Exit codes: 0 all messages sent, 1 failed, 2 invalid flags, 3 the replay stopped, was cancelled, could not send
some messages, or with --verify some messages have not succeeded.
`
}

// Run replays messages.
func (c *replayCmd) Run(ctx context.Context, streams terminal.IO) error {
	plan, err := c.plan()
	if err != nil {
		return err
	}
	return c.Ask(streams, func(client *api.Client) error { return c.replay(ctx, streams, client, plan) })
}

func (c *replayCmd) replay(ctx context.Context, streams terminal.IO, client *api.Client, plan api.Plan) error {
	if c.DryRun || c.asks() {
		done, err := client.WouldReplay(ctx, plan)
		if err != nil {
			return err
		}
		if c.DryRun {
			return c.preview(streams, done, plan.Edit)
		}
		if done.Messages == 0 {
			return remote.PrintDone(streams, api.Done{}, nil, c.JSON, "sent", len(c.IDs))
		}
		fmt.Fprint(streams.Stderr, c.destinationsText(done.Destinations), editPreviewText(done.Edit, plan.Edit))
		if v := done.Edit; v != nil && (store.EditPreview{Changed: v.Changed, Unchanged: v.Unchanged, Impossible: v.Impossible, More: v.More}).SendsNone(plan.Edit.BulkEdit()) {
			return errors.New("the edit changes none of the selected messages, so the replay would send none (correct the edit, or use --send-unchanged or --send-impossible)")
		}
		if ok, err := terminal.Confirm(ctx, streams, c.question(done)); !ok {
			return err
		}
		plan.AtMost, plan.Through = done.Messages, done.Through // the answer applies only to the counted messages
	}
	r, err := client.BeginReplay(ctx, plan)
	if apiErr, ok := errors.AsType[*api.Error](err); ok && apiErr.Status == http.StatusUnprocessableEntity && len(c.IDs) == 0 {
		return remote.PrintDone(streams, api.Done{}, nil, c.JSON, "sent", 0) // same result as other actions that match no messages
	}
	switch {
	case err != nil:
		return err
	case c.Detach && c.JSON:
		return streams.Result(true, r, "")
	case c.Detach:
		return cmp.Or(streams.Result(false, r, fmt.Sprintln(r.ID)), remote.CheckAllChanged(len(c.IDs), r.Total))
	}
	return follow(ctx, c.Console, streams, client, r, c.Verify, c.JSON, len(c.IDs))
}

// preview prints the number of messages that would be sent, by destination.
func (c *replayCmd) preview(streams terminal.IO, p api.Preview, edit *api.BulkEdit) error {
	if c.JSON {
		return cmp.Or(streams.Result(true, p, ""), remote.CheckAllChanged(len(c.IDs), p.Messages))
	}
	what := "sent to " + c.target()
	if edit != nil {
		what = "replayed to " + c.target()
	}
	err := remote.PrintDone(streams, p.Done, nil, false, what, len(c.IDs))
	fmt.Fprint(streams.Stdout, c.destinationsText(p.Destinations), editPreviewText(p.Edit, edit))
	for _, r := range p.Lost {
		fmt.Fprintf(streams.Stdout, "  %d not sent: %s\n", r.Messages, terminal.OneLine(r.Why))
	}
	return err
}

// destinationsText describes the number of messages by destination. It returns "" with --to, because the output
// already contains the single destination.
func (c *replayCmd) destinationsText(all []api.Destination) string {
	var b strings.Builder
	for _, d := range all {
		switch {
		case c.To != "" && d.Warning == "":
		case d.Unknown:
			fmt.Fprintf(&b, "  %d of %s: queue in which they failed is unknown (set it with --to)\n", d.Messages, terminal.OneLine(string(d.FailedQueue)))
		default:
			fmt.Fprintf(&b, "  %d of %s to %s%s\n", d.Messages, terminal.OneLine(string(d.FailedQueue)),
				destination.Way(string(d.Queue), string(d.Exchange), string(d.RoutingKey), d.Keys), destination.Warning(d.Warning, d.Refused))
		}
	}
	return b.String()
}

func (c *replayCmd) plan() (api.Plan, error) {
	s, err := c.some(c.All)
	if err != nil {
		return api.Plan{}, err
	}
	to, err := destination.Parse(c.To)
	if err != nil {
		return api.Plan{}, err
	}
	edit, err := c.edit()
	if err != nil {
		return api.Plan{}, err
	}
	if c.Verify != 0 && c.Detach {
		return api.Plan{}, exit.Usagef("--verify and --detach exclude each other")
	}
	if c.SentBy != nil && s.Filter.Outcome == failed.OutcomeFailedAgain {
		return api.Plan{}, exit.Usagef("cannot replay messages of replay %d twice (use --back-from %d to select the messages that failed again)", *c.SentBy, *c.SentBy)
	}
	if c.Verify < 0 {
		return api.Plan{}, exit.Usagef("--verify must be positive: got %s", c.Verify)
	}
	if c.Canary < 0 {
		return api.Plan{}, exit.Usagef("--canary must be positive: got %s", c.Canary)
	}
	return api.Plan{Selection: s, To: api.TargetOf(to), Edit: edit, Rate: float64(c.Rate), Ramp: c.Ramp, Canary: api.Duration(c.Canary), IgnoreSame: c.IgnoreSame, ByQueueName: c.ByQueueName}, nil
}

// question returns the confirmation question of a replay.
func (c *replayCmd) question(p api.Preview) string {
	target := c.target()
	if c.To == "" {
		target = "their original queues"
		if all := p.Destinations; len(all) > 0 && !slices.ContainsFunc(all, func(d api.Destination) bool { return d.Unknown || d.Queue != all[0].Queue }) {
			target = terminal.OneLine(string(all[0].Queue))
		}
	}
	return fmt.Sprintf("Send %s to %s?", terminal.Plural(int(p.Messages), "message"), target)
}

func (c *replayCmd) target() string {
	to, _ := destination.Parse(c.To) // validated earlier
	return destination.Text(to)
}

// asks reports whether the command requires confirmation: without --yes, if flags select the messages or edit them.
func (c *replayCmd) asks() bool { return !c.Yes && (len(c.IDs) == 0 || c.edits()) }
