// Package migratecmd has the commands that change the arguments of a queue, and that move queues to another broker.
package migratecmd

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/dial"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/migrate"
	"github.com/reprisemq/reprise/topology"
)

// Migrate is reprise migrate.
type Migrate struct {
	Queue      string        `arg:"" help:"Queue."`
	Type       string        `enum:",classic,quorum" default:"" placeholder:"TYPE" help:"Queue type: classic or quorum."`
	Set        []string      `sep:"none" placeholder:"KEY=VALUE" help:"Set an argument, such as x-message-ttl=60000. Repeatable."`
	Unset      []string      `sep:"none" placeholder:"KEY" help:"Remove an argument. Repeatable."`
	To         string        `placeholder:"QUEUE" help:"New name. Default: the name is kept."`
	Ordered    bool          `help:"Keep the order of the messages. Requires --disconnect or --to."`
	Disconnect bool          `help:"Close all other connections of the virtual host while the queue does not exist; with --ordered, during the whole migration."`
	Delete     bool          `help:"No program publishes by the name of the queue (any more), so delete the old queue."`
	Undo       bool          `help:"Move messages back from QUEUE.migrating, if the old queue still exists."`
	Management string        `env:"REPRISE_MANAGEMENT" type:"address" placeholder:"URL" default:"http://guest:guest@127.0.0.1:15672" help:"URL of the management API. Default ${default}."`
	URL        string        `env:"REPRISE_URL" type:"address" placeholder:"URL" help:"URL of the broker. Default: amqp://guest:guest@127.0.0.1:5600."`
	Timeout    time.Duration `default:"10s" placeholder:"TIME" help:"Maximum time to connect. Default ${default}."`
	Yes        bool          `short:"y" help:"Do not ask for confirmation."`
	DryRun     bool          `name:"dry-run" help:"Only print the plan."`
	JSON       bool          `name:"json" help:"Print JSON."`
}

// Help implements kong.HelpProvider.
func (Migrate) Help() string {
	return `Changes the arguments of a queue, which RabbitMQ otherwise refuses (406), without losing messages. The command prints its
plan and asks for confirmation. It declares another queue, moves the bindings (first it binds the new queue, then it
unbinds the old one), moves each message after a publisher confirm, and deletes the old queue when it is empty and has
neither consumers nor unacked messages. If the name is kept, all messages pass through a queue with the suffix .migrating.

The state is on the broker. After an interruption anywhere, run "reprise migrate QUEUE" again: it continues. Until then,
messages can wait in QUEUE.migrating, and after a kill during --disconnect, programs cannot connect to the virtual host.
The command prints the maximum number of duplicates. It loses no message, except:

  - While the name is kept, the queue does not exist for a moment. RabbitMQ
    confirms and drops a message that a program then publishes by the name of
    the queue. --disconnect disconnects all programs for about a second;
    before, it refuses new connections for 6 to 10 s. --delete states that no
    such program exists. The command requires one of them, because by default
    (rates_mode basic) RabbitMQ does not report such programs. With --to, the
    old queue is kept without --delete.
  - If the command is killed, RabbitMQ counts a failed delivery of a quorum
    queue for up to 256 messages, or 1 if the delivery limit is less than 5,
    and removes a message that exceeds the limit.

Other effects:

  - Old messages follow later arrivals. --ordered keeps the order: with
    --disconnect, all programs are disconnected until the end; with --to, no
    message moves, and the consumers have to empty the old queue before others
    consume the new one.
  - Moved messages are persistent, have a message ID, come from the exchange
    reprise.move.QUEUE, and restart their TTL, delivery count and, on RabbitMQ
    4, the counts of x-death. A user-id of another user becomes the header
    x-reprise-user-id.

The user needs the tag administrator for --disconnect, otherwise management.

Examples:
  reprise migrate orders --type quorum --dry-run
  reprise migrate orders --set x-message-ttl=60000 --unset x-max-length --disconnect
  reprise migrate orders --set x-dead-letter-exchange=failures --to orders.v2 --delete
  reprise migrate orders

Exit codes: 0 done, 1 failed, 2 invalid flags, 3 Ctrl-C, a refused confirmation, or an old queue that is still in use.
`
}

