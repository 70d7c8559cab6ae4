package failedcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
)

type exportCmd struct {
	selection      `group:"Selection:"`
	State          string `enum:"failed,replaying,replayed,discarded,all" default:"all" placeholder:"STATE" help:"State: failed, replaying, replayed, discarded or all. Default ${default}."`
	Output         string `short:"o" placeholder:"FILE" help:"File to create. Default: stdout."`
	remote.Console `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (exportCmd) Help() string {
	return `Writes complete messages, with the exact types of their headers, one per line and oldest first. reprise failed
import reads this format. A user without access to redacted values gets a file that cannot be imported.

Examples:
  reprise failed export -o failed.jsonl
  reprise failed export --group 3 --state failed | jq -r .error
`
}

// Run exports messages.
func (c *exportCmd) Run(ctx context.Context, streams terminal.IO) error {
	f, err := c.filter(c.State)
	if err != nil {
		return err
	}
	return c.Ask(streams, func(client *api.Client) error { return c.export(ctx, streams, client, f) })
}

func (c *exportCmd) export(ctx context.Context, streams terminal.IO, client *api.Client, f failed.Filter) (err error) {
	total, err := client.Count(ctx, f)
	if err != nil {
		return err
	}
	out, toFile := streams.Stdout, c.Output != "" && c.Output != "-"
	if toFile {
		file, err := os.OpenFile(c.Output, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // messages may contain secrets
		if errors.Is(err, os.ErrExist) {
			return exit.Usagef("-o %s: file already exists (remove it, or use another name)", c.Output)
		}
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = file
	}
	lines := &lineCounter{w: out, bar: terminal.NewProgress(streams, "exporting"), total: total.N}
	_, err = client.Export(ctx, f, lines)
	lines.bar.End()
	if err == nil && toFile {
		_, err = fmt.Fprintf(streams.Stdout, "%s exported\n", terminal.Plural(int(lines.n), "message"))
	}
	return err
}

type importCmd struct {
	File           string `arg:"" name:"file" help:"File with exported messages, - for stdin."`
	JSON           bool   `name:"json" help:"Print JSON."`
	remote.Console `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (importCmd) Help() string {
	return `Messages that are already in the archive do not change, so you can repeat an interrupted import. The command
requires the role admin.

Examples:
  reprise failed import failed.jsonl
  reprise failed export --server http://old:15600 | reprise failed import -
`
}

// Run imports messages.
func (c *importCmd) Run(ctx context.Context, streams terminal.IO) error {
	in, total := streams.Stdin, int64(0)
	if c.File != "-" {
		file, err := os.Open(c.File)
		if err != nil {
			return exit.Usage(err)
		}
		defer file.Close()
		if info, err := file.Stat(); err == nil {
			total = info.Size()
		}
		in = file
	}
	return c.Ask(streams, func(client *api.Client) error {
		bytes := &byteCounter{r: in, bar: terminal.NewProgress(streams, "importing"), total: total}
		done, err := client.Import(ctx, bytes)
		bytes.bar.End()
		if err != nil {
			return err
		}
		return streams.Result(c.JSON, done, terminal.Plural(int(done.Messages), "new message")+" imported\n")
	})
}

// lineCounter counts the written lines.
type lineCounter struct {
	w        io.Writer
	bar      *terminal.Progress
	n, total int64
}

// Write implements [io.Writer].
func (c *lineCounter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(bytes.Count(b[:n], []byte("\n")))
	c.bar.Show(c.n, max(c.total, c.n))
	return n, err
}

// byteCounter counts the read bytes.
type byteCounter struct {
	r        io.Reader
	bar      *terminal.Progress
	n, total int64
}

// Read implements [io.Reader].
func (c *byteCounter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	c.bar.Show(c.n, c.total)
	return n, err
}
