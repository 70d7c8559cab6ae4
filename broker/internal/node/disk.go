package node

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/broker/internal/alarm"
	"github.com/reprisemq/reprise/broker/internal/store"
)

// diskInterval is how often the node looks how much room there is on its disk. RabbitMQ looks as seldom as every 10 s while
// there is plenty; asking costs a microsecond.
const diskInterval = 100 * time.Millisecond

// slow is how long a commit may take before publishers have to wait for the disk: it hangs, or waits for room itself. What they
// publish meanwhile has to be remembered, even if it is gone again by then.
const slow = 2 * time.Second

// Disk is what the node knows of the file system that its data is on.
type Disk struct {
	store store.Store
	limit int64
	free  atomic.Int64

	low, failed, damaged alarm.Alarm

	unknown  bool // has been logged
	making   atomic.Bool
	roomMade time.Time // or tried to
}

// Dir returns the data directory.
func (d *Disk) Dir() string { return d.store.Dir() }

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
	case errors.Is(err, os.ErrNotExist):
		d.store.GiveUp(errors.New("the directory is gone"))
	case err != nil && !d.unknown:
		log.Warn("nobody can tell how much room there is on the disk: publishers are not blocked when there is little", "error", err)
	case changed && d.low.Raised() != nil && d.Free() >= d.limit:
		log.Warn("the disk does not answer: publishers are blocked until it does", "directory", d.Dir(), "since", d.store.Behind().Round(time.Second))
	case changed && d.low.Raised() != nil:
		log.Warn("low on disk: publishers are blocked until there is room", "directory", d.Dir(), "free", d.Free(), "limit", d.limit)
	case changed:
		log.Info("publishers go on: there is room on the disk, and it answers", "free", d.Free(), "limit", d.limit)
	}
	d.unknown = err != nil
}

// watchDisk keeps the alarm of a disk that gets full, until the node is shut down.
func (n *Node) watchDisk() {
	var making sync.WaitGroup
	defer making.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for n.Wait(diskInterval) {
		n.Disk.check(n.config.Log)
		if n.Disk.wantsRoom() {
			making.Go(func() { n.Disk.makeRoom(ctx) })
		}
	}
}

// roomInterval is how long there is between two attempts to make room.
const roomInterval = 10 * time.Second

// wantsRoom reports whether it is time for makeRoom.
func (d *Disk) wantsRoom() bool {
	if d.low.Raised() == nil || time.Since(d.roomMade) < roomInterval || !d.making.CompareAndSwap(false, true) {
		return false
	}
	d.roomMade = time.Now()
	return true
}

// makeRoom has the store give back what deleted messages had, while publishers are blocked for want of it: by itself it does
// so when others are put, and there are none.
func (d *Disk) makeRoom(ctx context.Context) {
	defer d.making.Store(false)
	_ = d.store.MakeRoom(ctx) // whatever is in its way is in the way of the next commit, too, which says so
}

// watchStore raises the alarms that are never over: the store has failed, or is damaged.
func (n *Node) watchStore() {
	damaged := n.Disk.store.Damaged()
	for {
		select {
		case <-damaged:
			damaged = nil
			n.Disk.damaged.Set(true)
		case <-n.Disk.store.Failed():
			n.Disk.failed.Set(true)
			return
		case <-n.closing:
			return
		}
	}
}