// migrated is the output of --json.
type migrated struct {
	*migrate.Plan
	Moved      int64   `json:"moved"`
	Duplicates int64   `json:"possible_duplicates"`
	Uncounted  bool    `json:"more_duplicates_possible,omitempty"`
	Paused     float64 `json:"paused_seconds,omitempty"`
	Error      string  `json:"error,omitempty"`
}

// Run migrates a queue.
func (c *Migrate) Run(ctx context.Context, streams terminal.IO) error {
	change, err := c.change()
	if err != nil {
		return err
	}
	api, err := dial.Management("--management", c.Management, dial.VirtualHost(c.URL))
	if err != nil {
		return err
	}
	if !c.DryRun { // even if the migration cannot continue, programs can connect again
		if err := c.recover(ctx, streams, *api); err != nil {
			return err
		}
	}
	plan, err := migrate.NewPlan(ctx, *api, change)
	if err != nil {
		return err
	}
	if plan.Done {
		return streams.Result(c.JSON, migrated{Plan: plan}, fmt.Sprintf("%s: nothing to do\n", terminal.OneLine(plan.To)))
	}
	if err := plan.Err(); err != nil {
		return exit.Usage(err)
	}
	text := planText(plan, streams.Width())
	if c.DryRun {
		return streams.Result(c.JSON, migrated{Plan: plan}, text)
	}
	fmt.Fprint(streams.Stderr, text)
	if !c.Yes {
		question := "Migrate " + terminal.OneLine(plan.Queue) + "?"
		if plan.Continues {
			question = "Continue the migration of " + terminal.OneLine(plan.Queue) + "?"
		}
		if ok, err := terminal.Confirm(ctx, streams, question); !ok {
			return err
		}
	}
	result, err := c.run(ctx, streams, *api, change)
	if err != nil && !result.Begun {
		return fmt.Errorf("%w (nothing changed)", err)
	}
	return c.report(ctx, streams, plan, result, err)
}

// change returns the change that the flags describe.
func (c *Migrate) change() (migrate.Change, error) {
	change := migrate.Change{
		Queue: c.Queue, To: c.To, Set: topology.Table{}, Ordered: c.Ordered, Disconnect: c.Disconnect, Delete: c.Delete, Undo: c.Undo,
	}
	switch {
	case c.Queue == "":
		return change, exit.Usagef("the name of the queue must not be empty")
	case c.Timeout <= 0:
		return change, exit.Usagef("--timeout must be positive: got %s", c.Timeout)
	}
	if c.Type != "" {
		change.Set["x-queue-type"] = c.Type
	}
	for _, arg := range c.Set {
		key, text, found := strings.Cut(arg, "=")
		if !found || key == "" {
			return change, exit.Usagef("--set must be KEY=VALUE, such as x-message-ttl=60000: got %s", brief.Quoted(arg))
		}
		var value any = text
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			value = n
		} else if b, err := strconv.ParseBool(text); err == nil {
			value = b
		}
		change.Set[argument(key)] = value
	}
	for _, key := range c.Unset {
		change.Unset = append(change.Unset, argument(key))
	}
	return change, nil
}

// argument returns the name of an argument. Users also know the keys of policies, which have no prefix.
func argument(key string) string {
	if strings.HasPrefix(key, "x-") {
		return key
	}
	return "x-" + key
}

// recover permits the connections that an interrupted run has refused.
func (c *Migrate) recover(ctx context.Context, streams terminal.IO, api mgmtapi.API) error {
	recovered, err := migrate.Recover(ctx, api, c.Queue)
	if recovered && err == nil {
		fmt.Fprintln(streams.Stderr, "the interrupted run had refused connections to the virtual host; they are permitted again")
	}
	if err != nil && !errors.Is(err, migrate.ErrRunning) {
		err = fmt.Errorf("cannot read the limits of the virtual host: %w", err)
	}
	return err
}

