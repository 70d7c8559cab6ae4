package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/reprisemq/reprise/broker/internal/node"
	"github.com/reprisemq/reprise/broker/internal/store"
)

// Errors that New returns if it cannot use the data directory.
var (
	// ErrInUse is returned if another broker, in the same process or in another process, has the directory open.
	ErrInUse = store.ErrInUse
	// ErrFormat is returned if another version of Reprise wrote the directory, in a format that this version cannot read.
	ErrFormat = store.ErrFormat
	// ErrDamaged is returned if files in the directory are missing, or differ from the data that the broker wrote.
	ErrDamaged = store.ErrDamaged
)

// Store saves the state of a broker, so that the state outlives the process. Package broker/disk provides the
// implementation disk.Dir.
//
// Store is an interface, so that programs that use only in-memory brokers do not link a database. Other modules cannot
// implement it, because its method returns an internal type.
type Store interface {
	// Open opens the store. The broker closes the store in Shutdown.
	Open(*slog.Logger) (store.Store, error)
}

// disk is the open store of a broker. It counts the backups in progress.
type disk struct {
	store store.Store // nil for an in-memory broker

	mu      sync.Mutex    // never held while waiting for the disk, so that GiveUp does not block
	backups int           // number of backups in progress
	closed  bool          // no further backups may start
	idle    chan struct{} // closed when closed is set and no backup is in progress

	once sync.Once
	err  error // result of closing the store
}

// open opens the data directory, if one is configured, and creates the node from its contents.
func (b *Broker) open() (err error) {
	b.disk.idle = make(chan struct{})
	if b.config.Store != nil {
		if b.disk.store, err = b.config.Store.Open(b.config.Logger); err != nil {
			return fmt.Errorf("broker: %w", err)
		}
	}
	if b.node, err = b.config.node(b.disk.store); err != nil {
		// Not clean: if the previous broker crashed, the recovery is incomplete, and the next broker must repeat it.
		_ = b.disk.close(context.Background(), false)
		return fmt.Errorf("broker: %w", err)
	}
	return nil
}

// close waits for all backups and closes the store, if it is not closed. If clean is set, all other users of the store
// have stopped. After ctx is done, close waits at most a few more seconds for backups and for a disk that does not
// respond.
func (d *disk) close(ctx context.Context, clean bool) error {
	if d.store == nil {
		return nil
	}
	defer node.LimitShutdown(ctx, d.store, d.writing)()
	d.once.Do(func() {
		d.stopBackups()
		select {
		case <-d.idle:
		case <-d.store.Failed():
		}
		if err := d.store.Close(clean); err != nil {
			d.err = fmt.Errorf("broker: %w", err)
		}
	})
	return d.err
}

// beginBackup registers a backup. It returns false if the store is closed or being closed.
func (d *disk) beginBackup() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.backups++
	return true
}

func (d *disk) endBackup() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.backups--; d.closed && d.backups == 0 {
		close(d.idle)
	}
}

func (d *disk) stopBackups() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed = true; d.backups == 0 {
		close(d.idle)
	}
}

// writing reports whether a backup is in progress.
func (d *disk) writing() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.backups > 0
}

// Backup creates the directory dir and writes a copy of the current data directory into it. The copy can replace a lost
// data directory. The broker continues to run during the backup. Backup does not check ctx after it has started to
// write.
func (b *Broker) Backup(ctx context.Context, dir string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if b.disk.store == nil {
		return errors.New("broker: cannot back up a broker without a Store")
	}
	if !b.disk.beginBackup() {
		return ErrClosed
	}
	defer b.disk.endBackup()
	if err := b.disk.store.Backup(dir); err != nil {
		return fmt.Errorf("broker: backup: %w", err)
	}
	return nil
}
