// Package disk stores the state of a broker in a directory:
//
//	b, err := broker.New(broker.Config{Store: disk.Dir("/var/lib/app")})
//
// It also contains functions for data directories that no broker uses: Check, Copy, Count, Restore and Salvage.
//
// Package broker does not import this package, so that programs that use only in-memory brokers do not link the
// database (Pebble).
package disk

import (
	"errors"
	"log/slog"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/internal/diskstore"
	"github.com/reprisemq/reprise/broker/internal/store"
)

// Dir is a data directory for [broker.Config.Store]. The broker creates it if it does not exist, and locks it. While one
// broker uses the directory, another broker gets [broker.ErrInUse].
type Dir string

var _ broker.Store = Dir("")

// Open implements [broker.Store].
func (d Dir) Open(log *slog.Logger) (store.Store, error) {
	if d == "" {
		return nil, errors.New("disk.Dir must name a directory: got an empty path (leave Config.Store nil for an in-memory broker)")
	}
	return diskstore.Open(diskstore.Options{Dir: string(d), Log: log})
}
