package disk

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/reprisemq/reprise/broker/internal/diskstore"
	"github.com/reprisemq/reprise/broker/internal/vhost"
)

// Restored is what Restore found.
type Restored struct {
	Queues   int // durable ones
	Messages int // in them
}

// Restore makes a data directory of what [Broker.Backup] has written: one that is not there yet, or is empty. It reads
// all of it, and tells what is in it. An error leaves behind what has been copied so far.
//
// Which messages had been delivered when the backup was made is not known: those of queues that had been consumed from all
// come as redelivered.
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
