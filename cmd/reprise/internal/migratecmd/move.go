package migratecmd

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/disk"
	"github.com/reprisemq/reprise/cmd/reprise/internal/dial"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/localbroker"
	"github.com/reprisemq/reprise/cmd/reprise/internal/serve"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/move"
)

// Move is reprise move.
type Move struct {
	From           string        `required:"" placeholder:"URL|DIR" help:"Source: URL of a broker, or data directory of an embedded broker that is stopped (virtual host /)."`
	To             string        `required:"" type:"address" placeholder:"URL" help:"Target: URL of a broker."`
	Queue          []string      `sep:"none" placeholder:"PATTERN" help:"Move the queues that match, such as 'orders*', and their wait and failed queues. Repeatable. Default: all of the virtual host."`
	FromManagement string        `type:"address" placeholder:"URL" help:"URL of the management API of the source. Default: user, password and host of --from, port 15672 (amqps: https, 15671)."`
	ToManagement   string        `type:"address" placeholder:"URL" help:"URL of the management API of the target. Default: as for --from-management."`
	Delete         bool          `help:"Delete the queues of the source when they are empty. No other program may be connected to its virtual host."`
	Timeout        time.Duration `default:"10s" placeholder:"TIME" help:"Maximum time to connect. Default ${default}."`
	Yes            bool          `short:"y" help:"Do not ask for confirmation."`
	DryRun         bool          `name:"dry-run" help:"Only print the plan."`
	JSON           bool          `name:"json" help:"Print JSON."`
}

// Help implements kong.HelpProvider.
func (Move) Help() string {
	return `Moves queues with their messages from a broker to another one, also from the embedded broker to RabbitMQ. The command prints
its plan and asks for confirmation. It creates the exchanges, queues, bindings and policies that are missing on the target.
If one exists with other properties, or must not be created there, it changes nothing. Then it moves one queue after the
other in the order of the messages: consume, publish, confirm, acknowledge. A message is always on the source, on the
target, or on both. Users, permissions, operator policies and limits are not moved.

After an interruption anywhere, run the same command again: it continues. It prints the maximum number of duplicates.
While programs publish to the source, the command ends when the queues are empty, or when their number of messages does not
decrease any more, and prints what is left. To switch over: start the consumers on the target, move, let the publishers
change their URL, and move again.

Moved messages have all properties and headers, except:

  - They are persistent, have a message ID, and come from an exchange
    reprise.move.ID, unless they were published by the name of the queue. A
    user-id of another user becomes the header x-reprise-user-id.
  - The delivery count begins again. The target shows x-death, but RabbitMQ 4
    and the embedded broker count again from 1 at the next dead letter, so
    programs that count attempts in x-death begin again.
  - A message that waits for a retry is never early. It keeps the rest of its
    delay (as its expiration) if the source is an embedded broker, or if it
    is a copy of a Reprise worker in a queue that leads to the work queue by its
    name; then the clocks of the worker and of this machine must agree. Other
    messages begin their delay again, also messages with an expiration of other
    programs or of topology.GrowingTTL, which compute the next delay from it.
    Messages in a delayed exchange, or in a delayed retry of a quorum queue, can
    only be moved when they are due.

The users need the tag management, and the permissions configure, write and read for reprise.move.*, which must not be
used otherwise; on the source also read for the queues. --delete needs the tag monitoring, policies the tag policymaker.

Examples:
  reprise move --from reprise-data --to amqp://app:secret@rabbit/shop --dry-run
  reprise move --from amqp://app:secret@old --to amqp://app:secret@new --queue 'orders*'
  reprise move --from amqp://localhost:5673 --from-management http://localhost:15673 --to amqp://localhost:5674 --to-management http://localhost:15674

Exit codes: 0 done, 1 failed, 2 invalid flags or a plan that is not possible, 3 Ctrl-C, a refused confirmation, or messages
that are left.
`
}

// moved is the output of --json.
type moved struct {
	*move.Plan
	move.Result
	Error string `json:"error,omitempty"`
}

