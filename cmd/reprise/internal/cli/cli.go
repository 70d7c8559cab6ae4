// Package cli parses the command line of the program reprise, runs the command and prints its error.
//
// Each command is a struct in one of the packages whose names end with cmd. Its fields are the flags and arguments. Its
// Run method uses the streams and variables of a [terminal.IO], so that the package neither accesses os.Stdout nor calls
// os.Exit.
//
// Results, such as addresses, message IDs and the version, go to stdout. Logs and errors go to stderr. docs/cli.md is the
// specification for users.
package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/reprisemq/reprise/cmd/reprise/internal/brokercmd"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/consolecmd"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/failedcmd"
	"github.com/reprisemq/reprise/cmd/reprise/internal/flags"
	"github.com/reprisemq/reprise/cmd/reprise/internal/handler"
	"github.com/reprisemq/reprise/cmd/reprise/internal/migratecmd"
	"github.com/reprisemq/reprise/cmd/reprise/internal/plancmd"
	"github.com/reprisemq/reprise/cmd/reprise/internal/queuecmd"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/reportcmd"
	"github.com/reprisemq/reprise/cmd/reprise/internal/serve"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/cmd/reprise/internal/upcmd"
	"github.com/reprisemq/reprise/cmd/reprise/internal/version"
	"github.com/reprisemq/reprise/internal/brief"
)

// commands contains all commands, in the order in which the help lists them.
type commands struct {
	Up         upcmd.Command      `cmd:"" help:"Run the workers of a configuration file."`
	Broker     brokercmd.Command  `cmd:"" help:"Run a broker on this machine."`
	Publish    queuecmd.Publish   `cmd:"" help:"Publish a message."`
	Schedule   queuecmd.Schedule  `cmd:"" help:"List, cancel and move messages that leave later."`
	Cron       queuecmd.Cron      `cmd:"" help:"List and run periodic messages."`
	Policy     plancmd.Policy     `cmd:"" help:"Show the times of retries and of parking."`
	Failed     failedcmd.Command  `cmd:"" help:"Inspect, edit, replay and discard failed messages."`
	Waiting    queuecmd.Waiting   `cmd:"" help:"Inspect, retry, postpone and park messages in wait queues."`
	Keys       queuecmd.Keys      `cmd:"" help:"Inspect, retry and park the messages of keys that wait in order."`
	Console    consolecmd.Command `cmd:"" help:"Run the message archive and the web console."`
	Notify     consolecmd.Notify  `cmd:"" help:"Test the webhooks of notifications."`
	Audit      reportcmd.Audit    `cmd:"" help:"Reconcile incoming messages with processed and failed messages."`
	Workers    queuecmd.Workers   `cmd:"" help:"List the workers of all processes."`
	Pause      queuecmd.Pause     `cmd:"" help:"Pause the workers of a queue."`
	Resume     queuecmd.Resume    `cmd:"" help:"Resume paused workers."`
	History    reportcmd.History  `cmd:"" help:"Show throughput, failures and handling times of queues."`
	Mark       reportcmd.Mark     `cmd:"" help:"Mark an event in the history, such as a deployment."`
	Redrive    queuecmd.Redrive   `cmd:"" help:"Move messages from a failed queue back to their queues, without an archive."`
	Peek       queuecmd.Peek      `cmd:"" help:"Show the first messages of a queue, and what the look costs."`
	Purge      queuecmd.Purge     `cmd:"" help:"Remove messages from a queue."`
	Migrate    migratecmd.Migrate `cmd:"" help:"Change the arguments of a queue without losing messages."`
	Move       migratecmd.Move    `cmd:"" help:"Move queues with their messages to another broker."`
	Doctor     plancmd.Doctor     `cmd:"" help:"Find what loses, blocks or repeats messages on a RabbitMQ."`
	Reload     upcmd.Reload       `cmd:"" help:"Make running workers read their configuration again."`
	Topology   plancmd.Topology   `cmd:"" help:"Draw, compare and create the queues of a configuration."`
	Demo       demoCmd            `cmd:"" help:"Run a demonstration: a cover art indexer with failures."`
	Version    version.Command    `cmd:"" help:"Print the version."`
	Completion completionCmd      `cmd:"" help:"Print a completion script for a shell."`
	Complete   completeCmd        `cmd:"" name:"__complete" hidden:""`
	Man        manCmd             `cmd:"" name:"__man" hidden:""`
}

const description = `Processes messages from RabbitMQ: retries failed messages later, loses none, and does not block the others.

  reprise up -c reprise.yaml               run the workers of a file
  reprise publish --to orders '{"id": 7}'  publish a message to a queue
  reprise broker --data DIR                run a broker for any AMQP client
  reprise failed groups                    list failed messages by error

Exit codes: 0 done, 1 failed, 2 invalid flags or configuration, 3 started but not completed.`

// newParser returns a parser for the command line.
func newParser(streams terminal.IO, options ...kong.Option) (*kong.Kong, error) {
	parser, err := kong.New(&commands{}, slices.Concat(flags.Mappers, options, []kong.Option{
		kong.Name("reprise"),
		kong.Description(description),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, NoAppDescFormat: true}),
		kong.Help(printHelp),
		kong.Vars{"console": remote.DefaultAddress, "maxPeek": strconv.Itoa(queuecmd.MaxPeek), "byQueueName": "Send messages by the name of their queue if no other route to it is known. Default: refuse."},
		kong.Writers(streams.Stdout, streams.Stderr),
		kong.BindTo(context.Background(), (*context.Context)(nil)),
	})...)
	if err == nil {
		parser.Model.HelpFlag.Help = "Show this help."
	}
	return parser, err
}

