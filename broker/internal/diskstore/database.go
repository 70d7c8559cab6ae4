package diskstore

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
)

// Memory limits of Pebble. It uses at most two memtables at a time, and one block cache. If a message is deleted before
// its memtable is full, Pebble never writes the message to a table.
const (
	memTableSize = 8 << 20
	cacheSize    = 8 << 20
)

// MakeRoom implements [store.Store].
func (d *disk) MakeRoom(ctx context.Context) error {
	if err := d.Err(); err != nil {
		return err // otherwise Pebble would wait forever
	}
	return d.catchWriteError(func() error {
		flushed, err := d.db.AsyncFlush()
		if err != nil {
			return err
		}
		select {
		case <-flushed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return d.db.Compact(ctx, []byte{prefixMessage}, []byte{prefixMessage + 1}, false)
	})
}

func (d *disk) options() *pebble.Options {
	o := &pebble.Options{
		FS:                 d.fs,
		Logger:             pebbleLog{d},
		FormatMajorVersion: pebble.FormatValueSeparation,
		CacheSize:          cacheSize,
		MemTableSize:       uint64(cmp.Or(d.memTable, memTableSize)),
		// If damaged data is read, Pebble returns an error and calls DataCorruption. The undamaged data remains
		// readable.
		EventListener: &pebble.EventListener{
			DataCorruption:  func(c pebble.DataCorruptionInfo) { d.recordDamage(c.Path, c.Details) },
			BackgroundError: d.backgroundError,
		},
	}
	// Large values stay in the value file to which they were first written, because most messages are written, read and
	// deleted only once.
	o.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy {
		return pebble.ValueSeparationPolicy{
			Enabled: true, MinimumSize: 256, MaxBlobReferenceDepth: 10,
			RewriteMinimumAge: 5 * time.Minute, TargetGarbageRatio: 0.5,
		}
	}
	for i := range o.Levels {
		o.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.FastestCompression }
	}
	return o
}

// backgroundPause is the delay after an error in Pebble's background work. Without it, Pebble would retry immediately.
const backgroundPause = 100 * time.Millisecond

func (d *disk) backgroundError(err error) {
	if pebble.IsCorruptionError(err) || errors.Is(err, ErrDamaged) {
		d.damageOnce.Do(func() { close(d.damaged) })
	} else {
		d.log.Error("background work of the database failed", "directory", d.dir, "error", err)
	}
	time.Sleep(backgroundPause)
}

// recordDamage logs, once per file, that a file of the open store is damaged, and closes d.damaged.
func (d *disk) recordDamage(file string, err error) {
	if _, logged := d.corrupt.LoadOrStore(file, true); !logged {
		d.log.Error("data directory is damaged: "+advice, "directory", d.dir, "file", file, "error", err)
	}
	d.damageOnce.Do(func() { close(d.damaged) })
}

// Damaged implements [store.Store].
func (d *disk) Damaged() <-chan struct{} { return d.damaged }
