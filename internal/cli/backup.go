package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/store"
)

type backupCmd struct {
	Data string `required:"" placeholder:"DIR" help:"The data directory of the broker."`
	To   string `required:"" placeholder:"DIR" help:"Where to write the backup: a directory that is not there yet."`
}

// Help shows examples below the flags.
func (backupCmd) Help() string {
	return `A broker that runs on the directory goes on meanwhile, and writes the backup itself, as it is at
that moment. If none runs, the files are copied.

Example:
  reprise broker backup --data /var/lib/reprise --to /backup/monday
`
}

// Run writes a backup.
func (c *backupCmd) Run(ctx context.Context, streams IO) error {
	err := askBackup(ctx, c.Data, c.To)
	if errors.Is(err, errNobody) {
		err = store.Copy(c.Data, c.To)
		if errors.Is(err, broker.ErrInUse) {
			err = fmt.Errorf("%s is in use by a process that is neither `reprise broker` nor `reprise up`: "+
				"it has to write the backup itself (Broker.Backup), or to end first", c.Data)
		}
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(streams.Stdout, absolute(c.To))
	return err
}

type restoreCmd struct {
	From string `required:"" placeholder:"DIR" help:"The backup."`
	Data string `required:"" placeholder:"DIR" help:"The data directory to make: one that is not there yet, or is empty."`
}

// Help shows examples below the flags.
func (restoreCmd) Help() string {
	return `Copies a backup, looks whether it can be read, and says what is in it. The backup stays as it is.

Example:
  reprise broker restore --from /backup/monday --data /var/lib/reprise
`
}

// Run restores a backup.
func (c *restoreCmd) Run(streams IO) error {
	found, err := broker.Restore(c.From, c.Data)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(streams.Stdout, "%s: %s, %s\n", absolute(c.Data),
		plural(found.Queues, "durable queue"), plural(found.Messages, "message"))
	return err
}
