package node

import (
	"context"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/alarm"
	"github.com/reprisemq/reprise/broker/internal/registry"
	"github.com/reprisemq/reprise/broker/internal/vhost"
)

// load takes everything from the store, and keeps an eye on its disk from now on.
func (n *Node) load() (err error) {
	if n.registry, err = registry.New(n.config.Store); err != nil {
		return err
	}
	if n.Access, err = access.Load(n.registry); err != nil {
		return err
	}
	if n.begun, err = n.registry.Begun(); err != nil {
		return err
	}
	if n.vhosts, err = vhost.Load(n.vhostConfig()); err != nil {
		return err
	}
	n.Disk = &Disk{
		store: n.config.Store, limit: n.config.DiskLimit, low: alarm.Alarm{Resource: alarm.Disk},
		failed: alarm.Alarm{Resource: alarm.Store}, damaged: alarm.Alarm{Resource: alarm.Damage},
	}
	n.Alarms = append(n.Alarms, &n.Disk.low, &n.Disk.failed, &n.Disk.damaged)
	n.Disk.check(n.config.Log)
	n.running.Go(n.watchDisk)
	n.running.Go(n.watchStore)
	return nil
}

// Begun reports whether the node has been there before, in its store: then it is not given again what a new one begins
// with, which somebody may have deleted since.
func (n *Node) Begun() bool { return n.begun }

// Begin notes that the node has all that a new one begins with.
func (n *Node) Begin() { n.registry.Begin() }

// Sync waits until every change so far is on disk, of what is to be there. An error says that it is not.
func (n *Node) Sync(ctx context.Context) error { return n.registry.Sync(ctx) }
