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

// diskInterval is the interval between two checks of the free disk space. RabbitMQ checks at least every 10 s, and more
// often if little space is free. A check takes about a microsecond.
const diskInterval = 100 * time.Millisecond

// slowCommit is the duration of a commit above which the broker blocks publishers. A longer commit means that the disk
// is full or does not respond. Until the commit ends, newly published messages stay in memory, even after they are
// acknowledged.
const slowCommit = 2 * time.Second

// Disk monitors the file system of the data directory.
type Disk struct {
	store store.Store
	limit int64
	free  atomic.Int64

	low, hung, failed, damaged alarm.Alarm

	unknown      bool // the broker has logged that the free space is unknown
	makingRoom   atomic.Bool
	lastMakeRoom time.Time // time of the last call to MakeRoom
}

// Dir returns the data directory.
func (d *Disk) Dir() string { return d.store.Dir() }

// Free returns the free disk space in bytes, or -1 if it is unknown.
func (d *Disk) Free() int64 { return d.free.Load() }

// Limit returns the free disk space in bytes below which the broker blocks publishers.
func (d *Disk) Limit() int64 { return d.limit }

// measure updates the free disk space and its alarm. It reports whether the alarm changed.
func (d *Disk) measure() (changed bool, err error) {
	free, err := d.store.Free()
	if err != nil {
		d.free.Store(-1)
		return d.low.Set(false), err
	}
	d.free.Store(int64(min(free, 1<<62)))
	return d.low.Set(d.Free() < d.limit), nil
}

// check updates the alarms and logs their changes. If the data directory is missing, check makes the store give up.
func (d *Disk) check(log *slog.Logger) {
	behind := d.store.Behind() // before measure, which can also wait for a disk that does not respond
	if d.hung.Set(behind > slowCommit) {
		if d.hung.Raised() != nil {
			log.Warn("disk is full or does not respond; publishers are blocked until it responds", "directory", d.Dir(), "since", behind.Round(time.Second))
		} else {
			log.Info("publishing resumed because the disk responds", "directory", d.Dir())
		}
	}
	changed, err := d.measure()
	switch {
	case errors.Is(err, os.ErrNotExist):
		d.store.GiveUp(errors.New("data directory not found"))
	case err != nil && !d.unknown:
		log.Warn("cannot determine the free disk space; publishers are not blocked if it is low", "error", err)
	case changed && d.low.Raised() != nil:
		log.Warn("low disk space; publishers are blocked until space is available", "directory", d.Dir(), "free", d.Free(), "limit", d.limit)
	case changed:
		log.Info("publishing resumed because the disk has space", "free", d.Free(), "limit", d.limit)
	}
	d.unknown = err != nil
}

// watchDisk checks the disk periodically until the node is shut down.
func (n *Node) watchDisk() {
	var making sync.WaitGroup
	defer making.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for n.Wait(diskInterval) {
		n.Disk.check(n.config.Log)
		if n.Disk.makeRoomDue() {
			making.Go(func() { n.Disk.makeRoom(ctx) })
		}
	}
}

// roomInterval is the minimum time between two calls to MakeRoom.
const roomInterval = 10 * time.Second

// makeRoomDue reports whether the caller must call makeRoom. If so, makeRoomDue records that the call has begun.
func (d *Disk) makeRoomDue() bool {
	if d.low.Raised() == nil && d.hung.Raised() == nil || time.Since(d.lastMakeRoom) < roomInterval || !d.makingRoom.CompareAndSwap(false, true) {
		return false
	}
	d.lastMakeRoom = time.Now()
	return true
}

// makeRoom frees the disk space of deleted messages. The store does so automatically only while it saves new messages,
// and it does not save any while publishers are blocked.
func (d *Disk) makeRoom(ctx context.Context) {
	defer d.makingRoom.Store(false)
	_ = d.store.MakeRoom(ctx) // ignored: if the store has failed, the next commit reports the error
}

// watchStore raises the alarms for a failed and for a damaged store. These alarms last until the node is shut down.
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
