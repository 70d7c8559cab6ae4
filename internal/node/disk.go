package node

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/internal/alarm"
	"github.com/reprisemq/reprise/internal/store"
)

// diskInterval is how often the node looks how much room there is on its disk. RabbitMQ looks as seldom as every 10 s while
// there is plenty; asking costs a microsecond.
const diskInterval = time.Second

// slow is how long a commit may take before publishers have to wait for the disk: it hangs, or waits for room itself. What they
// publish meanwhile has to be remembered, even if it is gone again by then.
const slow = 2 * time.Second

// Disk is what the node knows of the file system that its data is on.
type Disk struct {
	store store.Store
	dir   string
	limit int64
	free  atomic.Int64

	low, failed alarm.Switch
	unknown     bool // has been logged
}

// Dir returns the data directory.
func (d *Disk) Dir() string { return d.dir }

// Free returns how many bytes may still be written; negative: nobody can tell.
func (d *Disk) Free() int64 { return d.free.Load() }

// Limit returns how many there must be for publishers not to be blocked.
func (d *Disk) Limit() int64 { return d.limit }

// measure looks how much room there is.
func (d *Disk) measure() (changed bool, err error) {
	free, err := d.store.Free()
	if err != nil {
		d.free.Store(-1)
		return d.low.Set(false), err
	}
	d.free.Store(int64(min(free, 1<<62)))
	return d.low.Set(d.Free() < d.limit || d.store.Behind() > slow), nil
}

// check raises the alarm when there is too little room, and clears it.
func (d *Disk) check(log *slog.Logger) {
	changed, err := d.measure()
	switch {
	case err != nil && !d.unknown:
		log.Warn("nobody can tell how much room there is on the disk: publishers are not blocked when there is little", "error", err)
	case changed && d.low.Alarm() != nil:
		log.Warn("low on disk, or the disk hangs: publishers are blocked", "free", d.Free(), "limit", d.limit, "busy", d.store.Behind())
	case changed:
		log.Info("there is room on the disk again", "free", d.Free(), "limit", d.limit)
	}
	d.unknown = err != nil
}

// watchDisk keeps the alarm of a disk that gets full, until the node is shut down.
func (n *Node) watchDisk() {
	for n.Wait(diskInterval) {
		n.Disk.check(n.config.Log)
	}
}

// watchStore raises the alarm that is never over when the store fails.
func (n *Node) watchStore() {
	select {
	case <-n.Disk.store.Failed():
		n.Disk.failed.Set(true)
	case <-n.closing:
	}
}
