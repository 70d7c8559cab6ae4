// Package registry saves the durable objects of a broker on disk: virtual hosts, exchanges, queues, bindings, users,
// permissions and parameters. Each object is a JSON document in the store. The name of the document consists of the kind and the
// names of the object:
//
//	vhost/%2F
//	queue/%2F/orders
//	binding/%2F/amq.topic/queue/orders/order.%23/
//
// Callers must set or delete a document under the lock that guards the object, so that the documents change in the
// same order as the objects. Callers must not wait for the disk under a lock. They must call [Registry.Sync] after
// unlocking and before they report success to a client.
package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"sync"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// Registry saves documents. A nil Registry, as in an in-memory broker, is empty and ignores changes. A Registry is safe for
// concurrent use.
type Registry struct {
	ids ids

	mu    sync.RWMutex // read-locked while a method uses the store
	store store.Store  // nil after Close
}

// New returns the registry of a store.
func New(s store.Store) (*Registry, error) {
	r := &Registry{store: s}
	return r, r.loadIDs()
}

// Close detaches the registry from its store, after which the registry ignores changes. Call Close before you close the
// store.
func (r *Registry) Close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store = nil
}

// Set saves an object, and replaces an existing object with the same kind and names.
func (r *Registry) Set(value any, kind string, names ...string) {
	r.change(func(s store.Store) {
		text, _ := json.Marshal(value) // cannot fail, because values are structs of strings, numbers and bytes
		s.SetDocument(documentName(kind, names), text)
	})
}

// Delete removes an object.
func (r *Registry) Delete(kind string, names ...string) {
	r.change(func(s store.Store) { s.DeleteDocument(documentName(kind, names)) })
}

func (r *Registry) change(do func(store.Store)) {
	if r == nil {
		return
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.store == nil {
		return
	}
	do(r.store)
}

// Sync waits until all earlier changes are on disk. It returns an error if the store has failed or ctx is done first.
func (r *Registry) Sync(ctx context.Context) error {
	if r == nil {
		return nil
	}
	r.mu.RLock()
	s := r.store
	r.mu.RUnlock()
	if s == nil {
		return nil // Close was called; closing the store saves all earlier changes
	}
	return s.Flush(ctx)
}

// Document is an object in the registry.
type Document[T any] struct {
	Names []string
	Value T
	kind  string
}

func parse[T any](found store.Document, kind string, names int) (d *Document[T], err error) {
	d = &Document[T]{kind: kind}
	if d.Names, err = parseName(found.Name, names); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(found.Value, &d.Value); err != nil {
		return nil, d.Damaged(err)
	}
	return d, nil
}

// Damaged returns an error for an invalid document. The error wraps [store.ErrDamaged] and err.
func (d *Document[T]) Damaged(err error) error {
	return fmt.Errorf("%s %q in the data directory: %w (%w)", d.kind, d.Names, store.ErrDamaged, err)
}

// All yields the objects of a kind. The argument names is the number of names of each object. All stops after the
// first error.
func All[T any](r *Registry, kind string, names int) iter.Seq2[*Document[T], error] {
	return func(yield func(*Document[T], error) bool) {
		if r == nil {
			return
		}
		for found, err := range r.store.Documents(kind + "/") {
			var d *Document[T]
			if err == nil {
				d, err = parse[T](found, kind, names)
			}
			if !yield(d, err) || err != nil {
				return
			}
		}
	}
}

// Of returns the objects of a kind that are among the given documents. It skips invalid documents.
func Of[T any](documents []store.Document, kind string, names int) (all []*Document[T]) {
	for _, found := range documents {
		if !strings.HasPrefix(found.Name, kind+"/") {
			continue
		}
		if d, err := parse[T](found, kind, names); err == nil {
			all = append(all, d)
		}
	}
	return all
}

// Make returns the document of an object.
func Make(value any, kind string, names ...string) store.Document {
	text, _ := json.Marshal(value) // cannot fail, see Set
	return store.Document{Name: documentName(kind, names), Value: text}
}

// clusterKind is the kind of the document with the name of the cluster.
const clusterKind = "cluster"

type clusterDocument struct {
	Name string `json:"name"`
}

// TakeClusterName returns the name of the cluster that an earlier version saved, or "", and removes the document.
func (r *Registry) TakeClusterName() (string, error) {
	for d, err := range All[clusterDocument](r, clusterKind, 0) {
		if err != nil {
			return "", err
		}
		r.Delete(clusterKind)
		return d.Value.Name, nil
	}
	return "", nil
}

// begun is the name of the document that records that the broker has created its initial objects.
const begun = "begun"

// Begun reports whether Begin was ever called for this store.
func (r *Registry) Begun() (bool, error) {
	for _, err := range All[struct{}](r, begun, 0) {
		return err == nil, err
	}
	return false, nil
}

// Begin records that the broker has created its initial objects. After that, the broker does not create them again,
// even if an operator deletes them.
func (r *Registry) Begin() { r.Set(struct{}{}, begun) }
