package vhost

import (
	"github.com/reprisemq/reprise/broker/internal/registry"
	"github.com/reprisemq/reprise/broker/internal/store"
)

// Survey tells how many queues and messages there are in a store, from which nothing has been loaded.
func Survey(s store.Store) (queues, messages int, err error) {
	r, err := registry.New(s)
	if err != nil {
		return 0, 0, err
	}
	defer r.Close()
	for d, err := range r.All(queueKind, 2) {
		var kept queueDocument
		if err == nil {
			err = d.Decode(&kept)
		}
		if err != nil {
			return 0, 0, err
		}
		levels, err := s.Levels(kept.ID)
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
