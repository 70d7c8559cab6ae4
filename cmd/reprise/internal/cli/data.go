package cli

import (
	"errors"
	"log/slog"
	"path/filepath"
	"syscall"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/disk"
)

// startBroker calls [broker.New]. It returns a usage error if the data directory is not a directory.
func startBroker(config broker.Config) (*broker.Broker, error) {
	b, err := broker.New(config)
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, usageError{err}
	}
	return b, err
}

// dataDir returns the store of a broker with the data directory dir, or nil if dir is "".
func dataDir(dir string) broker.Store {
	if dir == "" {
		return nil
	}
	return disk.Dir(dir)
}

// logData logs the data directory, and the numbers of queues and messages in it.
func logData(b *broker.Broker, dir string, log *slog.Logger) {
	queues, messages := contents(b)
	log.Info("data directory", "path", absolute(dir), "queues", queues, "messages", messages)
}

// contents counts the queues and messages of a broker.
func contents(b *broker.Broker) (queues, messages int) {
	for _, q := range b.Queues() {
		queues++
		messages += q.Ready + q.Unacked
	}
	return queues, messages
}

// absolute returns an absolute path, which is valid for other processes.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
