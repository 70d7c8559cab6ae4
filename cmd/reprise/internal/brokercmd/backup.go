package brokercmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/disk"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/localbroker"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
)

type backupCmd struct {
	Data string `required:"" placeholder:"DIR" help:"Data directory of the broker."`
	To   string `required:"" placeholder:"DIR" help:"Directory to create for the backup."`
}

// Help implements kong.HelpProvider.
func (backupCmd) Help() string {
	return `A running broker writes a consistent backup itself, and continues to serve clients. Without a running
broker, the command copies the files.

Example:
  reprise broker backup --data /var/lib/reprise --to /backup/monday
`
}

// Run writes a backup.
func (c *backupCmd) Run(ctx context.Context, streams terminal.IO) error {
	if within(c.To, c.Data) {
		return exit.Usagef("--to must be outside the data directory: got %s", c.To)
	}
	err := localbroker.AskBackup(ctx, c.Data, c.To)
	switch {
	case err == nil:
		err = c.visible()
	case errors.Is(err, localbroker.ErrNoBroker):
		err = disk.Copy(c.Data, c.To)
		if errors.Is(err, broker.ErrInUse) {
			err = c.unanswered()
		}
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(streams.Stdout, localbroker.Absolute(c.To))
	return err
}

// visible returns an error if this process cannot see the backup, for example because the broker has different mounts.
func (c *backupCmd) visible() error {
	if _, err := os.Stat(c.To); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("backup not found in %s: the broker has written the backup to a different file system, such as the private /tmp of a systemd service "+
			"(choose a directory next to the data directory)", localbroker.Absolute(c.To))
	}
	return nil
}

// unanswered explains why no broker responds for a data directory that is in use.
func (c *backupCmd) unanswered() error {
	if path, possible := localbroker.ControlPath(localbroker.Absolute(c.Data)); !possible {
		return fmt.Errorf("cannot request a backup of %s: the path of the broker's socket is too long "+
			"(%s); stop the broker first, or run it in a directory with a shorter path", c.Data, path)
	}
	return fmt.Errorf("cannot back up %s: another process uses it and has no control socket (stop that process, or have it call Broker.Backup)", c.Data)
}

// within reports whether a path is inside a directory. It follows links.
func within(path, dir string) bool {
	outer, err := os.Stat(dir)
	if err != nil {
		return false
	}
	for path = localbroker.Absolute(path); ; path = filepath.Dir(path) {
		if inner, err := os.Stat(path); err == nil && os.SameFile(inner, outer) {
			return true
		}
		if path == filepath.Dir(path) {
			return false
		}
	}
}

type restoreCmd struct {
	From string `required:"" placeholder:"DIR" help:"Directory of the backup."`
	Data string `required:"" placeholder:"DIR" help:"Data directory to create. An existing directory must be empty."`
}

// Help implements kong.HelpProvider.
func (restoreCmd) Help() string {
	return `Copies the backup, verifies that it is readable, and prints the number of queues and messages. The backup does
not change.

Example:
  reprise broker restore --from /backup/monday --data /var/lib/reprise
`
}

// Run restores a backup.
func (c *restoreCmd) Run(streams terminal.IO) error {
	found, err := disk.Restore(c.From, c.Data)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(streams.Stdout, "%s: %s, %s\n", localbroker.Absolute(c.Data),
		terminal.Plural(found.Queues, "durable queue"), terminal.Plural(found.Messages, "message"))
	return err
}
