package broker

import (
	"github.com/reprisemq/reprise/internal/inside"
	"github.com/reprisemq/reprise/internal/node"
)

func init() {
	inside.Node = func(b any) *node.Node { return b.(*Broker).node }
}
