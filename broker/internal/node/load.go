package node

import (
	"context"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/alarm"
	"github.com/reprisemq/reprise/broker/internal/registry"
	"github.com/reprisemq/reprise/broker/internal/vhost"
)

// load loads the state of the node from the store, and starts to monitor the store and the disk.
func (n *Node) load() (err error) {
	if n.registry, err = registry.New(n.config.Store); err != nil {
		return err
	}
	if n.Access, err = access.Load(n.registry, n.config.Log); err != nil {
		return err
	}
	if n.begun, err = n.registry.Begun(); err != nil {
		return err
	}
	if n.clusterName, err = n.registry.ClusterName(); err != nil {
		return err
	}
	if n.vhosts, err = vhost.Load(n.vhostConfig()); err != nil {
		return err
	}
	n.Disk = &Disk{
		store: n.config.Store, limit: n.config.DiskLimit, low: alarm.Alarm{Resource: alarm.Disk},
		hung: alarm.Alarm{Resource: alarm.Response}, failed: alarm.Alarm{Resource: alarm.Store}, damaged: alarm.Alarm{Resource: alarm.Damage},
	}
	n.Alarms = append(n.Alarms, &n.Disk.low, &n.Disk.hung, &n.Disk.failed, &n.Disk.damaged)
	n.Disk.check(n.config.Log)
	n.running.Go(n.watchDisk)
	n.running.Go(n.watchStore)
	return nil
}

// ClusterName returns the name set by SetClusterName, or "".
func (n *Node) ClusterName() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.clusterName
}

// SetClusterName sets and saves the name of the cluster, which only describes it.
func (n *Node) SetClusterName(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clusterName = name
	n.registry.SetClusterName(name)
}

// Begun reports whether an earlier broker has called Begin for this store. If so, this broker must not create the
// initial objects again, because an operator may have deleted them.
func (n *Node) Begun() bool { return n.begun }

// Begin records that the broker has created the initial objects.
func (n *Node) Begin() { n.registry.Begin() }

// Sync waits until all earlier changes to durable objects are on disk. If the store fails or ctx is done first, Sync
// returns an error.
func (n *Node) Sync(ctx context.Context) error { return n.registry.Sync(ctx) }
