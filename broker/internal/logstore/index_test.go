package logstore

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The index of a level behaves like a sorted map.
func TestLevelIndexIsSortedMap(t *testing.T) {
	defer func(limit, loose int) { chunkLimit, maxLoose = limit, loose }(chunkLimit, maxLoose)
	chunkLimit, maxLoose = 4, 2 // more chunks, and more of them are packed again
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
		some := func() uint64 { // mostly an existing message
			if orders := slices.Sorted(maps.Keys(want)); len(orders) > 0 && rapid.IntRange(0, 4).Draw(t, "kind") > 0 {
				return orders[rapid.IntRange(0, len(orders)-1).Draw(t, "index")]
			}
			return rapid.Uint64Range(1, next+1).Draw(t, "order")
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				for range rapid.IntRange(1, 30).Draw(t, "messages") {
					at := place{uint32(next / 100), uint32(next * 1000)}
					x.put(keyOf(1, 0, next), at, 1)
					want[next] = at
					next += rapid.SampledFrom([]uint64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 1 << 33}).Draw(t, "step")
				}
			},
			"change": func(t *rapid.T) { // finds, puts and removes
				for range rapid.IntRange(1, 50).Draw(t, "changes") {
					order := some()
					k := keyOf(1, 0, order)
					was, there := want[order]
					switch rapid.IntRange(0, 3).Draw(t, "change") {
					case 0:
						at := place{uint32(order), rapid.Uint32().Draw(t, "offset")}
						if old, replaced := x.put(k, at, 1); replaced != there || old != was {
							t.Fatalf("put %d: got %v, %t, want %v, %t", order, old, replaced, was, there)
						}
						want[order] = at
					case 1:
						if x.remove(k, 1) != there {
							t.Fatalf("remove %d: got %t", order, !there)
						}
						delete(want, order)
					default:
						if at, ok := x.find(k); ok != there || at != was {
							t.Fatalf("find %d: got %v, %t, want %v, %t", order, at, ok, was, there)
						}
					}
				}
			},
			"remove the first": func(t *rapid.T) {
				orders := slices.Sorted(maps.Keys(want))
				for _, order := range orders[:min(len(orders), rapid.IntRange(0, 20).Draw(t, "messages"))] {
					if !x.remove(keyOf(1, 0, order), 1) {
						t.Fatalf("message %d not found", order)
					}
					delete(want, order)
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
	for order := range 5 * uint64(chunkLimit) {
		x.put(keyOf(1, 0, order+1), place{1, uint32(order)}, 1)
	}
	second, third := keyOf(1, 0, uint64(chunkLimit+10)), keyOf(1, 0, uint64(2*chunkLimit+10))
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