// Run moves queues.
func (c *Move) Run(ctx context.Context, streams terminal.IO) (err error) {
	if c.Timeout <= 0 {
		return exit.Usagef("--timeout must be positive: got %s", c.Timeout)
	}
	if c.From == "" {
		return exit.Usagef("--from must not be empty")
	}
	to, err := c.broker(ctx, streams, "to", c.To, c.ToManagement, nil)
	if err != nil {
		return err
	}
	defer dial.HangUp(to.Client, time.Second)
	var source *localSource
	if !strings.Contains(c.From, "://") {
		if source, err = openDirectory(c.From); err != nil {
			return err
		}
		defer func() { err = cmp.Or(err, source.close()) }()
	}
	from, err := c.broker(ctx, streams, "from", c.From, c.FromManagement, source)
	if err != nil {
		return err
	}
	defer dial.HangUp(from.Client, time.Second)
	bar := terminal.NewProgress(streams, "moving")
	defer bar.End()
	m, err := move.Begin(ctx, move.Config{
		From: *from, To: *to, Queues: c.Queue, Delete: c.Delete,
		Step: func(text string) {
			bar.End()
			fmt.Fprintf(streams.Stderr, "%s %s\n", time.Now().Format(time.TimeOnly), terminal.OneLine(text))
		},
		Progress: func(moved, left int64) { bar.Show(moved, moved+left) },
	})
	if err != nil {
		return err
	}
	text := c.planText(m.Plan, streams.Width())
	if c.DryRun {
		err := streams.Result(c.JSON, m.Plan, text)
		if err == nil && m.Plan.Err() != nil {
			err = exit.Usage(errors.New("the move is not possible"))
		}
		return err
	}
	fmt.Fprint(streams.Stderr, text)
	if m.Plan.Err() != nil {
		return exit.Usage(errors.New("the move is not possible; nothing changed"))
	}
	if !c.Yes {
		if ok, err := terminal.Confirm(ctx, streams, fmt.Sprintf("Move %s?", terminal.Plural(len(m.Plan.Queues), "queue"))); !ok {
			return err
		}
	}
	result, err := m.Run(ctx)
	bar.End()
	return c.report(ctx, streams, m.Plan, result, err)
}

// report prints the result, even if the move is incomplete.
func (c *Move) report(ctx context.Context, streams terminal.IO, plan *move.Plan, r move.Result, err error) error {
	if err != nil && !r.Begun {
		return fmt.Errorf("%w (nothing changed)", err)
	}
	out := moved{Plan: plan, Result: r}
	var b strings.Builder
	fmt.Fprintf(&b, "%s moved; ", terminal.Plural(int(r.Moved), "message"))
	if r.Duplicates == 0 {
		b.WriteString("no duplicates\n")
	} else {
		fmt.Fprintf(&b, "possible duplicates: at most %d\n", r.Duplicates)
	}
	for _, l := range r.Left {
		fmt.Fprintf(&b, "left in %s: %d ready, %d unacked, %d delayed, %d dead-lettered but not confirmed\n", terminal.OneLine(l.Queue), l.Ready, l.Unacked, l.Delayed, l.Dead)
	}
	if r.Deleted > 0 {
		fmt.Fprintf(&b, "%s of the source deleted\n", terminal.Plural(r.Deleted, "queue"))
	}
	const again = "(run the same command again to continue)"
	inUse, kept := errors.AsType[*move.InUseError](err)
	switch {
	case ctx.Err() != nil:
		err = exit.Stopped(errors.New("interrupted " + again))
	case kept:
		err = exit.Stopped(inUse)
	case err != nil:
		err = fmt.Errorf("%w %s", err, again)
	case len(r.Left) > 0:
		err = exit.Stopped(errors.New("messages are left on the source " + again))
	}
	if err != nil {
		out.Error = exit.Text(err)
	}
	return cmp.Or(streams.Result(c.JSON, out, b.String()), err)
}

// broker connects to the source or the target. The flags --NAME and --NAME-management have its addresses. A local broker
// runs in this process.
func (c *Move) broker(ctx context.Context, streams terminal.IO, name, rawURL, management string, local *localSource) (*move.Broker, error) {
	b := &move.Broker{Name: "reprise move " + rand.Text()[:8]}
	cfg := &reprise.Config{Name: b.Name, Logger: dial.Waiting(streams.Stderr, "waiting for --"+name+": %s", 30*time.Second)}
	if local != nil {
		b.API = mgmtapi.API{URL: "http://broker", User: localUser, Password: localUser, Client: local.listener.Client()}
		cfg.Dial, rawURL = local.DialContext, "amqp://"+localUser+":"+localUser+"@broker"
	} else {
		if management == "" {
			var err error
			if management, err = managementOf(name, rawURL); err != nil {
				return nil, err
			}
		}
		api, err := dial.Management("--"+name+"-management", management, dial.VirtualHost(rawURL))
		if err != nil {
			return nil, err
		}
		b.API = *api
	}
	connecting, cancel := dial.Within(ctx, c.Timeout)
	defer cancel()
	var err error
	if b.Client, err = dial.Broker(connecting, rawURL, cfg); err != nil {
		return nil, fmt.Errorf("--%s: %w", name, err)
	}
	if err := b.API.Get(connecting, "overview", new(any)); err != nil {
		dial.HangUp(b.Client, time.Second)
		return nil, fmt.Errorf("%w (set --%s-management to its URL; RabbitMQ needs the plugin rabbitmq_management, reprise broker the flag --management)", err, name)
	}
	return b, nil
}

