package diskstore

import (
	"cmp"
	"errors"
	"log/slog"
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
	o.Experimental.ValueSeparationPolicy = d.valueSeparation
	o.LBaseMaxBytes = 8 * int64(o.MemTableSize)
	o.TargetFileSizes[0] = int64(o.MemTableSize) / 4
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
		d.loggedBackground.Log(d.log, slog.LevelError, "background work of the database failed", "directory", d.dir, "error", err)
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
