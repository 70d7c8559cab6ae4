package broker

import "github.com/reprisemq/reprise/broker/internal/node"

// Node gives tests what the management API has.
func (b *Broker) Node() *node.Node { return b.node }
