package vhost

import (
	"github.com/reprisemq/reprise/internal/registry"
	"github.com/reprisemq/reprise/internal/store"
)

// Surveyed is a durable queue in a store.
type Surveyed struct {
	VHost, Name string
	Messages    int
}

// Survey returns the queues in a store, from which nothing has been loaded.
func Survey(s store.Store) (queues []Surveyed, err error) {
	r, err := registry.New(s)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for d, err := range r.All(queueKind, 2) {
		var kept queueDocument
		if err == nil {
			err = d.Decode(&kept)
		}
		if err != nil {
			return nil, err
		}
		levels, err := s.Levels(kept.ID)
		if err != nil {
			return nil, err
		}
		q := Surveyed{VHost: d.Names[0], Name: d.Names[1]}
		for _, l := range levels {
			q.Messages += l.Messages
		}
		queues = append(queues, q)
	}
	return queues, nil
}
