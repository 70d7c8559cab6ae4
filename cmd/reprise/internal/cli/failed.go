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
	"github.com/reprisemq/reprise/internal/api"
)

type failedCmd struct {
	Ls      failedLsCmd      `cmd:"" help:"List messages, the latest failure first."`
	Groups  failedGroupsCmd  `cmd:"" help:"List groups of messages that failed alike."`
	Show    failedShowCmd    `cmd:"" help:"Show a message with all that is known of it."`
	Replay  failedReplayCmd  `cmd:"" help:"Send messages back."`
	Replays failedReplaysCmd `cmd:"" help:"List replays, or cancel one."`
	Edit    failedEditCmd    `cmd:"" help:"Change body and headers of a message, for its replay."`
	Discard failedDiscardCmd `cmd:"" help:"Drop messages, on record."`
	Undo    failedUndoCmd    `cmd:"" help:"Bring back messages that were discarded."`
	Mute    failedMuteCmd    `cmd:"" help:"Exclude a group from notifications."`
	Unmute  failedUnmuteCmd  `cmd:"" help:"Include a group in notifications again."`
	Export  failedExportCmd  `cmd:"" help:"Write messages as JSON Lines."`
	Import  failedImportCmd  `cmd:"" help:"Archive what export wrote."`
	Erase   failedEraseCmd   `cmd:"" help:"Delete contents of messages for good, on record."`
	Purge   failedPurgeCmd   `cmd:"" help:"Remove messages for which the archive's time is over."`
}

// Help shows examples below the flags.
func (failedCmd) Help() string {
	return `They ask a console that runs: reprise console, or reprise up with console: in its file.

Examples:
  reprise failed groups
  reprise failed ls --group 3 --since 2h
  reprise failed show 17
  reprise failed edit 17
  reprise failed replay 17
  reprise failed replay --group 3 --canary 1m --rate 50/s
  reprise failed discard --error 'no such customer' --reason 'test orders'
  reprise failed undo 17

Exit codes: 0 done, 1 failed, 2 wrong flags, 3 a replay that stopped or was cancelled before all was sent.
`
}

// serverFlags specify the console and the identity of the user.
type serverFlags struct {
	Server    string `env:"REPRISE_SERVER" type:"address" placeholder:"URL" help:"The console. Default http://${console}."`
	TokenFile string `name:"token-file" placeholder:"FILE" help:"File with a token in its first line; else REPRISE_TOKEN. Default: none."`
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
			return nil, usagef("--token-file %s: its first line is empty: write a token into it", f.TokenFile)
		}
	}
	client, err := api.NewClient(api.ClientConfig{URL: cmp.Or(f.Server, "http://"+defaultConsole), Token: token, Actor: actor()})
	if err != nil {
		return nil, usagef("--server: %w", err)
	}
	return client, nil
}

// ask calls run with a client, and adds advice to its error.
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
	server := cmp.Or(f.Server, "http://"+defaultConsole)
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return fmt.Errorf("no console answers at %s: %w (`reprise console` runs one; --server names another)",
			server, op.Err)
	}
	if bad, ok := errors.AsType[*url.Error](err); ok && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("the console at %s: %w", server, bad.Err)
	}
	said, ok := errors.AsType[*api.Error](err)
	if ok && said.Advice == "" {
		return fmt.Errorf("something else than a console answers at %s: %s (--server names another)", server, terminal.OneLine(said.Text))
	}
	if ok && said.Status == http.StatusUnauthorized {
		return fmt.Errorf("%w (set %s, or give --token-file FILE)", said, tokenVariable)
	}
	return err
}
