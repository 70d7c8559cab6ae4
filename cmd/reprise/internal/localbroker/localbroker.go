// Package localbroker runs a broker in this process, for reprise broker and for reprise up. Other processes control the
// broker through a socket in its data directory.
package localbroker

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/disk"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/serve"
)

// Start sets the floor of the heap and starts a broker with a data directory, or without one if dir is "". It returns a
// usage error if the data directory is not a directory.
func Start(dir string, config broker.Config) (*broker.Broker, error) {
	setHeapFloor()
	if dir != "" {
		config.Store = disk.Dir(dir)
	}
	b, err := broker.New(config)
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, exit.Usage(err)
	}
	return b, err
}

// LogData logs the data directory, and the numbers of queues and messages in it.
func LogData(b *broker.Broker, dir string, log *slog.Logger) {
	queues, messages := contents(b)
	log.Info("data directory", "path", Absolute(dir), "queues", queues, "messages", messages)
}

// contents counts the queues and messages of a broker.
func contents(b *broker.Broker) (queues, messages int) {
	for _, q := range b.Queues() {
		queues++
		messages += q.Ready + q.Unacked
	}
	return queues, messages
}

// Absolute returns an absolute path, which is valid for other processes.
func Absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// shutdownTimeout is the time that clients have to close their connections.
const shutdownTimeout = 5 * time.Second

// Shutdown stops a broker gracefully. A second signal closes the connections immediately.
func Shutdown(b *broker.Broker, served <-chan error, stop *serve.Signals) error {
	interrupted, cancel := serve.Until(stop.Again)
	defer cancel()
	ctx, cancel := context.WithTimeout(interrupted, shutdownTimeout)
	defer cancel()
	err := b.Shutdown(ctx)
	if ctx.Err() != nil { // closing the connections of unresponsive clients is not a failure
		err = without(err, ctx.Err())
	}
	if served == nil {
		return err
	}
	if ended := <-served; !errors.Is(ended, broker.ErrClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// without returns the joined error without err.
func without(joined, err error) error {
	several, ok := joined.(interface{ Unwrap() []error })
	if !ok {
		if joined == err {
			return nil
		}
		return joined
	}
	return errors.Join(slices.DeleteFunc(slices.Clone(several.Unwrap()), func(e error) bool { return e == err })...)
}
