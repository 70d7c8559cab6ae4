package queuecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/dial"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/flags"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/fleet"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/inner"
	"github.com/reprisemq/reprise/internal/protocol"
)

// brokerFlags specify the broker of the workers.
type brokerFlags struct {
	URL     string        `env:"REPRISE_URL" type:"address" placeholder:"URL" help:"URL of the broker. Default amqp://guest:guest@127.0.0.1:5600."`
	Timeout time.Duration `default:"10s" placeholder:"TIME" help:"Maximum time to connect. Default ${default}."`
	Wait    time.Duration `default:"2s" placeholder:"TIME" help:"Maximum wait for the answers of workers. Default ${default}."`
	JSON    bool          `name:"json" help:"Print JSON."`
}

// with connects to the broker and calls f with the client and a list of workers that is updated in the
// background.
func (b brokerFlags) with(ctx context.Context, name string, streams terminal.IO, f func(context.Context, *reprise.Client, *fleet.List) error) error {
	if b.Timeout <= 0 || b.Wait <= 0 {
		return exit.Usagef("--timeout and --wait must be positive: got %s and %s", b.Timeout, b.Wait)
	}
	connecting, cancel := dial.Within(ctx, b.Timeout)
	defer cancel()
	client, err := dial.Broker(connecting, b.URL, &reprise.Config{
		Name: name, Logger: dial.Waiting(streams.Stderr, "not connected yet (%s), trying for "+b.Timeout.String(), b.Timeout),
	})
	if err != nil {
		return err
	}
	defer dial.HangUp(client, time.Second)
	list := fleet.New(client)
	watching, stop := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := list.Run(watching)
		stop(err)
		ended <- err
	}()
	err = f(watching, client, list)
	if alarm := inner.Of(client).Publishing.Trouble(); errors.Is(alarm, reprise.ErrBlocked) {
		fmt.Fprintf(streams.Stderr, "reprise: warning: %s: until the end of the alarm, workers do not answer, and with order_by, failed messages and the messages behind them wait\n", exit.Text(alarm))
	}
	stop(nil)
	return cmp.Or(<-ended, err)
}

