package vhost

import (
	"github.com/reprisemq/reprise/broker/internal/registry"
	"github.com/reprisemq/reprise/broker/internal/store"
)

// Complete adds missing virtual hosts to salvaged documents, because Load removes queues without a virtual host.
func Complete(documents []store.Document) []store.Document {
	there := make(map[string]bool)
	for _, d := range registry.Of[hostDocument](documents, hostKind, 1) {
		there[d.Names[0]] = true
	}
	for _, d := range registry.Of[queueDocument](documents, queueKind, 2) {
		if host := d.Names[0]; !there[host] {
			there[host] = true
			documents = append(documents, registry.Make(hostDocument{}, hostKind, host))
		}
	}
	return documents
}

// QueueNames returns the virtual host and the name of each queue in the documents, by the ID of the queue in the store. It
// includes the exchanges whose delayed messages are in the store.
func QueueNames(documents []store.Document) map[uint64][2]string {
	names := make(map[uint64][2]string)
	for _, d := range registry.Of[queueDocument](documents, queueKind, 2) {
		names[d.Value.ID] = [2]string{d.Names[0], d.Names[1]}
	}
	for _, d := range registry.Of[exchangeDocument](documents, exchangeKind, 2) {
		if id := d.Value.ID; id != 0 {
			names[id] = [2]string{d.Names[0], d.Names[1]}
		}
	}
	return names
}
