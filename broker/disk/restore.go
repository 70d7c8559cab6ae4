package disk

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/reprisemq/reprise/broker/internal/diskstore"
	"github.com/reprisemq/reprise/broker/internal/vhost"
)

// Restored is the result of Restore.
type Restored struct {
	Queues   int // number of durable queues
	Messages int // number of messages in these queues
}

// Restore creates a data directory from the output of [Broker.Backup]. The directory must be empty or must not exist.
// Restore reads the complete backup and returns a summary. If Restore fails, the directory contains the data that was copied
// before the error.
//
// A backup does not record which messages had been delivered. If clients had consumed from a queue, all its messages are
// therefore marked as redelivered after the restore.
func Restore(backup, dir string) (found Restored, err error) {
	if err := diskstore.Copy(backup, dir); err != nil {
		return found, fmt.Errorf("broker: restore: %w", err)
	}
	s, err := diskstore.Open(diskstore.Options{Dir: dir, Log: slog.New(slog.DiscardHandler), Everything: true})
	if err != nil {
		return found, fmt.Errorf("broker: restore: %w", err)
	}
	found.Queues, found.Messages, err = vhost.Survey(s)
	if err = errors.Join(err, s.Close(false)); err != nil {
		return found, fmt.Errorf("broker: restore: %w", err)
	}
	return found, nil
}