// Main runs the command in args and returns the exit code of the process. SIGINT and SIGTERM stop the command
// gracefully. SIGHUP does the same, except in commands that run until they are stopped.
func Main(args []string, streams terminal.IO) int {
	if len(args) == 1 && args[0] == upcmd.ReapCommand { // internal command; runs before the parser to keep the process small
		handler.Reap(streams.Stdin)
		return exit.CodeOK
	}
	ended := -1 // set after the help was printed
	parser, err := newParser(streams, kong.Exit(func(code int) { ended = code }))
	if err != nil {
		return report(streams, err) // the structs above are inconsistent
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	if len(args) == 1 && args[0] == "--version" {
		args = []string{"version"}
	}
	command, err := parser.Parse(args)
	if ended >= 0 {
		return ended
	}
	if err == nil {
		err = repeated(command)
	}
	if err != nil {
		return report(streams, invalid(command, err))
	}
	stop := serve.Catch(context.Background())
	defer stop.Release()
	command.BindTo(stop.Ctx, (*context.Context)(nil))
	return report(streams, command.Run(streams, stop))
}

// invalid returns the error for an invalid command line. Commands with a method UsageIsFailure have another meaning of the exit
// code for it.
func invalid(command *kong.Context, err error) error {
	if parse, ok := errors.AsType[*kong.ParseError](err); ok {
		command = parse.Context
	}
	err = exit.Usage(hint(command, err))
	if command != nil && command.Selected() != nil {
		if _, ok := command.Selected().Target.Interface().(interface{ UsageIsFailure() }); ok {
			err = exit.Failed(err)
		}
	}
	return err
}

// repeated returns an error if a flag with one value occurs twice, because only the last value would have an effect.
func repeated(command *kong.Context) error {
	seen := map[*kong.Flag]bool{}
	for _, p := range command.Path {
		if p.Flag == nil || p.Resolved || p.Flag.IsCumulative() || p.Flag.IsBool() || p.Flag.IsCounter() {
			continue
		}
		if seen[p.Flag] {
			return fmt.Errorf("--%s must not occur twice", p.Flag.Name)
		}
		seen[p.Flag] = true
	}
	return nil
}

// missing returns the required argument that a command lacks.
func missing(command *kong.Context, err error) *kong.Positional {
	if command == nil || command.Selected() == nil {
		return nil
	}
	for _, p := range command.Selected().Positional {
		if p.Help != "" && err.Error() == fmt.Sprintf("expected %q", p.Summary()) {
			return p
		}
	}
	return nil
}

// subcommands returns the names of the visible subcommands of the selected command.
func subcommands(command *kong.Context) []string {
	var names []string
	if node := command.Selected(); node != nil {
		for _, child := range node.Children {
			if !child.Hidden {
				names = append(names, child.Name)
			}
		}
	}
	return names
}

// notValue matches the error if a flag is followed by another flag, or by a value that looks like a flag.
var notValue = regexp.MustCompile(`^(--\S+): expected \S+ value but got "(.*)" \((?:short|long) flag`)

// hint extends a command line error with a reference to the help.
func hint(command *kong.Context, err error) error {
	where := "reprise --help"
	if parse, ok := errors.AsType[*kong.ParseError](err); ok {
		command = parse.Context
	}
	if command != nil && command.Selected() != nil {
		where = command.Selected().FullPath() + " --help"
	}
	if strings.Contains(err.Error(), `but got "EOL"`) { // a flag without a value at the end
		flag, _, _ := strings.Cut(err.Error(), ":")
		err = fmt.Errorf("%s takes a value", flag)
	}
	if m := notValue.FindStringSubmatch(err.Error()); m != nil {
		err = fmt.Errorf("%s takes a value: got %s (write %s=%s if this is the value)", m[1], m[2], m[1], m[2])
	}
	if wanted := missing(command, err); wanted != nil {
		what := strings.TrimSuffix(wanted.Help, ".")
		if !strings.HasPrefix(what, "ID") {
			what = strings.ToLower(what[:1]) + what[1:]
		}
		err = fmt.Errorf("%s is missing: %s", wanted.Summary(), what)
	}
	if command != nil && strings.HasPrefix(err.Error(), "expected ") && len(subcommands(command)) > 0 {
		err = fmt.Errorf("%s takes a command: %s", command.Selected().Name, strings.Join(subcommands(command), ", "))
	}
	return fmt.Errorf("%w (see %s)", err, where)
}

// report prints an error and returns its exit code.
func report(streams terminal.IO, err error) int {
	if problems, ok := errors.AsType[*config.Problems](err); ok {
		// Each problem begins with its position, as in the output of compilers.
		fmt.Fprintln(streams.Stderr, problems)
	} else if err != nil && !errors.Is(err, exit.ErrPrinted) {
		// An error can contain text of messages and of other programs, which must not control the terminal.
		fmt.Fprintln(streams.Stderr, "reprise:", strings.ReplaceAll(brief.Visible(exit.Text(err)), "\r", ""))
	}
	return exit.Code(err)
}
