package diskstore

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// A power failure can keep only the first parts of a commit. Each part therefore contains whole atomic changes, and its
// counts match its messages.
func TestEachPartOfCommitIsConsistent(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		d, resume := openBlocked(t)
		d.mu.Lock()
		d.partBytes = 20
		d.mu.Unlock()
		next := uint64(1)
		refs := make(map[Key]Ref)
		put := func() {
			next++
			k := keyOf(2, 0, next)
			refs[k] = d.Put(entry(k, "message"))
		}
		for range 60 {
			if random.IntN(3) > 0 || len(refs) == 0 {
				d.Hold() // two messages that must arrive together
				put()
				put()
				d.Release()
				continue
			}
			for k, ref := range refs {
				d.Delete(k, ref, int64(len("message")))
				delete(refs, k)
				break
			}
		}
		d.mu.Lock()
		d.pending.cut()
		checkParts(t, fmt.Sprint("seed ", seed), &d.pending)
		d.mu.Unlock()
		resume()
		if err := d.Close(true); err != nil {
			t.Fatal(err)
		}
	}
}

// checkParts applies the parts of a change set one after the other, and checks queue 2 after each part. Orders 2n and 2n+1
// are put together.
func checkParts(t *testing.T, when string, g *changeSet) {
	t.Helper()
	messages, counted, from := make(map[uint64]bool), 0, 0
	partOf := make(map[uint64]int)
	for i, p := range g.parts {
		for _, c := range g.changes[from:p.changes] {
			switch order := c.entry.Key.Order; {
			case c.entry.Key.Queue != 2:
			case c.kind == put:
				messages[order], partOf[order] = true, i
				if first, found := partOf[order-1]; found && order%2 == 1 && first != i {
					t.Fatalf("%s: messages %d and %d are in different parts", when, order-1, order)
				}
			case c.kind == deletion:
				delete(messages, order)
			}
		}
		from = p.changes
		for _, n := range p.counts {
			if n.level.queue == 2 {
				counted = n.messages
			}
		}
		if len(messages) != counted {
			t.Fatalf("%s: after part %d of %d: %d messages, but the count is %d", when, i+1, len(g.parts), len(messages), counted)
		}
	}
}
