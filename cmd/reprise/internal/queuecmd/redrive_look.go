package queuecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/destination"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/replay"
)

// redriveTarget is the destination of messages in a failed queue.
type redriveTarget struct {
	Queue      string `json:"queue,omitempty"`
	Exchange   string `json:"exchange,omitempty"`    // "": published directly to the queue
	RoutingKey string `json:"routing_key,omitempty"` // only with an exchange, and if all messages have the same key
	Keys       bool   `json:"keys,omitempty"`        // each message has a separate routing key
	Messages   int64  `json:"messages"`
	Claimed    bool   `json:"claimed,omitempty"` // only a header specifies the queue
	Unknown    bool   `json:"unknown,omitempty"` // the destination is unknown, so the messages cannot be sent
	Route      string `json:"route,omitempty"`   // how the target is known
	Warning    string `json:"warning,omitempty"` // effect on other programs
	Refused    bool   `json:"refused,omitempty"` // not sent without --by-queue-name
	Lost       string `json:"lost,omitempty"`    // why the messages are not sent: their consumer would lose them
}

func redriveTargets(destinations []replay.Destination) []redriveTarget {
	var all []redriveTarget
	for _, d := range destinations {
		t := redriveTarget{Queue: cmp.Or(d.Queue, d.RoutingKey), Messages: d.Messages, Claimed: d.Claimed, Unknown: d.Unknown, Route: d.Route, Warning: d.Warning, Refused: d.Refused, Lost: d.Lost}
		if d.Exchange != "" {
			t.Exchange, t.RoutingKey, t.Keys = d.Exchange, d.RoutingKey, d.Keys
		}
		all = append(all, t)
	}
	return all
}

// targetsText describes the number of messages by destination, one per line.
func targetsText(all []redriveTarget, looked, found int) string {
	var b strings.Builder
	for _, t := range all {
		switch {
		case t.Unknown:
			fmt.Fprintf(&b, "\n  %d: queue in which they failed is unknown (set it with --to)", t.Messages)
		case t.Lost != "":
			fmt.Fprintf(&b, "\n  %d to %s, not sent: %s", t.Messages, t.way(), terminal.OneLine(t.Lost))
		case t.Claimed:
			fmt.Fprintf(&b, "\n  %d to %s, according to their own headers only (--trust-headers accepts it)%s", t.Messages, t.way(), destination.Warning(t.Warning, t.Refused))
		default:
			fmt.Fprintf(&b, "\n  %d to %s%s", t.Messages, t.way(), destination.Warning(t.Warning, t.Refused))
		}
	}
	if all != nil && looked < found {
		fmt.Fprintf(&b, "\n  %d were not looked at", found-looked)
	}
	return b.String()
}

func (t redriveTarget) way() string {
	if t.Exchange == "" {
		return terminal.OneLine(t.Queue)
	}
	return destination.Way(t.Queue, t.Exchange, t.RoutingKey, t.Keys)
}

// queues describes the destinations of messages that return to their work queues. It describes a given target only if
// messages would be refused.
func (r redriveResult) queues(to *failed.Target) string {
	if to != nil && !slices.ContainsFunc(r.Queues, func(t redriveTarget) bool { return t.Refused }) {
		return ""
	}
	return targetsText(r.Queues, r.Looked, r.Found)
}

// looks reports whether the command inspects the destinations before it sends messages.
func (c *Redrive) looks(to *failed.Target) bool { return c.DryRun || to == nil && !c.Yes }

// believe shows the destinations. It returns a function that reports whether the user has seen and confirmed a
// claimed queue. Any other claimed queue stops the redrive. believe also reports whether it has shown anything.
func (c *Redrive) believe(ctx context.Context, streams terminal.IO, r redriveResult) (believe func(string) bool, shown bool, err error) {
	if r.Found == 0 {
		return nil, false, nil
	}
	var claimed []string
	for _, d := range r.Queues {
		if d.Refused {
			return nil, false, &replay.RouteError{Queue: d.Queue, Warning: d.Warning}
		}
		if d.Claimed && !c.Trust {
			claimed = append(claimed, d.Queue)
		}
	}
	fmt.Fprintf(streams.Stderr, "%s: %s%s\n", c.From, terminal.Plural(r.Found, "message"), targetsText(r.Queues, r.Looked, r.Found))
	_, err = terminal.Confirm(ctx, streams, "Send them?")
	if claimed != nil && errors.Is(err, terminal.ErrNoAnswer) {
		err = &replay.ClaimError{Queue: claimed[0]}
	}
	return func(queue string) bool { return c.Trust || slices.Contains(claimed, queue) }, true, err
}

// warningLogger prints the warnings of a redrive, except about destinations that the user has seen, and passes on all
// other records.
type warningLogger struct {
	slog.Handler
	w     io.Writer
	shown *bool // the user has seen the destinations
}

// Handle implements [slog.Handler].
func (l warningLogger) Handle(ctx context.Context, r slog.Record) error {
	attrs := map[string]string{}
	r.Attrs(func(a slog.Attr) bool { attrs[a.Key] = a.Value.String(); return true })
	switch {
	case r.Message == "redrive sends by queue name" && !*l.shown:
		fmt.Fprintf(l.w, "reprise: warning: messages are sent to %s by its name: %s\n", terminal.OneLine(attrs["queue"]), terminal.OneLine(attrs["warning"]))
	case r.Message == "cannot read bindings":
		fmt.Fprintf(l.w, "reprise: warning: cannot read the bindings: %s\n", terminal.OneLine(attrs["error"]))
	case strings.HasPrefix(r.Message, "redrive sends"):
	default:
		return l.Handler.Handle(ctx, r)
	}
	return nil
}
