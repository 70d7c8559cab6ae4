package broker

import (
	"context"
	"fmt"
	"sync"

	"github.com/reprisemq/reprise/internal/store"
)

// The ways in which a data directory cannot be used.
var (
	// ErrInUse says that another broker has the directory open, in this process or another one.
	ErrInUse = store.ErrInUse
	// ErrFormat says that another version of Reprise wrote it, in a format that this one does not read.
	ErrFormat = store.ErrFormat
	// ErrDamaged says that files are missing, or that what is in them is not what was written.
	ErrDamaged = store.ErrDamaged
)

// disk is the store of a broker. The zero disk is that of one in memory.
type disk struct {
	mu     sync.RWMutex // held for reading while a backup is written
	store  store.Store  // nil: there is none, or it is closed
	closed error        // what closing it came to
}

// open opens the data directory, if there is to be one, and makes the node of what is in it.
func (b *Broker) open() (err error) {
	if b.config.DataDir != "" {
		b.disk.store, err = store.Open(store.Options{Dir: b.config.DataDir, Log: b.config.Logger})
		if err != nil {
			return fmt.Errorf("broker: %w", err)
		}
	}
	if b.node, err = b.config.node(b.disk.store); err != nil {
		_ = b.disk.close()
		return fmt.Errorf("broker: %w", err)
	}
	return nil
}

// close closes the store, once. Everybody else must have ended.
func (d *disk) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.store == nil {
		return d.closed
	}
	if err := d.store.Close(); err != nil {
		d.closed = fmt.Errorf("broker: %w", err)
	}
	d.store = nil
	return d.closed
}

// Backup writes a copy of the data directory, as it is at this moment, into a directory that it makes: one to begin from
// as a [Config.DataDir], when what is there is lost. The broker goes on meanwhile. Once it has begun to write it does not
// look at ctx any more.
func (b *Broker) Backup(ctx context.Context, dir string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.disk.mu.RLock()
	defer b.disk.mu.RUnlock()
	switch {
	case b.disk.store != nil:
	case b.config.DataDir == "":
		return fmt.Errorf("broker: there is nothing to back up: everything is in memory")
	default:
		return ErrClosed
	}
	if err := b.disk.store.Backup(dir); err != nil {
		return fmt.Errorf("broker: backup: %w", err)
	}
	return nil
}
