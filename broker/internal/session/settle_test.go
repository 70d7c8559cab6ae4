package session

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/broker/internal/queue"
)

// The list of unacked messages may have holes. It must behave like a set of tags.
func TestUnackedBehavesLikeSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var u unackedDeliveries
		var tags []uint64 // model of the list
		last := uint64(0)
		tagsOf := func(ds []delivery) []uint64 {
			var found []uint64
			for _, d := range ds {
				found = append(found, d.tag)
			}
			return found
		}
		t.Repeat(map[string]func(*rapid.T){
			"deliver": func(t *rapid.T) {
				last += uint64(rapid.IntRange(1, 3).Draw(t, "step")) // deliveries with automatic acks also use tags
				u.add(delivery{tag: last, item: &queue.Item{}})
				tags = append(tags, last)
			},
			"settle": func(t *rapid.T) {
				tag := rapid.Uint64Range(0, last+1).Draw(t, "tag")
				multiple := rapid.Bool().Draw(t, "multiple")
				taken, ok := u.take(nil, tag, multiple)

				i, known := slices.BinarySearch(tags, tag)
				var want []uint64
				switch {
				case multiple && tag == 0:
					want, tags, known = tags, nil, true
				case !known:
				case multiple:
					want, tags = tags[:i+1], tags[i+1:]
				default:
					want, tags = []uint64{tag}, slices.Delete(slices.Clone(tags), i, i+1)
				}
				if ok != known || !slices.Equal(tagsOf(taken), want) {
					t.Fatalf("take(%d, %v): got %v, %v; want %v, %v", tag, multiple, tagsOf(taken), ok, want, known)
				}
			},
			"take all": func(t *rapid.T) {
				if taken := tagsOf(u.takeAll(nil)); !slices.Equal(taken, tags) {
					t.Fatalf("takeAll: got %v, want %v", taken, tags)
				}
				tags = nil
			},
			"": func(t *rapid.T) {
				if len(u.list)-u.from > 2*len(tags)+1 {
					t.Fatalf("length of the list of %d deliveries: got %d, want at most %d", len(tags), len(u.list)-u.from, 2*len(tags)+1)
				}
			},
		})
	})
}
