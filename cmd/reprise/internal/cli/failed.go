package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
)

type failedCmd struct {
	Ls      failedLsCmd      `cmd:"" help:"List messages, the latest failure first."`
	Groups  failedGroupsCmd  `cmd:"" help:"List the error groups."`
	Show    failedShowCmd    `cmd:"" help:"Show a message."`
	Replay  failedReplayCmd  `cmd:"" help:"Replay messages."`
	Replays failedReplaysCmd `cmd:"" help:"List replays, or cancel a replay."`
	Edit    failedEditCmd    `cmd:"" help:"Edit the body and headers of a message."`
	Discard failedDiscardCmd `cmd:"" help:"Discard messages."`
	Undo    failedUndoCmd    `cmd:"" help:"Restore discarded messages."`
	Acts    failedActsCmd    `cmd:"" help:"List the audit log."`
	Merge   failedMergeCmd   `cmd:"" help:"Merge groups, or rename a group."`
	Unmerge failedUnmergeCmd `cmd:"" help:"Undo the merges into a group."`
	Regroup failedRegroupCmd `cmd:"" help:"Apply group rules to existing messages."`
	Mute    failedMuteCmd    `cmd:"" help:"Exclude a group from notifications."`
	Unmute  failedUnmuteCmd  `cmd:"" help:"Include a group in notifications again."`
	Export  failedExportCmd  `cmd:"" help:"Write messages as JSON Lines."`
	Import  failedImportCmd  `cmd:"" help:"Import exported messages."`
	Erase   failedEraseCmd   `cmd:"" help:"Delete the contents of messages permanently."`
	Purge   failedPurgeCmd   `cmd:"" help:"Remove messages that exceed the retention time."`
}

// Help implements kong.HelpProvider.
func (failedCmd) Help() string {
	return `The commands need a running console: reprise console, or reprise up with console: in its file.

Examples:
  reprise failed groups
  reprise failed ls --group 3 --since 2h
  reprise failed show 17
  reprise failed edit 17
  reprise failed replay 17
  reprise failed replay --group 3 --canary 1m --rate 50/s
  reprise failed discard --error 'no such customer' --reason 'test orders'
  reprise failed undo 17

Exit codes: 0 done, 1 failed, 2 invalid flags, 3 a replay that stopped, or that was cancelled before its end.
`
}

// serverFlags specify the console and the identity of the user.
type serverFlags struct {
	Server    string `env:"REPRISE_SERVER" type:"address" placeholder:"URL" help:"URL of the console. Default http://${console}."`
	TokenFile string `name:"token-file" placeholder:"FILE" help:"File with the user's token in its first line. Default: $REPRISE_TOKEN, else none."`
}

// tokenVariable is the environment variable with the token for a console.
const tokenVariable = "REPRISE_TOKEN"

// client returns a client of the console. It does not connect.
func (f serverFlags) client(streams IO) (*api.Client, error) {
	token, _ := streams.Lookup(tokenVariable)
	if f.TokenFile != "" {
		line, err := firstLine(f.TokenFile)
		if err != nil {
			return nil, usagef("--token-file: %w", err)
		}
		if token = strings.TrimSpace(line); token == "" {
			return nil, usagef("--token-file %s must start with a token: got an empty line", f.TokenFile)
		}
	}
	client, err := api.NewClient(api.ClientConfig{URL: cmp.Or(f.Server, "http://"+defaultConsole), Token: token, Actor: actor()})
	if err != nil {
		return nil, usagef("--server: %w", err)
	}
	return client, nil
}

// ask calls the function run with a client, and adds advice to the error that run returns.
func (f serverFlags) ask(streams IO, run func(*api.Client) error) error {
	client, err := f.client(streams)
	if err != nil {
		return err
	}
	return f.explained(run(client))
}

// firstLine returns the first line of a file with a secret.
func firstLine(path string) (string, error) {
	text, err := os.ReadFile(path)
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSuffix(line, "\r"), err
}

// actor returns the current user, for the audit log of a console without tokens.
func actor() string {
	name, host := "somebody", "somewhere"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return "cli:" + name + "@" + host
}

// explained adds advice for the user to an error of the client.
func (f serverFlags) explained(err error) error {
	server := api.Shown(cmp.Or(f.Server, "http://"+defaultConsole))
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return fmt.Errorf("cannot reach the console at %s: %w (start it with `reprise console`, or use --server)",
			server, op.Err)
	}
	if bad, ok := errors.AsType[*url.Error](err); ok && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("the console at %s: %w", server, bad.Err)
	}
	apiErr, ok := errors.AsType[*api.Error](err)
	if ok && apiErr.Advice == "" {
		return fmt.Errorf("the server at %s is not a console: %s (use --server URL)", server, terminal.OneLine(apiErr.Text))
	}
	if ok && apiErr.Status == http.StatusUnauthorized {
		return fmt.Errorf("%w (set %s, or pass --token-file FILE)", apiErr, tokenVariable)
	}
	return err
}
