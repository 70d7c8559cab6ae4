package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/reprisemq/reprise/broker/disk"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
)

type brokerCheckCmd struct {
	Data    string `required:"" placeholder:"DIR" help:"The data directory of a broker that does not run."`
	Salvage bool   `help:"Keep what can be read, and move the damaged files aside."`
}

// Help shows examples below the flags.
func (brokerCheckCmd) Help() string {
	return `Reads everything in a data directory and changes nothing. Lists damaged files; the exit code is 1 if there are any.

With --salvage, makes a data directory of what can be read. The old files stay in a directory DIR/damaged-TIME. Lists the
queues with the messages that are missing. Take a copy of DIR first if it is the only one.

Examples:
  reprise broker check --data /var/lib/reprise
  reprise broker check --data /var/lib/reprise --salvage
`
}

// Run checks a data directory.
func (c *brokerCheckCmd) Run(streams IO) error {
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
		return errors.New("the data directory is damaged: restore a backup, or keep what can be read with --salvage")
	}
	found, err = disk.Salvage(c.Data)
	if err != nil {
		return err
	}
	complete := listQueues(streams.Stdout, found)
	_, err = fmt.Fprintf(streams.Stdout, "the old files are in %s\nlater changes that only a damaged file had are lost, and not counted\n", absolute(found.Aside))
	if err == nil && !complete {
		err = stoppedError{errors.New("not everything could be salvaged: the list says which queues lack messages")}
	}
	return err
}

// listQueues prints the depth of each queue, and reports whether the list is complete.
func listQueues(w io.Writer, found disk.Checked) (complete bool) {
	complete = true
	for _, q := range found.Queues {
		name := fmt.Sprintf("queue %s in virtual host %s", q.Name, q.VHost)
		if q.Name == "" && q.VHost == "" {
			name = "a queue whose declaration cannot be read, and whose messages are not kept"
		}
		missing := q.Expected - q.Found
		complete = complete && q.Expected >= 0 && missing <= 0 && q.Name != ""
		switch {
		case q.Expected < 0:
			fmt.Fprintf(w, "%s: %s; how many there were is not known\n", name, terminal.Plural(q.Found, "message"))
		case missing > 0:
			fmt.Fprintf(w, "%s: %s, %d missing\n", name, terminal.Plural(q.Found, "message"), missing)
		default:
			fmt.Fprintf(w, "%s: %s\n", name, terminal.Plural(q.Found, "message"))
		}
	}
	return complete
}
