// Package registry is what a broker has on disk besides messages: virtual hosts and what was declared in them, users and
// what they may do. Each thing is a document of the store, in JSON, with a name that is made of its kind and the names it
// has for people:
//
//	vhost/%2F
//	queue/%2F/orders
//	binding/%2F/amq.topic/queue/orders/order.%23/
//
// Whoever changes something sets or deletes its document under the lock of the change, so that documents change in the
// order in which things did. Nobody waits for the disk under a lock: whoever has been told that something is done calls
// [Registry.Sync] first.
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

// Registry keeps documents. The nil Registry is that of a broker without a disk: it keeps nothing, and has nothing. Its
// methods may be called at the same time.
type Registry struct {
	ids ids

	mu    sync.RWMutex // held for reading while the store is used
	store store.Store  // nil: closed
}

// New returns the registry in a store.
func New(s store.Store) (*Registry, error) {
	r := &Registry{store: s}
	return r, r.loadIDs()
}

// Close ends the registry, before its store is closed. Things may still change afterwards: nobody is to keep them any more.
func (r *Registry) Close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store = nil
}

// Set keeps a thing, in place of the one that has the same kind and names.
func (r *Registry) Set(value any, kind string, names ...string) {
	r.change(func(s store.Store) {
		text, _ := json.Marshal(value) // cannot fail: values are structs of texts, numbers and bytes
		s.SetDocument(documentName(kind, names), text)
	})
}

// Delete forgets a thing.
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

// Sync waits until every change so far is on disk. An error says that it is not, and that nothing will be.
func (r *Registry) Sync(ctx context.Context) error {
	if r == nil {
		return nil
	}
	r.mu.RLock()
	s := r.store
	r.mu.RUnlock()
	if s == nil {
		return nil // closing it has kept everything there was
	}
	return s.Flush(ctx)
}

// Document is a thing in the registry.
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

// Damaged returns an error that says that the document makes no sense.
func (d *Document[T]) Damaged(err error) error {
	return fmt.Errorf("%s %q in the data directory: %w (%w)", d.kind, d.Names, store.ErrDamaged, err)
}

// All yields the things of a kind that have so many names.
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

// Of returns the things of a kind that can be read among documents.
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

// Make returns the document of a thing.
func Make(value any, kind string, names ...string) store.Document {
	text, _ := json.Marshal(value) // cannot fail, see Set
	return store.Document{Name: documentName(kind, names), Value: text}
}

// begun is the document that says that what a broker begins with has been there.
const begun = "begun"

// Begun reports whether somebody has called Begin, ever.
func (r *Registry) Begun() (bool, error) {
	for _, err := range All[struct{}](r, begun, 0) {
		return err == nil, err
	}
	return false, nil
}

// Begin notes that a broker has been given what it begins with: it is not given it again, should somebody delete it.
func (r *Registry) Begin() { r.Set(struct{}{}, begun) }
