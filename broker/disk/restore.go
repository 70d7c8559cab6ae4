package disk

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/reprisemq/reprise/broker/internal/diskstore"
	"github.com/reprisemq/reprise/broker/internal/vhost"
)

// Restored is the result of [Restore].
type Restored struct {
	Queues   int // number of durable queues
	Messages int // number of messages in these queues
}

// Restore creates the data directory dir from the output of [broker.Broker.Backup]. The directory dir must be empty
// or must not exist. Restore reads the complete backup and returns a summary. If Restore fails, dir contains the data
// that was copied before the error.
//
// A backup does not record which messages had been delivered. The restored broker therefore marks all messages of a
// queue as redelivered if any client had consumed from the queue.
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
