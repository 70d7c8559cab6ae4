package queuecmd

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/fleet"
	"github.com/reprisemq/reprise/internal/brief"
)

// Keys is reprise keys.
type Keys struct {
	Ls    keysLsCmd    `cmd:"" help:"List the keys that have been blocked for the longest time."`
	Retry keysRetryCmd `cmd:"" help:"Retry the first message of a blocked key now."`
	Park  keysParkCmd  `cmd:"" help:"Move the first message of a blocked key to the failed queue, so that the next one begins."`
}

// Help implements kong.HelpProvider.
func (Keys) Help() string {
	return `A worker with order_by handles the messages of a key in order. While the first message of a key waits for its retry,
the key is blocked. The workers must announce themselves: workers of reprise up, and Go programs with Config.Announce.

Examples:
  reprise keys ls orders
  reprise keys retry orders customer-17
  reprise keys park orders customer-17
  reprise keys park orders customer-17 --all
`
}

// ask waits for the statuses of the workers of a queue.
func (b brokerFlags) ask(ctx context.Context, list *fleet.List, queue string) (all fleet.BlockedKeys, err error) {
	begun := time.Now()
	err = b.until(ctx, func() bool {
		all, _ = fleet.KeysOf(list.Workers(), queue, begun)
		return all.Workers > 0 && time.Since(begun) > b.others()
	})
	if err == nil && all.Workers == 0 {
		err = fmt.Errorf("queue %s has no worker with order_by that answers within %s (see `reprise workers`)", brief.Quoted(queue), b.Wait)
	}
	return all, err
}

type keysLsCmd struct {
	Queue       string `arg:"" help:"Work queue."`
	brokerFlags `group:"Broker:"`
}

// Help implements kong.HelpProvider.
func (keysLsCmd) Help() string {
	return `SINCE is the first failure of the first message of the key, NEXT its next attempt, FAILED the number of its failed
attempts. BEHIND is the number of messages that wait behind it. Each worker reports at most 10 keys, and the first 160 bytes of a long key.

Examples:
  reprise keys ls orders
  reprise keys ls orders --json | jq '.keys[] | select(.attempts > 5)'
`
}

// Run lists keys.
func (c *keysLsCmd) Run(ctx context.Context, streams terminal.IO) error {
	return c.with(ctx, "reprise keys", streams, func(ctx context.Context, _ *reprise.Client, list *fleet.List) error {
		all, err := c.ask(ctx, list, c.Queue)
		if err != nil {
			return err
		}
		return streams.Result(c.JSON, all, keysText(all, time.Now(), streams.Width()))
	})
}

// keysText formats the keys as a table, followed by their total number.
func keysText(all fleet.BlockedKeys, now time.Time, width int) string {
	if all.Blocked == 0 {
		return "no key of queue " + terminal.OneLine(all.Queue) + " is blocked\n"
	}
	table := terminal.NewTable([]terminal.Column{
		{Name: "KEY", Least: 12},
		{Name: "SINCE"},
		{Name: "NEXT"},
		{Name: "FAILED", Right: true},
		{Name: "BEHIND", Right: true},
		{Name: "ERROR", Least: 20, Ends: true},
	})
	for _, k := range all.Keys {
		key := cmp.Or(k.Key, `""`)
		if k.Inexact {
			key += "…"
		}
		table.Add(key, terminal.Ago(k.Since, now), dueText(k.Next, now), strconv.Itoa(k.Attempts), strconv.Itoa(k.Behind), remote.CauseLine(k.Error))
	}
	shown := ""
	if len(all.Keys) < all.Blocked {
		shown = fmt.Sprintf(", %d listed", len(all.Keys))
	}
	return table.Text(width) + fmt.Sprintf("%s blocked%s; %s behind them\n", terminal.Plural(all.Blocked, "key"), shown, terminal.Plural(all.Behind, "message"))
}

