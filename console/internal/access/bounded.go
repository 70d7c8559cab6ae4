package access

import "container/list"

// bounded is a map with at most a number of entries. It forgets the one that was put longest
// ago.
type bounded[K comparable, V any] struct {
	most    int
	entries map[K]*list.Element
	order   list.List // of entry
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

func newBounded[K comparable, V any](most int) *bounded[K, V] {
	return &bounded[K, V]{most: most, entries: map[K]*list.Element{}}
}

func (b *bounded[K, V]) get(key K) (v V, ok bool) {
	if e := b.entries[key]; e != nil {
		return e.Value.(entry[K, V]).value, true
	}
	return v, false
}

func (b *bounded[K, V]) put(key K, v V) {
	b.drop(key)
	if len(b.entries) >= b.most {
		k, _, _ := b.oldest()
		b.drop(k)
	}
	b.entries[key] = b.order.PushBack(entry[K, V]{key, v})
}

func (b *bounded[K, V]) drop(key K) {
	if e := b.entries[key]; e != nil {
		b.order.Remove(e)
		delete(b.entries, key)
	}
}

// oldest returns the entry that was put longest ago.
func (b *bounded[K, V]) oldest() (key K, v V, ok bool) {
	if e := b.order.Front(); e != nil {
		x := e.Value.(entry[K, V])
		return x.key, x.value, true
	}
	return key, v, false
}
