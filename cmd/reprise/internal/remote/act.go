package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
)

// Act contains the flags of an action on messages.
type Act struct {
	Yes     bool `short:"y" help:"Do not ask for confirmation."`
	DryRun  bool `name:"dry-run" help:"Only count the messages."`
	JSON    bool `name:"json" help:"Print JSON."`
	Console `group:"Console:"`
}

// Action is an action on messages.
type Action struct {
	Did       string            // what happens to the messages, such as "discarded"
	Named     int               // number of messages that were selected by ID
	Verb      string            // begins the question about the messages that a dry run has found; "": act without a question
	After     string            // ends the question
	Selection *failed.Selection // limited to the messages that the dry run has found; optional
	Do        func(client *api.Client, dryRun bool) (api.Done, error)
}

// Perform performs an action and prints its result. If the action has a question, and --yes is not set, Perform counts the
// messages in a dry run first, and asks for confirmation.
func (a Act) Perform(ctx context.Context, streams terminal.IO, action Action) error {
	return a.Ask(streams, func(client *api.Client) error {
		if a.DryRun || action.Verb != "" && !a.Yes {
			found, err := action.Do(client, true)
			if found.DryRun = a.DryRun; err != nil || a.DryRun || found.Messages == 0 {
				return PrintDone(streams, found, err, a.JSON, action.Did, action.Named)
			}
			if ok, err := terminal.Confirm(ctx, streams, fmt.Sprintf("%s %s%s%s?", action.Verb, terminal.Plural(int(found.Messages), "message"), action.After, states(found))); !ok {
				return err
			}
			if s := action.Selection; s != nil {
				s.AtMost, s.Through = found.Messages, found.Through
			}
		}
		done, err := action.Do(client, false)
		return PrintDone(streams, done, err, a.JSON, action.Did, action.Named)
	})
}

// states returns the number of messages in each state, such as " (2 failed, 1 replayed)", or "" if it is unknown.
func states(done api.Done) string {
	if words := done.States.Words(); words != "" {
		return " (" + words + ")"
	}
	return ""
}

// PrintDone prints the result of an action. The argument named is the number of messages that were selected by ID. It
// returns an error if the action did not apply to all of them, or skipped messages of a running replay.
func PrintDone(streams terminal.IO, done api.Done, err error, asJSON bool, did string, named int) error {
	if err != nil {
		return err
	}
	would := ""
	if done.DryRun {
		would = "would be "
	}
	text := fmt.Sprintf("%s %s%s%s\n", terminal.Plural(int(done.Messages), "message"), would, did, states(done))
	err = cmp.Or(streams.Result(asJSON, done, text), CheckAllChanged(named, done.Messages))
	switch left := terminal.Plural(int(done.Left), "message"); {
	case err != nil || done.Left == 0:
		return err
	case !done.DryRun:
		return fmt.Errorf("%s not %s: a replay is running (repeat the command when it has ended)", left, did)
	case !asJSON:
		fmt.Fprintf(streams.Stderr, "reprise: %s would not be %s: a replay is running\n", left, did)
	}
	return nil
}

// CheckAllChanged returns an error if the action did not apply to all messages that were selected by ID.
func CheckAllChanged(named int, done int64) error {
	switch rest := named - int(done); {
	case named == 1 && rest == 1:
		return errors.New("message not changed (see its state with `reprise failed show ID`)")
	case rest == 1:
		return fmt.Errorf("1 of %s not changed (see its state with `reprise failed show ID`)", terminal.Plural(named, "message"))
	case rest > 1:
		return fmt.Errorf("%d of %s not changed (see their states with `reprise failed show ID`)", rest, terminal.Plural(named, "message"))
	}
	return nil
}