// managementOf returns the usual URL of the management API of a broker.
func managementOf(name, rawURL string) (string, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Hostname() == "" || strings.Contains(u.Host, ",") || u.Query().Has("passwordfile") {
		return "", exit.Usagef("--%s-management is required, because it cannot be derived from --%[1]s", name)
	}
	api := url.URL{Scheme: "http", User: u.User, Host: net.JoinHostPort(u.Hostname(), strconv.Itoa(15672))}
	if u.Scheme == "amqps" {
		api.Scheme, api.Host = "https", net.JoinHostPort(u.Hostname(), strconv.Itoa(15671))
		if file := u.Query().Get("cacertfile"); file != "" {
			api.RawQuery = url.Values{"cacertfile": {file}}.Encode()
		}
	}
	return api.String(), nil
}

// openDirectory starts a broker with a data directory.
func openDirectory(dir string) (*localSource, error) {
	counts, err := disk.Count(dir)
	if err != nil {
		return nil, unusable(dir, err)
	}
	if len(counts) == 0 {
		return nil, exit.Usagef("--from: directory %s has no queues of an embedded broker (URLs begin with amqp://)", brief.Quoted(dir))
	}
	for _, q := range counts {
		if q.VHost != "/" && q.Messages > 0 {
			return nil, exit.Usagef("--from: queue %s is in virtual host %s; only the virtual host / of a directory can be moved (start reprise broker with it, and use its URL)", brief.Quoted(q.Name), brief.Quoted(q.VHost))
		}
	}
	b, err := localbroker.Start(dir, broker.Config{TemporaryUsers: map[string]string{localUser: localUser}})
	if err != nil {
		return nil, unusable(dir, err)
	}
	l := &localSource{Broker: b, listener: serve.NewPipeListener()}
	l.web = serve.Web("management API", l.listener, serve.ProgressDeadlines(b.Management()), slog.New(slog.DiscardHandler))
	return l, nil
}

func unusable(dir string, err error) error {
	if errors.Is(err, broker.ErrInUse) {
		return fmt.Errorf("--from: another process uses %s: stop it, or set --from to its URL (%w)", brief.Quoted(dir), err)
	}
	return fmt.Errorf("--from: %w", err)
}

// localUser is the user and the password at a broker in this process.
const localUser = "reprise.move"

// localSource is a broker in this process, with its management API. Other processes cannot reach it.
type localSource struct {
	*broker.Broker
	listener *serve.PipeListener
	web      *serve.WebServer
}

func (l *localSource) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l.web.Stop()
	return l.Shutdown(ctx)
}

// planText describes a plan for the user.
func (c *Move) planText(p *move.Plan, width int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Move from %s to %s\n", hidden(c.From), hidden(c.To))
	table := terminal.NewTable([]terminal.Column{{Name: "QUEUE", Least: 10, Ends: true}, {Name: "MESSAGES", Right: true}, {Name: "ON THE TARGET"}})
	for _, q := range p.Queues {
		state := "new"
		if q.Exists {
			state = terminal.Plural(int(q.Held), "message")
		}
		table.Add(q.Name, strconv.FormatInt(q.Messages, 10), state)
	}
	b.WriteString(table.Text(width))
	section := func(title string, all []string) {
		if len(all) > 0 {
			b.WriteString(title + "\n")
		}
		for _, text := range all {
			line(&b, "- ", text, width)
		}
	}
	section("New on the target:", p.Create)
	section("Note:", p.Notes)
	section("Not possible:", p.Problems)
	return b.String()
}

// hidden returns a URL without its password, or a directory.
func hidden(rawURL string) string {
	if u, err := url.Parse(rawURL); err == nil && u.Scheme != "" {
		rawURL = u.Redacted()
	}
	return terminal.OneLine(rawURL)
}
