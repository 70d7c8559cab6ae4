package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/failed"
)

// redriveTarget is where messages of a failed queue go.
type redriveTarget struct {
	Queue    string `json:"queue,omitempty"`
	Messages int64  `json:"messages"`
	Claimed  bool   `json:"claimed,omitempty"` // a header alone says so
	Unknown  bool   `json:"unknown,omitempty"` // nothing says where: they cannot be sent
}

func redriveTargets(p failed.RedrivePreview) []redriveTarget {
	var all []redriveTarget
	for _, d := range p.Destinations {
		all = append(all, redriveTarget{d.RoutingKey, d.Messages, d.Claimed, d.Unknown})
	}
	return all
}

// targetsText says how many messages go where, each in a line of its own.
func targetsText(all []redriveTarget, looked, found int) string {
	var b strings.Builder
	for _, t := range all {
		switch {
		case t.Unknown:
			fmt.Fprintf(&b, "\n  %d nowhere: nothing says in which queue they failed; --to names one", t.Messages)
		case t.Claimed:
			fmt.Fprintf(&b, "\n  %d to %s, which nothing but their own headers says", t.Messages, oneLiner(t.Queue))
		default:
			fmt.Fprintf(&b, "\n  %d to %s", t.Messages, oneLiner(t.Queue))
		}
	}
	if all != nil && looked < found {
		fmt.Fprintf(&b, "\n  %d were not looked at", found-looked)
	}
	return b.String()
}

// queues says where messages go that each go back to where they failed.
func (r redriveResult) queues(to *failed.Target) string {
	if to != nil {
		return ""
	}
	return targetsText(r.Queues, r.Looked, r.Found)
}

// looks reports whether it is looked first what goes where.
func (c *redriveCmd) looks(to *failed.Target) bool { return c.DryRun || to == nil && !c.Yes }

// believe shows what goes where, and returns which headers are to be believed: those that
// somebody has seen and says yes to. What was not looked at, or came later, ends the
// redrive.
func (c *redriveCmd) believe(ctx context.Context, streams IO, p failed.RedrivePreview) (func(string) bool, error) {
	if p.Found == 0 {
		return nil, nil
	}
	var claimed []string
	for _, d := range p.Destinations {
		if d.Claimed {
			claimed = append(claimed, d.RoutingKey)
		}
	}
	asks := terminal(streams.Stdin) && terminal(streams.Stderr)
	if asks || claimed != nil {
		fmt.Fprintf(streams.Stderr, "%s: %s%s\n", c.From, plural(p.Found, "message"), targetsText(redriveTargets(p), p.Looked, p.Found))
	}
	switch {
	case asks:
		_, err := confirm(ctx, streams, "Send them?")
		return func(queue string) bool { return slices.Contains(claimed, queue) }, err
	case claimed != nil:
		return nil, &failed.ClaimError{Queue: claimed[0]}
	}
	return func(string) bool { return false }, nil
}
