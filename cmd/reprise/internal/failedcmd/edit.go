package failedcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/reprisemq/reprise/cmd/reprise/internal/content"
	"github.com/reprisemq/reprise/cmd/reprise/internal/destination"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/flags"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/topology"
)

type editCmd struct {
	ID             int64    `arg:"" help:"Message ID."`
	Body           string   `placeholder:"FILE" help:"File with the new body, - for stdin. No editor opens."`
	Header         []string `short:"H" sep:"none" placeholder:"K=V" help:"Header to set: name=text, or name:=JSON. No editor opens. Repeatable."`
	Unset          []string `sep:"none" placeholder:"NAME" help:"Header to remove. No editor opens. Repeatable."`
	ContentType    *string  `name:"content-type" placeholder:"TYPE" help:"Content type to set. No editor opens."`
	Revert         bool     `help:"Restore the original message."`
	Replay         bool     `help:"Edit and replay in one step. If the message has a newer edit, the command changes and sends nothing."`
	To             string   `placeholder:"QUEUE" help:"Target of --replay: a queue, or EXCHANGE/KEY. Default: the queue of the failure."`
	ByQueueName    bool     `name:"by-queue-name" help:"${byQueueName}"`
	DryRun         bool     `name:"dry-run" help:"Only show the changes."`
	JSON           bool     `name:"json" help:"Print the message as JSON. With --replay: print the replay."`
	remote.Console `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (editCmd) Help() string {
	return `Opens the editor of VISUAL or EDITOR with the headers and the body of a message, and prints the changes. The
archive keeps the original message. --replay, or reprise failed replay, sends the edited message.

Examples:
  reprise failed edit 17
  reprise failed edit 17 --replay
  reprise failed edit 17 -H region=eu -H tries:=3 --unset priority-customer
  reprise failed show 17 --body | jq .total=5 | reprise failed edit 17 --body - --replay
  reprise failed edit 17 --revert
`
}

// Run edits a message.
func (c *editCmd) Run(ctx context.Context, streams terminal.IO) error {
	if c.Revert && (c.Body != "" || len(c.Header)+len(c.Unset) > 0 || c.ContentType != nil || c.DryRun || c.Replay) {
		return exit.Usagef("--revert and the flags of an edit exclude each other")
	}
	if (c.To != "" || c.ByQueueName) && !c.Replay {
		return exit.Usagef("--to and --by-queue-name require --replay")
	}
	to, err := destination.Parse(c.To)
	if err != nil {
		return err
	}
	set, err := flags.Headers(c.Header)
	if err != nil {
		return err
	}
	return c.Ask(streams, func(client *api.Client) error { return c.edit(ctx, streams, client, to, set) })
}

func (c *editCmd) edit(ctx context.Context, streams terminal.IO, client *api.Client, to *failed.Target, set map[string]any) error {
	m, err := client.Message(ctx, c.ID)
	if err != nil {
		return err
	}
	if c.Revert {
		if m, err = client.Revert(ctx, c.ID, m.Revision); err != nil {
			return err
		}
		return streams.Result(c.JSON, m, "reverted\n")
	}
	switch {
	case m.Redacted:
		return errors.New("cannot edit a message with secrets that your role does not see (an edit would lose them; use the admin role)")
	case m.State != "failed":
		return fmt.Errorf("message %d is %s: only a message in state failed can be edited", m.ID, m.State)
	}
	before := m.Original
	if m.Edited != nil {
		before = *m.Edited
	}
	after, err := c.edited(ctx, streams, m.Summary, before, set)
	if err != nil {
		return err
	}
	diff := editDiff(before, after)
	unchanged := diff == "" && bytes.Equal(before.Body, after.Body)
	if unchanged {
		diff = "nothing was changed\n"
	}
	if after.Body == nil {
		after.Body = []byte{} // an empty body; nil would mean unchanged
	}
	e := api.Edit{Revision: &m.Revision, Body: &after.Body, Headers: &after.Headers, Properties: &after.Properties}
	switch {
	case c.DryRun:
	case c.Replay:
		return c.replay(ctx, streams, client, api.EditAndReplay{Edit: e, To: api.TargetOf(to), ByQueueName: c.ByQueueName}, diff)
	case !unchanged:
		if m, err = client.Edit(ctx, c.ID, e); err != nil {
			return err
		}
	}
	return streams.Result(c.JSON, m, diff)
}

// replay saves an edit and replays the message.
func (c *editCmd) replay(ctx context.Context, streams terminal.IO, client *api.Client, e api.EditAndReplay, diff string) error {
	r, err := client.EditAndReplay(ctx, c.ID, e)
	if err != nil {
		return err
	}
	if !c.JSON {
		if _, err := io.WriteString(streams.Stdout, diff); err != nil {
			return err
		}
	}
	return follow(ctx, c.Console, streams, client, r, 0, c.JSON, 1)
}

// edited returns the content after the changes from flags or from the editor.
func (c *editCmd) edited(ctx context.Context, streams terminal.IO, m api.Summary, before api.Content, set map[string]any) (api.Content, error) {
	after := before
	after.Headers = api.Headers(maps.Clone(topology.Table(before.Headers)))
	if after.Headers == nil {
		after.Headers = api.Headers{}
	}
	if c.ContentType != nil {
		after.Properties.ContentType = new(api.Text(*c.ContentType))
	}
	if c.Body == "" && len(set)+len(c.Unset) == 0 && c.ContentType == nil {
		return c.byEditor(ctx, streams, m, after)
	}
	maps.Copy(after.Headers, set)
	for _, name := range c.Unset {
		if _, found := after.Headers[name]; !found {
			return after, exit.Usagef("--unset %s: header not found in the message", name)
		}
		delete(after.Headers, name)
	}
	var err error
	switch c.Body {
	case "":
	case "-":
		after.Body, err = io.ReadAll(streams.Stdin)
	default:
		after.Body, err = os.ReadFile(c.Body)
	}
	if err != nil {
		return after, exit.Usagef("--body: %w", err)
	}
	return after, nil
}

// byEditor lets the user edit a message in an editor. If the editor fails or the result is invalid, byEditor keeps
// the temporary file and reports its name, so that the user does not lose any text.
func (c *editCmd) byEditor(ctx context.Context, streams terminal.IO, m api.Summary, before api.Content) (api.Content, error) {
	command, found := streams.Lookup("VISUAL")
	if !found || command == "" {
		command, found = streams.Lookup("EDITOR")
	}
	if !found || strings.TrimSpace(command) == "" {
		return before, exit.Usagef("cannot open an editor (set EDITOR, or pass --body FILE, -H name=text or --unset NAME)")
	}
	if !api.IsText(before.Body) {
		return before, exit.Usagef("cannot edit a binary body in an editor (pass the new body with --body FILE; `reprise failed show %d --body` prints the current body)", m.ID)
	}
	f, err := os.CreateTemp("", fmt.Sprintf("reprise-%d-*.txt", m.ID))
	if err != nil {
		return before, err
	}
	text := editFile(m, before)
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return before, err
	}
	words := strings.Fields(command)
	editor := exec.CommandContext(ctx, words[0], append(words[1:], f.Name())...)
	editor.Stdin, editor.Stdout, editor.Stderr = streams.Stdin, streams.Stderr, streams.Stderr
	if err := editor.Run(); err != nil {
		return before, fmt.Errorf("cannot run editor %s: %w (the edited body is in %s)", command, err, f.Name())
	}
	written, err := os.ReadFile(f.Name())
	if err != nil {
		return before, err
	}
	after, err := readEdit(string(written), before)
	if err != nil {
		return before, fmt.Errorf("%w (the edited body is in %s)", err, f.Name())
	}
	_ = os.Remove(f.Name()) // the content was read
	return after, nil
}

// editDiff describes the changes that an edit makes.
func editDiff(before, after api.Content) string {
	was, is := editText(before), editText(after)
	if a, b := withLineBreak(was), withLineBreak(is); a != b {
		was, is = a, b // show a missing final line break only if it is the only difference
	}
	diff := strings.TrimPrefix(udiff.Unified("before", "after", was, is), "--- before\n+++ after\n")
	if a, b := before.Properties.Properties().ContentType, after.Properties.Properties().ContentType; a != b {
		diff = fmt.Sprintf("-content type: %s\n+content type: %s\n", a, b) + diff
	}
	lines := strings.Split(diff, "\n")
	for i, line := range lines {
		lines[i] = content.Harmless(line)
	}
	return strings.Join(lines, "\n")
}

func withLineBreak(s string) string { return strings.TrimSuffix(s, "\n") + "\n" }
