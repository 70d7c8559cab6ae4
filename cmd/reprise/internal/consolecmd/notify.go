package consolecmd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/notification"
)

// Notify is reprise notify.
type Notify struct {
	Test notifyTestCmd `cmd:"" help:"Send a test message to each webhook."`
}

type notifyTestCmd struct {
	Config []string `short:"c" sep:"none" default:"reprise.yaml" placeholder:"FILE" help:"File with the webhooks under notify:. Default ${default}."`
}

// Help implements kong.HelpProvider.
func (notifyTestCmd) Help() string {
	return `Sends each message once, from this process. It does not need a running console.

Examples:
  reprise notify test
  reprise notify test -c webhooks.yaml

Exit codes: 0 all webhooks accepted the message, 1 a webhook did not, 2 the file is invalid.
`
}

// Run sends the messages.
func (c *notifyTestCmd) Run(ctx context.Context, streams terminal.IO) error {
	n, console, err := config.LoadNotify(c.Config...)
	if err == nil {
		err = n.ReadAuthorities()
	}
	if err != nil {
		return exit.Usage(err)
	}
	if console == "" {
		console = "http://" + remote.DefaultAddress
	}
	lines := make([]string, len(n.Webhooks))
	errs := make([]error, len(n.Webhooks))
	hooks := make([]notification.Webhook, len(n.Webhooks))
	var trying sync.WaitGroup
	for i, w := range n.Webhooks {
		hooks[i] = notification.Webhook{URL: w.URL, Format: notification.Format(w.Format), Secret: w.Secret, Authorities: w.Authorities}
		trying.Go(func() {
			answer, err := hooks[i].Try(ctx, console)
			switch {
			case answer == nil:
				lines[i], errs[i] = err.Error(), err
			default:
				lines[i], errs[i] = fmt.Sprintf("%d %s", answer.Status, http.StatusText(answer.Status)), err
				if answer.Text != "" {
					lines[i] += ": " + answer.Text
				}
			}
		})
	}
	trying.Wait()
	refused := 0
	for i, w := range hooks {
		if errs[i] != nil {
			refused++
		}
		if _, err := fmt.Fprintf(streams.Stdout, "%s (%s): %s\n", w.Name(), w.Format, terminal.OneLine(lines[i])); err != nil {
			return err
		}
	}
	if refused > 0 {
		return errors.New(terminal.Plural(refused, "webhook") + " did not accept the message")
	}
	return nil
}
