package vhost

import (
	"github.com/reprisemq/reprise/broker/internal/registry"
	"github.com/reprisemq/reprise/broker/internal/store"
)

// Survey counts the queues and messages in a store without loading them.
func Survey(s store.Store) (queues, messages int, err error) {
	r, err := registry.New(s)
	if err != nil {
		return 0, 0, err
	}
	defer r.Close()
	for d, err := range registry.All[queueDocument](r, queueKind, 2) {
		if err != nil {
			return 0, 0, err
		}
		levels, err := s.Levels(d.Value.ID)
		if err != nil {
			return 0, 0, err
		}
		queues++
		for _, l := range levels {
			messages += l.Messages
		}
	}
	return queues, messages, nil
}
