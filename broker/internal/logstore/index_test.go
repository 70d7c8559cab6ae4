package logstore

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The index of a level behaves like a sorted map.
func TestLevelIndexIsSortedMap(t *testing.T) {
	defer func(was int) { maxLoose = was }(maxLoose)
	maxLoose = 1
	rapid.Check(t, func(t *rapid.T) {
		x, want := index{queues: make(map[uint64][]*levelIndex)}, make(map[uint64]place)
		next := uint64(1)
		check := func() {
			orders := slices.Sorted(maps.Keys(want))
			l := x.level(1, 0)
			if l == nil {
				l = &levelIndex{}
			}
			if l.messages != len(orders) {
				t.Fatalf("messages: got %d, want %d", l.messages, len(orders))
			}
			for order, at := range l.from(0) {
				if len(orders) == 0 || order != orders[0] || at != want[order] {
					t.Fatalf("got %d at %v, want the orders %v", order, at, orders)
				}
				orders = orders[1:]
			}
			if len(orders) > 0 {
				t.Fatalf("orders are missing: %v", orders)
			}
		}
		some := func() uint64 { return rapid.Uint64Range(1, next+1).Draw(t, "order") }
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				for range rapid.IntRange(1, 600).Draw(t, "messages") {
					at := place{uint32(next / 100), uint32(next * 1000)}
					x.put(keyOf(1, 0, next), at, 1)
					want[next] = at
					next += rapid.SampledFrom([]uint64{1, 1, 1, 1, 2, 1 << 33}).Draw(t, "step")
				}
			},
			"put": func(t *rapid.T) {
				order, at := some(), place{rapid.Uint32().Draw(t, "segment"), rapid.Uint32().Draw(t, "offset")}
				old, replaced := x.put(keyOf(1, 0, order), at, 1)
				if was, ok := want[order]; replaced != ok || old != was {
					t.Fatalf("put %d: got %v, %t, want %v, %t", order, old, replaced, was, ok)
				}
				want[order] = at
			},
			"remove the first": func(t *rapid.T) {
				orders := slices.Sorted(maps.Keys(want))
				for _, order := range orders[:min(len(orders), rapid.IntRange(0, 700).Draw(t, "messages"))] {
					if !x.remove(keyOf(1, 0, order), 1) {
						t.Fatalf("message %d not found", order)
					}
					delete(want, order)
				}
			},
			"remove": func(t *rapid.T) {
				order := some()
				_, ok := want[order]
				if x.remove(keyOf(1, 0, order), 1) != ok {
					t.Fatalf("remove %d: got %t", order, !ok)
				}
				delete(want, order)
			},
			"find": func(t *rapid.T) {
				for range 20 {
					order := some()
					at, ok := x.find(keyOf(1, 0, order))
					if was, there := want[order]; ok != there || at != was {
						t.Fatalf("find %d: got %v, %t, want %v, %t", order, at, ok, was, there)
					}
				}
			},
			"": func(*rapid.T) { check() },
		})
	})
}

// A chunk that was changed and packed again does not have its earlier entries.
func TestFindAfterChunkIsPackedAgain(t *testing.T) {
	defer func(was int) { maxLoose = was }(maxLoose)
	maxLoose = 1
	x := index{queues: make(map[uint64][]*levelIndex)}
	for order := range uint64(5 * chunkLimit) {
		x.put(keyOf(1, 0, order+1), place{1, uint32(order)}, 1)
	}
	second, third := keyOf(1, 0, chunkLimit+10), keyOf(1, 0, 2*chunkLimit+10)
	if _, ok := x.find(second); !ok {
		t.Fatal("message not found")
	}
	x.remove(second, 1)
	x.remove(third, 1) // the second chunk is packed
	if l := x.level(1, 0); l.chunks[1].packed == nil {
		t.Fatal("chunk is not packed")
	}
	if at, ok := x.find(second); ok {
		t.Errorf("deleted message found at %v", at)
	}
}
