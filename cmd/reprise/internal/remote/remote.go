// Package remote has what commands share that ask a running console: the flags for the console and the user, lists in
// pages, and the results of actions.
package remote

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

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/flags"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
)

// DefaultAddress is the default address of a console, also for reprise failed.
const DefaultAddress = "127.0.0.1:15600"

// Console contains the flags that specify the console and the identity of the user.
type Console struct {
	Server    string `env:"REPRISE_SERVER" type:"address" placeholder:"URL" help:"URL of the console. Default http://${console}."`
	TokenFile string `name:"token-file" placeholder:"FILE" help:"File with the user's token in its first line. Default: $REPRISE_TOKEN, else none."`
}

// tokenVariable is the environment variable with the token for a console.
const tokenVariable = "REPRISE_TOKEN"

// client returns a client of the console. It does not connect.
func (f Console) client(streams terminal.IO) (*api.Client, error) {
	token, _ := streams.Lookup(tokenVariable)
	if f.TokenFile != "" {
		line, err := flags.FirstLine(f.TokenFile)
		if err != nil {
			return nil, exit.Usagef("--token-file: %w", err)
		}
		if token = strings.TrimSpace(line); token == "" {
			return nil, exit.Usagef("--token-file %s must start with a token: got an empty line", f.TokenFile)
		}
	}
	client, err := api.NewClient(api.ClientConfig{URL: cmp.Or(f.Server, "http://"+DefaultAddress), Token: token, Actor: Actor()})
	if err != nil {
		return nil, exit.Usagef("--server: %w", err)
	}
	return client, nil
}

// Ask calls the function run with a client, and adds advice to the error that run returns.
func (f Console) Ask(streams terminal.IO, run func(*api.Client) error) error {
	client, err := f.client(streams)
	if err != nil {
		return err
	}
	return f.Explained(run(client))
}

// Actor returns the current user, for the audit log of a console without tokens.
func Actor() string {
	name, host := "somebody", "somewhere"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return "cli:" + name + "@" + host
}

// Explained adds advice for the user to an error of the client.
func (f Console) Explained(err error) error {
	server := api.Shown(cmp.Or(f.Server, "http://"+DefaultAddress))
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
