package failedcmd

import (
	"cmp"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/flags"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/brief"
)

// selection contains the flags that select messages. A message must match all given flags.
type selection struct {
	IDs         []int64      `arg:"" optional:"" name:"id" help:"Message IDs."`
	Queue       *string      `placeholder:"NAME" help:"Work queue of the failure."`
	Group       *int64       `placeholder:"ID" help:"ID of an error group."`
	Error       *string      `placeholder:"TEXT" help:"Part of the last error, with the same case."`
	Text        *string      `placeholder:"WORDS" help:"Words in errors, the message ID, the correlation ID or a text body."`
	Header      []string     `short:"H" sep:"none" placeholder:"K=V" help:"Header, as name=value. Repeatable."`
	Since       flags.Moment `placeholder:"TIME" help:"Time of the last failure, or later: 2026-03-01T09:00:00Z, 2026-03-01 (local time), or 2h for two hours ago."`
	Until       flags.Moment `placeholder:"TIME" help:"Upper limit for the time of the last failure."`
	MinAttempts *int         `name:"min-attempts" placeholder:"N" help:"Minimum number of attempts."`
	MaxAttempts *int         `name:"max-attempts" placeholder:"N" help:"Maximum number of attempts."`
	Back        *int64       `name:"back-from" placeholder:"ID" help:"Messages that failed again after this replay."`
	Refused     bool         `help:"Messages that their latest replay could not send."`
	RefusedBy   *int64       `name:"refused-by" placeholder:"ID" help:"Messages that this replay could not send, in any state."`
	SentBy      *int64       `name:"sent-by" placeholder:"ID" help:"Messages that this replay sent, in any state."`
	Act         *int64       `name:"act" placeholder:"ID" help:"Messages that this act of the audit log discarded, restored or reverted, unless a later act did."`
	Outcome     *string      `name:"outcome" placeholder:"OUTCOME" help:"Outcome for --sent-by: pending, retrying, settled, succeeded, 'failed again' or unknown."`
}

// filter converts the selection for the console. An empty or zero value of a given flag is an error, for example the
// value of an unset variable in a script, because omitting the condition would select more messages. The argument
// state is the state of the messages, or "all".
func (s *selection) filter(state string) (failed.Filter, error) {
	f := failed.Filter{Since: s.Since.Time(), Until: s.Until.Time(), Refused: s.Refused}
	if state != "all" {
		f.States = []failed.State{failed.State(state)}
	}
	err := cmp.Or(
		flags.Given("queue", s.Queue, &f.Queue), flags.Given("group", s.Group, &f.Group), flags.Given("error", s.Error, &f.Error), flags.Given("text", s.Text, &f.Text),
		flags.Given("min-attempts", s.MinAttempts, &f.MinAttempts), flags.Given("max-attempts", s.MaxAttempts, &f.MaxAttempts),
		flags.Given("back-from", s.Back, &f.Replay), flags.Given("refused-by", s.RefusedBy, &f.RefusedBy),
		flags.Given("sent-by", s.SentBy, &f.SentBy), flags.Given("outcome", s.Outcome, &f.Outcome), flags.Given("act", s.Act, &f.Act),
	)
	if err != nil {
		return f, err
	}
	if f.Outcome == "failed-again" { // failed-again needs no quotes in a shell
		f.Outcome = failed.OutcomeFailedAgain
	}
	for _, id := range s.IDs {
		f.IDs = append(f.IDs, failed.ID(id))
		if id < 1 {
			return f, exit.Usagef("message number must be at least 1: got %d (`reprise failed ls` lists the numbers)", id)
		}
	}
	for _, h := range s.Header {
		name, value, found := strings.Cut(h, "=")
		if !found || name == "" {
			return f, exit.Usagef("--header must be name=value: got %s", brief.Quoted(h))
		}
		if f.Headers == nil {
			f.Headers = map[string]string{}
		}
		if _, twice := f.Headers[name]; twice {
			return f, exit.Usagef("--header %s is set twice", brief.Quoted(name))
		}
		f.Headers[name] = value
	}
	if err := f.Validate(); err != nil {
		return f, exit.Usage(err)
	}
	return f, nil
}

// some returns the selection for an action. A selection of all messages requires --all, to prevent mistakes.
func (s *selection) some(all bool) (failed.Selection, error) {
	f, err := s.filter("all")
	switch {
	case err != nil:
		return failed.Selection{}, err
	case f.IsZero() && !all:
		return failed.Selection{}, exit.Usagef("a selection of messages is required (use IDs, --group, --queue, --error …, or --all)")
	case all && !f.IsZero():
		return failed.Selection{}, exit.Usagef("--all and other flags of a selection exclude each other")
	}
	return failed.Selection{Filter: f, All: all}, nil
}