// keyFlags specify a key.
type keyFlags struct {
	Queue       string `arg:"" help:"Work queue."`
	Key         string `arg:"" help:"Key."`
	brokerFlags `group:"Broker:"`
}

// keyResult is the JSON output of an act.
type keyResult struct {
	Queue  string         `json:"queue"`
	Key    string         `json:"key"`
	Act    reprise.KeyAct `json:"act"`
	Effect bool           `json:"effect"` // a worker has reported another state of the key
}

// act stores an act, and waits until the owner of the key reports another state of the key. It asks for confirmation of ParkAll unless
// yes is set.
func (c *keyFlags) act(ctx context.Context, streams terminal.IO, act reprise.KeyAct, yes bool, done string) error {
	return c.with(ctx, "reprise keys", streams, func(ctx context.Context, _ *reprise.Client, list *fleet.List) error {
		before, err := c.ask(ctx, list, c.Queue)
		if err != nil {
			return err
		}
		k, found := before.Find(c.Key)
		if !found && len(before.Keys) == before.Blocked {
			return fmt.Errorf("key %s of queue %s is not blocked (see `reprise keys ls`)", brief.Quoted(c.Key), brief.Quoted(c.Queue))
		}
		control := reprise.KeyControl{Queue: c.Queue, Key: c.Key, Act: act, By: remote.Actor()}
		if act == reprise.ParkAll && !yes {
			if !found {
				return fmt.Errorf("the number of messages of key %s is not known, because %s of queue %s are blocked (--yes parks all)", brief.Quoted(c.Key), terminal.Plural(before.Blocked, "key"), brief.Quoted(c.Queue))
			}
			control.Limit = 1 + k.Behind
			if ok, err := terminal.Confirm(ctx, streams, fmt.Sprintf("Move %s of key %s to the failed queue?", terminal.Plural(control.Limit, "message"), terminal.OneLine(c.Key))); !ok {
				return err
			}
		}
		effect, err := list.ControlKey(ctx, control, c.Wait)
		if err != nil {
			return err
		}
		result := keyResult{Queue: c.Queue, Key: c.Key, Act: act, Effect: effect}
		text := fmt.Sprintf("key %s of queue %s: %s\n", terminal.OneLine(c.Key), terminal.OneLine(c.Queue), done)
		if !effect {
			text = fmt.Sprintf("key %s of queue %s: request stored; no worker has reported its effect (see `reprise keys ls`)\n", terminal.OneLine(c.Key), terminal.OneLine(c.Queue))
		}
		return streams.Result(c.JSON, result, text)
	})
}

type keysRetryCmd struct{ keyFlags }

// Help implements kong.HelpProvider.
func (keysRetryCmd) Help() string {
	return `The attempt counts as usual. The request is stored in the held queue of the partition, so it also survives a crash.

Examples:
  reprise keys retry orders customer-17
`
}

// Run retries a message.
func (c *keysRetryCmd) Run(ctx context.Context, streams terminal.IO) error {
	return c.act(ctx, streams, reprise.RetryFirst, true, "first message retried")
}

type keysParkCmd struct {
	All bool `help:"Park all messages of the key that the worker holds, at most the number in the question."`
	Yes bool `short:"y" help:"Do not ask for confirmation."`
	keyFlags
}

// Help implements kong.HelpProvider.
func (keysParkCmd) Help() string {
	return `The parked messages have the last error of the handler and name you as the reason. A replay puts a message behind the
messages of its key that are already in the queue.

Examples:
  reprise keys park orders customer-17
  reprise keys park orders customer-17 --all
`
}

// Run parks messages.
func (c *keysParkCmd) Run(ctx context.Context, streams terminal.IO) error {
	if c.All {
		return c.act(ctx, streams, reprise.ParkAll, c.Yes, "waiting messages parked")
	}
	return c.act(ctx, streams, reprise.ParkFirst, true, "first message parked")
}
