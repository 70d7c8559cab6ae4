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

// The ways in which a data directory cannot be used.
var (
	// ErrInUse says that another broker has the directory open, in this process or another one.
	ErrInUse = store.ErrInUse
	// ErrFormat says that another version of Reprise wrote it, in a format that this one does not read.
	ErrFormat = store.ErrFormat
	// ErrDamaged says that files are missing, or that what is in them is not what was written.
	ErrDamaged = store.ErrDamaged
)

// Store keeps the state of a broker beyond its end. Package broker/disk implements it: disk.Dir("/var/lib/app").
//
// It is an argument, and not a part of this package, so that a broker in memory does not link a database.
type Store interface {
	// Open opens the store. The broker that opens it closes it.
	Open(*slog.Logger) (store.Store, error)
}

// disk is the open store of a broker. The zero disk is that of one in memory.
type disk struct {
	store store.Store // nil: there is none

	mu      sync.Mutex    // held for a moment only: whoever waits for the disk must not keep others from giving it up
	backups int           // that are being written
	closed  bool          // no backup begins any more
	idle    chan struct{} // closed when it is closed, and the last backup is over

	once sync.Once
	err  error // what closing it came to
}

// open opens the data directory, if there is to be one, and makes the node of what is in it.
func (b *Broker) open() (err error) {
	b.disk.idle = make(chan struct{})
	if b.config.Store != nil {
		if b.disk.store, err = b.config.Store.Open(b.config.Logger); err != nil {
			return fmt.Errorf("broker: %w", err)
		}
	}
	if b.node, err = b.config.node(b.disk.store); err != nil {
		// If the last broker crashed, this one has not dealt with that: the next one has to.
		_ = b.disk.close(context.Background(), false)
		return fmt.Errorf("broker: %w", err)
	}
	return nil
}

// close closes the store, once, when all backups are written. Clean says that everybody else has ended. When ctx has ended,
// it does not wait for a disk that does not answer, nor for backups.
func (d *disk) close(ctx context.Context, clean bool) error {
	if d.store == nil {
		return nil
	}
	defer node.Hurry(ctx, d.store, d.writing)()
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

// beginBackup reports whether a backup may be written.
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

// writing reports whether backups are being written.
func (d *disk) writing() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.backups > 0
}

// Backup writes a copy of the data directory, as it is at this moment, into a directory that it makes: one to begin from
// as a data directory, when what is there is lost. The broker goes on meanwhile. Once it has begun to write it does not
// look at ctx any more.
func (b *Broker) Backup(ctx context.Context, dir string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if b.disk.store == nil {
		return errors.New("broker: there is nothing to back up: everything is in memory")
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