func (c *Migrate) run(ctx context.Context, streams terminal.IO, api mgmtapi.API, change migrate.Change) (migrate.Result, error) {
	name := "reprise migrate " + rand.Text()[:8]
	client, err := c.connect(ctx, streams, name)
	if err != nil {
		return migrate.Result{}, err
	}
	defer dial.HangUp(client, time.Second) // all messages are confirmed
	bar := terminal.NewProgress(streams, "moving")
	defer bar.End()
	return migrate.Run(ctx, migrate.Config{
		Client: client, Name: name, API: api, Change: change,
		Step: func(text string) {
			bar.End()
			fmt.Fprintf(streams.Stderr, "%s %s\n", time.Now().Format(time.TimeOnly), terminal.OneLine(text))
		},
		Progress: func(moved, left int64) { bar.Show(moved, moved+left) },
	})
}

func (c *Migrate) connect(ctx context.Context, streams terminal.IO, name string) (*reprise.Client, error) {
	ctx, cancel := dial.Within(ctx, c.Timeout)
	defer cancel()
	return dial.Broker(ctx, c.URL, &reprise.Config{Name: name, Logger: dial.Waiting(streams.Stderr, "waiting for the broker: %s", 30*time.Second)})
}

// report prints the result, even if the migration is incomplete.
func (c *Migrate) report(ctx context.Context, streams terminal.IO, plan *migrate.Plan, r migrate.Result, err error) error {
	out := migrated{Plan: plan, Moved: r.Moved, Duplicates: r.Duplicates, Uncounted: r.Uncounted, Paused: r.Paused.Seconds()}
	verb := "migrated"
	if err != nil {
		out.Error, verb = exit.Text(err), "not migrated yet"
		if ctx.Err() != nil {
			out.Error = "interrupted"
		}
	}
	limit := "at most"
	if r.Uncounted {
		limit = "more than"
	}
	text := fmt.Sprintf("%s: %s; possible duplicates: %s %d\n", terminal.OneLine(plan.To), verb, limit, r.Duplicates)
	if r.Duplicates == 0 && !r.Uncounted {
		text = fmt.Sprintf("%s: %s; no duplicates\n", terminal.OneLine(plan.To), verb)
	}
	if r.Paused > 0 {
		text += fmt.Sprintf("other programs were disconnected for %s\n", r.Paused.Round(time.Millisecond))
	}
	if err := streams.Result(c.JSON, out, text); err != nil {
		return err
	}
	again := fmt.Sprintf("(continue with `reprise migrate %s`)", c.Queue)
	if kept, ok := errors.AsType[*migrate.KeptError](err); ok {
		return exit.Stopped(kept)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return exit.Stopped(errors.New("interrupted " + again))
	}
	return fmt.Errorf("%w %s", err, again)
}

// planText describes a plan for the user.
func planText(p *migrate.Plan, width int) string {
	var b strings.Builder
	if p.Policy != "" {
		fmt.Fprintf(&b, "A policy has the same effect, and nothing has to move:\n  %s\n\n", terminal.OneLine(p.Policy))
	}
	title := "Migrate " + p.Queue
	if p.Continues {
		title = "Continue the migration of " + p.Queue
	}
	if p.To != p.Queue {
		title += " to " + p.To
	}
	fmt.Fprintf(&b, "%s (about %s, %s)\n", terminal.OneLine(title), terminal.Plural(int(p.Messages), "message"), terminal.Plural(p.Consumers, "consumer"))
	for _, change := range p.Changes {
		line(&b, "", change, width)
	}
	b.WriteString("Steps:\n")
	for i, step := range p.Steps {
		line(&b, fmt.Sprintf("%d. ", i+1), step, width)
	}
	if len(p.Notes) > 0 {
		b.WriteString("Also necessary:\n")
	}
	for _, text := range p.Notes {
		line(&b, "- ", text, width)
	}
	return b.String()
}

func line(b *strings.Builder, prefix, text string, width int) {
	prefix = "  " + prefix
	b.WriteString(prefix + terminal.Fill(terminal.OneLine(text), cmp.Or(width, 100), len(prefix)) + "\n")
}
