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
		queues++
		n, err := stored(s, d.Value.ID)
		if err != nil {
			return 0, 0, err
		}
		messages += n
	}
	for d, err := range registry.All[exchangeDocument](r, exchangeKind, 2) {
		if err != nil {
			return 0, 0, err
		}
		n, err := stored(s, d.Value.ID) // delayed messages
		if err != nil {
			return 0, 0, err
		}
		messages += n
	}
	return queues, messages, nil
}

// stored returns the number of messages in a queue of the store.
func stored(s store.Store, id uint64) (messages int, err error) {
	levels, err := s.Levels(id)
	for _, l := range levels {
		messages += l.Messages
	}
	return messages, err
}