// until waits until the function done returns true, but at most for the response time of workers (--wait).
func (b brokerFlags) until(ctx context.Context, done func() bool) error {
	deadline := time.NewTimer(b.Wait)
	defer deadline.Stop()
	for !done() {
		select {
		case <-deadline.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// others returns the time for further responses after the first response.
func (b brokerFlags) others() time.Duration { return min(b.Wait/4, 500*time.Millisecond) }

// answer waits for the full response time of workers (--wait), because the number of workers is unknown.
func (b brokerFlags) answer(ctx context.Context) error {
	return b.until(ctx, func() bool { return false })
}

// Workers is reprise workers.
type Workers struct {
	Queue       []string `placeholder:"NAME" sep:"none" help:"Work queue. Repeatable. Default: all."`
	Messages    bool     `help:"Also list the oldest 16 messages that each worker handles."`
	brokerFlags `group:"Broker:"`
}

// Help implements kong.HelpProvider.
func (Workers) Help() string {
	return `Lists the workers of all processes that announce themselves on the broker: workers of reprise up, and Go
programs with Config.Announce. Workers must answer within the time of --wait. BUSY is the number of busy handlers,
LONGEST the age of the oldest message in a handler. SUCCEEDED counts messages and FAILED counts attempts since the
start of the worker.

Examples:
  reprise workers
  reprise workers --queue orders --messages
  reprise workers --json | jq '.workers[] | select(.state != "consuming")'
`
}

// Run lists workers.
func (c *Workers) Run(ctx context.Context, streams terminal.IO) error {
	return c.with(ctx, "reprise workers", streams, func(ctx context.Context, _ *reprise.Client, list *fleet.List) error {
		if err := c.answer(ctx); err != nil {
			return err
		}
		all := api.WorkersOf(list.Workers(), c.Queue)
		return streams.Result(c.JSON, all, workersText(all, c.Messages, time.Now(), streams.Width()))
	})
}

// workersText formats the workers as a table, followed by notes and, if messages is true, the messages that are being
// processed.
func workersText(all api.Workers, messages bool, now time.Time, width int) string {
	if len(all.Workers) == 0 {
		return "no workers (a Go program announces its workers with Config.Announce)\n"
	}
	var b strings.Builder
	table := terminal.NewTable([]terminal.Column{
		{Name: "QUEUE", Least: 12},
		{Name: "WORKER"},
		{Name: "HOST", Least: 8},
		{Name: "PID", Right: true},
		{Name: "VERSION", Least: 8},
		{Name: "STATE"},
		{Name: "BUSY", Right: true},
		{Name: "LONGEST", Right: true},
		{Name: "SUCCEEDED", Right: true},
		{Name: "FAILED", Right: true},
		{Name: "UP", Right: true},
	})
	handled := terminal.NewTable([]terminal.Column{{Name: "WORKER"}, {Name: "MESSAGE", Least: 12}, {Name: "ATTEMPT", Right: true}, {Name: "FOR", Right: true}, {Name: "PROGRESS", Least: 12}})
	var notes []string
	for _, w := range all.Workers {
		longest := "-"
		for i, h := range w.Handling {
			lasts := terminal.Roughly(time.Duration(h.For))
			if i == 0 {
				longest = lasts
			}
			handled.Add(w.ID, cmp.Or(h.MessageID, "-"), strconv.Itoa(h.Attempt), lasts, progressText(h.Progress))
		}
		table.Add(w.Queue, w.ID, w.Host, strconv.Itoa(w.PID), cmp.Or(w.Program, "-"), w.State,
			fmt.Sprintf("%d/%d", w.Running, w.Concurrency), longest,
			strconv.FormatUint(w.Counts.Succeeded, 10), strconv.FormatUint(w.Counts.Failed, 10), terminal.Roughly(now.Sub(w.Started)))
		for _, p := range w.Pauses {
			whose := "worker " + w.ID
			if p.Of == protocol.PauseOfQueue {
				whose = "queue " + terminal.OneLine(w.Queue)
			}
			if p.By == "" && p.Of == protocol.PauseOfItself {
				p.By = "itself"
			}
			notes = append(notes, whose+": "+terminal.OneLine(p.String()))
		}
		if w.Trouble != "" {
			notes = append(notes, "worker "+w.ID+": "+terminal.OneLine(w.Trouble))
		}
	}
	b.WriteString(table.Text(width))
	for _, note := range unique(notes) {
		b.WriteString(note + "\n")
	}
	if messages && len(handled.Rows) > 0 {
		b.WriteString("\n" + handled.Text(width))
	}
	return b.String()
}

// progressText returns a text such as "40% page 4 of 10 (2s ago)".
func progressText(p *api.Progress) string {
	if p == nil {
		return "-"
	}
	text := "alive"
	if p.Fraction > 0 || p.Text != "" {
		text = strings.TrimSpace(fmt.Sprintf("%d%% %s", p.Percent(), terminal.OneLine(p.Text)))
	}
	return fmt.Sprintf("%s (%s ago)", text, terminal.Roughly(time.Duration(p.Ago)))
}

// Pause is reprise pause.
type Pause struct {
	Queue       string         `arg:"" help:"Work queue."`
	Worker      string         `placeholder:"ID" help:"ID of one worker, or its first characters. The pause ends when the worker stops."`
	For         *time.Duration `placeholder:"TIME" help:"Duration of the pause, such as 10m or 1d. Default: until reprise resume."`
	Reason      string         `placeholder:"TEXT" help:"Reason, for other operators."`
	Yes         bool           `short:"y" help:"Also pause a queue without workers that does not exist, for workers that start later."`
	brokerFlags `group:"Broker:"`
}

// Help implements kong.HelpProvider.
func (Pause) Help() string {
	return `The workers finish the messages that they handle and requeue the other messages. The broker stores the pause, so it
also applies to workers that start later. The pause applies to workers that announce themselves: workers of reprise up,
and Go programs with Config.Announce. Other consumers of the queue continue.

Examples:
  reprise pause orders --for 10m --reason 'the payment provider is down'
  reprise pause orders --worker 9f2c
  reprise pause new-orders --yes
  reprise resume orders
`
}

// Run pauses the workers.
func (c *Pause) Run(ctx context.Context, streams terminal.IO) error {
	lasts, err := flags.AtLeast(time.Second, "--for", c.For)
	if err != nil {
		return err
	}
	p := protocol.Pause{By: remote.Actor(), Reason: c.Reason}
	return c.with(ctx, "reprise pause", streams, func(ctx context.Context, client *reprise.Client, list *fleet.List) error {
		if err := c.exists(ctx, client, list); err != nil {
			return fmt.Errorf("%w; nothing was paused (--yes pauses workers that start later)", err)
		}
		id, err := c.worker(ctx, list, c.Queue, c.Worker)
		if err != nil {
			return err
		}
		p.At = time.Now()
		if lasts > 0 {
			p.Until = p.At.Add(lasts)
		}
		if err := fleet.Control(ctx, client, protocol.Command{Do: protocol.DoPause, Queue: c.Queue, Worker: id, Pause: p}); err != nil {
			return noListener(err)
		}
		return c.report(ctx, streams, list, c.Queue, id, protocol.WorkerPaused)
	})
}

// exists returns an error if the queue does not exist and no worker has it, unless the user has confirmed this. Workers with order_by
// or lanes consume other queues.
func (c *Pause) exists(ctx context.Context, client *reprise.Client, list *fleet.List) error {
	if c.Yes {
		return nil
	}
	_, missing := client.Depth(ctx, c.Queue)
	if missing == nil {
		return nil
	}
	found := false
	err := c.until(ctx, func() bool {
		found = slices.ContainsFunc(list.Workers(), func(w fleet.Worker) bool { return w.Queue == c.Queue })
		return found
	})
	if err == nil && !found {
		return missing
	}
	return err
}

// Resume is reprise resume.
type Resume struct {
	Queue       string `arg:"" help:"Work queue."`
	Worker      string `placeholder:"ID" help:"ID of a worker that was paused with --worker, or its first characters."`
	brokerFlags `group:"Broker:"`
}

// Help implements kong.HelpProvider.
func (Resume) Help() string {
	return `Resumes workers that were paused with reprise pause or in the console. Use --worker for a worker that was
paused with --worker.

Examples:
  reprise resume orders
  reprise resume orders --worker 9f2c
`
}

// Run resumes the workers.
func (c *Resume) Run(ctx context.Context, streams terminal.IO) error {
	return c.with(ctx, "reprise resume", streams, func(ctx context.Context, client *reprise.Client, list *fleet.List) error {
		id, err := c.worker(ctx, list, c.Queue, c.Worker)
		if err != nil {
			return err
		}
		if id == "" {
			_, paused, err := fleet.QueuePause(ctx, client, c.Queue)
			if err != nil {
				return err
			}
			if !paused {
				return fmt.Errorf("queue %s is not paused (see reprise workers)", brief.Quoted(c.Queue))
			}
		}
		if err := fleet.Control(ctx, client, protocol.Command{Do: protocol.DoResume, Queue: c.Queue, Worker: id}); err != nil {
			return noListener(err)
		}
		return c.report(ctx, streams, list, c.Queue, id, protocol.WorkerConsuming)
	})
}

// noListener replaces ErrUnroutable with an error that states that no worker responds.
func noListener(err error) error {
	if errors.Is(err, reprise.ErrUnroutable) {
		return errors.New("no worker responds")
	}
	return err
}

// worker returns the ID of the worker whose ID begins with prefix, or "" if prefix is "".
func (b brokerFlags) worker(ctx context.Context, list *fleet.List, queue, prefix string) (id string, err error) {
	if prefix == "" {
		return "", nil
	}
	var found []string
	var since time.Time
	err = b.until(ctx, func() bool {
		found = nil
		for _, w := range list.Workers() {
			if w.Queue == queue && strings.HasPrefix(w.ID, prefix) {
				found = append(found, w.ID)
			}
		}
		if len(found) > 0 && since.IsZero() {
			since = time.Now()
		}
		return len(found) == 1 && found[0] == prefix || !since.IsZero() && time.Since(since) > b.others()
	})
	switch {
	case err != nil:
		return "", err
	case len(found) == 0:
		return "", fmt.Errorf("queue %s has no worker %s (see `reprise workers`)", brief.Quoted(queue), prefix)
	case len(found) > 1:
		return "", exit.Usagef("--worker %s matches several workers of queue %s: %s", prefix, brief.Quoted(queue), strings.Join(found, ", "))
	}
	return found[0], nil
}

// pauseResult is the JSON output of a command that pauses or resumes workers.
type pauseResult struct {
	Queue   string `json:"queue"`
	Worker  string `json:"worker,omitempty"`
	State   string `json:"state"`
	Workers int    `json:"workers"` // number of workers that responded
	Follow  int    `json:"follow"`  // number of workers in State
}

// report waits until the workers of a queue, or a single worker, are in the given state, but at most for the response
// time of workers (--wait). It prints the number of workers in that state.
func (b brokerFlags) report(ctx context.Context, streams terminal.IO, list *fleet.List, queue, id, state string) error {
	result := pauseResult{Queue: queue, Worker: id, State: state}
	begun := time.Now()
	err := b.until(ctx, func() bool {
		result.Workers, result.Follow = 0, 0
		for _, w := range list.Workers() {
			if w.Queue != queue || id != "" && w.ID != id || w.Silent {
				continue
			}
			result.Workers++
			if w.State == state && w.Heard.After(begun) {
				result.Follow++
			}
		}
		return result.Workers > 0 && result.Follow == result.Workers && time.Since(begun) > b.others()
	})
	if err != nil {
		return err
	}
	verb := "resumed"
	if state == protocol.WorkerPaused {
		verb = "paused"
	}
	text := fmt.Sprintf("queue %s %s: %d of %s %s\n", terminal.OneLine(queue), verb, result.Follow, terminal.Plural(result.Workers, "worker"), state)
	switch {
	case id != "" && result.Follow == 0:
		return fmt.Errorf("worker %s has not confirmed within %s that it is %s (see `reprise workers`)", id, b.Wait, state)
	case id != "":
		text = fmt.Sprintf("worker %s of queue %s %s\n", id, terminal.OneLine(queue), verb)
	case result.Workers == 0 && state == protocol.WorkerPaused:
		text = fmt.Sprintf("pause of queue %s stored; no worker answered (workers without announcements continue)\n", terminal.OneLine(queue))
	case result.Workers == 0:
		text = fmt.Sprintf("queue %s resumed; no worker answered\n", terminal.OneLine(queue))
	}
	return streams.Result(b.JSON, result, text)
}

// unique returns a list without duplicates.
func unique(all []string) []string {
	var once []string
	for _, s := range all {
		if !slices.Contains(once, s) {
			once = append(once, s)
		}
	}
	return once
}
