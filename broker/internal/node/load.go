package node

import (
	"context"
	"encoding/json"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/alarm"
	"github.com/reprisemq/reprise/broker/internal/parameter"
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
	if n.vhosts, err = vhost.Load(n.vhostConfig()); err != nil {
		return err
	}
	n.Access.KeepTopics(func(vhost, exchange string) bool {
		host := n.vhosts[vhost]
		if host == nil {
			return false
		}
		_, exists := host.Exchange(exchange)
		return exists
	})
	exists := func(vhost string) bool { return n.vhosts[vhost] != nil }
	if n.Parameters, err = parameter.Load(n.registry, exists, n.config.Log); err != nil {
		return err
	}
	if err := n.upgradeClusterName(); err != nil {
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

// upgradeClusterName replaces the document in which earlier versions saved the name of the cluster.
func (n *Node) upgradeClusterName() error {
	name, err := n.registry.TakeClusterName()
	if err != nil || name == "" {
		return err
	}
	return n.SetClusterName(name)
}

// clusterName is the key of the global parameter that contains the name of the cluster.
var clusterName = parameter.Global("cluster_name")

// ClusterName returns the name set by SetClusterName, or "".
func (n *Node) ClusterName() (name string) {
	value, _ := n.Parameters.Get(clusterName)
	_ = json.Unmarshal(value, &name) // a client may have set a parameter that is not a name
	return name
}

// SetClusterName sets and saves the name of the cluster, which only describes it.
func (n *Node) SetClusterName(name string) error {
	value, err := json.Marshal(name)
	if err != nil {
		return err
	}
	return n.Parameters.Set(parameter.Parameter{Key: clusterName, Value: value})
}

// Begun reports whether an earlier broker has called Begin for this store. If so, this broker must not create the
// initial objects again, because an operator may have deleted them.
func (n *Node) Begun() bool { return n.begun }

// Begin records that the broker has created the initial objects.
func (n *Node) Begin() { n.registry.Begin() }

// Sync waits until all earlier changes to durable objects are on disk. If the store fails or ctx is done first, Sync
// returns an error.
func (n *Node) Sync(ctx context.Context) error { return n.registry.Sync(ctx) }
