package brokercmd

import (
	"errors"
	"fmt"
	"io"

	"github.com/reprisemq/reprise/broker/disk"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/localbroker"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
)

type checkCmd struct {
	Data    string `required:"" placeholder:"DIR" help:"Data directory of a stopped broker."`
	Salvage bool   `help:"Rebuild the directory from the readable data. The old files stay in damaged-TIME."`
}

// Help implements kong.HelpProvider.
func (checkCmd) Help() string {
	return `Reads the whole data directory, changes nothing, and lists damaged files. The exit code is 1 if a file is
damaged.

With --salvage, the command creates a new data directory from the readable data and lists the missing messages of
each queue. The old files stay in DIR/damaged-TIME. Copy DIR first if you have no other copy.

Examples:
  reprise broker check --data /var/lib/reprise
  reprise broker check --data /var/lib/reprise --salvage
`
}

// Run checks a data directory.
func (c *checkCmd) Run(streams terminal.IO) error {
	found, err := disk.Check(c.Data)
	if err != nil {
		return err
	}
	for _, problem := range found.Damage {
		fmt.Fprintln(streams.Stdout, "damaged:", problem)
	}
	switch {
	case len(found.Damage) == 0:
		listQueues(streams.Stdout, found)
		fmt.Fprintln(streams.Stdout, "no damage found")
		return nil
	case !c.Salvage:
		return fmt.Errorf("cannot use data directory %s: %s damaged or missing (restore a backup, or use --salvage to keep the readable messages)",
			c.Data, terminal.Plural(len(found.Damage), "file"))
	}
	found, err = disk.Salvage(c.Data)
	if err != nil {
		return err
	}
	complete := listQueues(streams.Stdout, found)
	_, err = fmt.Fprintf(streams.Stdout, "the old files are in %s\nlater changes that only a damaged file had are lost, and not counted\n", localbroker.Absolute(found.Aside))
	if err == nil && !complete {
		err = exit.Stopped(errors.New("cannot salvage all messages (see the incomplete queues in the list)"))
	}
	return err
}

// listQueues prints the depth of each queue, and reports whether the list is complete.
func listQueues(w io.Writer, found disk.Checked) (complete bool) {
	complete = true
	for _, q := range found.Queues {
		name := fmt.Sprintf("queue %s in virtual host %s", q.Name, q.VHost)
		if q.Name == "" && q.VHost == "" {
			name = "a queue with an unreadable declaration, whose messages are lost"
		}
		missing := q.Expected - q.Found
		complete = complete && q.Expected >= 0 && missing <= 0 && q.Name != ""
		switch {
		case q.Expected < 0:
			fmt.Fprintf(w, "%s: %s; the number of lost messages is unknown\n", name, terminal.Plural(q.Found, "message"))
		case missing > 0:
			fmt.Fprintf(w, "%s: %s, %d missing\n", name, terminal.Plural(q.Found, "message"), missing)
		default:
			fmt.Fprintf(w, "%s: %s\n", name, terminal.Plural(q.Found, "message"))
		}
	}
	return complete
}
