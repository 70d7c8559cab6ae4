package queuecmd

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/fleet"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/protocol"
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

// blockedKeys contains the blocked keys of a queue, as reported by its workers.
type blockedKeys struct {
	Queue      string                `json:"queue"`
	Partitions int                   `json:"partitions"`
	Blocked    int                   `json:"blocked"`
	Behind     int                   `json:"behind"`
	Keys       []protocol.BlockedKey `json:"keys"` // the oldest of each worker
	workers    int
}

// keysOf returns the blocked keys of a queue whose workers have sent their statuses after the given time.
func keysOf(list *fleet.List, queue string, since time.Time) (all blockedKeys, complete bool) {
	all = blockedKeys{Queue: queue, Keys: []protocol.BlockedKey{}}
	complete = true
	for _, w := range list.Workers() {
		if w.Queue != queue || w.Silent || w.Keys == nil {
			continue
		}
		complete = complete && w.Heard.After(since)
		all.workers++
		all.Partitions = w.Keys.Partitions
		all.Blocked += w.Keys.Blocked
		all.Behind += w.Keys.Behind
		all.Keys = append(all.Keys, w.Keys.Oldest...)
	}
	slices.SortStableFunc(all.Keys, func(x, y protocol.BlockedKey) int { return x.Since.Compare(y.Since) })
	return all, complete && all.workers > 0
}

// ask waits for the statuses of the workers of a queue.
func (b brokerFlags) ask(ctx context.Context, list *fleet.List, queue string) (all blockedKeys, err error) {
	begun := time.Now()
	err = b.until(ctx, func() bool {
		all, _ = keysOf(list, queue, begun)
		return all.workers > 0 && time.Since(begun) > b.others()
	})
	if err == nil && all.workers == 0 {
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
attempts. BEHIND is the number of messages that wait behind it. Each worker reports at most 10 keys.

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
		return streams.Result(c.JSON, all, all.text(time.Now(), streams.Width()))
	})
}

// text formats the keys as a table, followed by their total number.
func (all blockedKeys) text(now time.Time, width int) string {
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
		next := "now"
		if k.Next.After(now) {
			next = terminal.Ago(k.Next, now)
		}
		table.Add(k.Key, terminal.Ago(k.Since, now), next, strconv.Itoa(k.Attempts), strconv.Itoa(k.Behind), remote.CauseLine(k.Error))
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

// act stores an act, and waits until the owner of the key reports another state of the key.
func (c *keyFlags) act(ctx context.Context, streams terminal.IO, act reprise.KeyAct, done string) error {
	return c.with(ctx, "reprise keys", streams, func(ctx context.Context, client *reprise.Client, list *fleet.List) error {
		before, err := c.ask(ctx, list, c.Queue)
		if err != nil {
			return err
		}
		find := func(all blockedKeys) int {
			return slices.IndexFunc(all.Keys, func(k protocol.BlockedKey) bool { return k.Key == c.Key })
		}
		i := find(before)
		if i < 0 && len(before.Keys) == before.Blocked {
			return fmt.Errorf("key %s of queue %s is not blocked (see `reprise keys ls`)", brief.Quoted(c.Key), brief.Quoted(c.Queue))
		}
		if err := client.ControlKey(ctx, c.Queue, before.Partitions, c.Key, act, remote.Actor()); err != nil {
			return err
		}
		result := keyResult{Queue: c.Queue, Key: c.Key, Act: act}
		stored := time.Now()
		err = c.until(ctx, func() bool {
			_ = fleet.Control(ctx, client, protocol.Command{Do: protocol.DoReport, Queue: c.Queue}) // statuses also arrive without it
			after, complete := keysOf(list, c.Queue, stored)
			j := find(after)
			result.Effect = i >= 0 && complete && (j < 0 || after.Keys[j] != before.Keys[i])
			return result.Effect
		})
		if err != nil {
			return err
		}
		text := fmt.Sprintf("key %s of queue %s: %s\n", terminal.OneLine(c.Key), terminal.OneLine(c.Queue), done)
		if !result.Effect {
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
	return c.act(ctx, streams, reprise.RetryFirst, "first message retried")
}

type keysParkCmd struct {
	All bool `help:"Park all messages of the key that the worker holds at this time."`
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
		return c.act(ctx, streams, reprise.ParkAll, "waiting messages parked")
	}
	return c.act(ctx, streams, reprise.ParkFirst, "first message parked")
}
