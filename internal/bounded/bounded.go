// Package bounded provides a map with a maximum size, for keys that clients control, such as their addresses.
package bounded

import "container/list"

// Map is a map with a maximum number of entries. In a full map, a Put of a new key evicts the least recently put entry.
type Map[K comparable, V any] struct {
	limit   int
	entries map[K]*list.Element
	order   list.List // of entry, least recently put first
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// New returns an empty map for at most the given number of entries.
func New[K comparable, V any](limit int) *Map[K, V] {
	return &Map[K, V]{limit: limit, entries: map[K]*list.Element{}}
}

// Len returns the number of entries.
func (m *Map[K, V]) Len() int { return len(m.entries) }

// Get returns the value of a key and reports whether the key exists.
func (m *Map[K, V]) Get(key K) (v V, ok bool) {
	if e := m.entries[key]; e != nil {
		return e.Value.(entry[K, V]).value, true
	}
	return v, false
}

// Put sets the value of a key. If the map is full and the key is new, Put evicts the oldest entry.
func (m *Map[K, V]) Put(key K, v V) {
	m.Drop(key)
	if len(m.entries) >= m.limit {
		oldest, _, _ := m.Oldest()
		m.Drop(oldest)
	}
	m.entries[key] = m.order.PushBack(entry[K, V]{key, v})
}

// Drop removes a key.
func (m *Map[K, V]) Drop(key K) {
	if e := m.entries[key]; e != nil {
		m.order.Remove(e)
		delete(m.entries, key)
	}
}

// Oldest returns the least recently put entry. ok is false if the map is empty.
func (m *Map[K, V]) Oldest() (key K, v V, ok bool) {
	if e := m.order.Front(); e != nil {
		x := e.Value.(entry[K, V])
		return x.key, x.value, true
	}
	return key, v, false
}
