package logstore

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// A power failure can keep only the first parts of a commit. After each part, no message may be missing because it moved, the
// messages of one Hold must be complete.
func TestEachPartOfCommitIsConsistent(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		d, resume := openBlocked(t)
		d.mu.Lock()
		d.partBytes = 20
		d.mu.Unlock()
		refs, bodies := make(map[Key]Ref), make(map[Key]string)
		removed, partner := make(map[string]bool), make(map[string]string)
		order, names := uint64(1), 0
		next := func() Key { order++; return keyOf(2, 0, order) }
		put := func() string {
			names++
			k, body := next(), fmt.Sprintf("%06d", names)
			refs[k], bodies[k] = d.Put(entry(k, body)), body
			return body
		}
		for range 60 {
			kind := random.IntN(4)
			if kind == 0 {
				d.Hold()
				a, b := put(), put()
				d.Release()
				partner[a], partner[b] = b, a
				continue
			}
			if kind == 1 || len(refs) == 0 {
				put()
				continue
			}
			for k, ref := range refs {
				body := bodies[k]
				delete(refs, k)
				delete(bodies, k)
				if kind == 2 {
					to := next()
					refs[to], bodies[to] = d.Move(k, ref, entry(to, body)), body
				} else {
					removed[body] = true
					d.Delete(k, ref, int64(len(body)))
				}
				break
			}
		}
		d.mu.Lock()
		d.pending.cut()
		if err := checkParts(&d.pending, removed, partner); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		d.mu.Unlock()
		resume()
		if err := d.Close(true); err != nil {
			t.Fatal(err)
		}
	}
}

// checkParts applies the parts of a change set one after the other, and checks queue 2 after each part.
func checkParts(g *changeSet, removed map[string]bool, partner map[string]string) error {
	messages, from := make(map[Key]string), 0
	seen := make(map[string]bool)
	for i, p := range g.parts {
		for _, c := range g.changes[from:p.changes] {
			switch {
			case c.entry.Key.Queue != 2:
			case c.kind == put:
				messages[c.entry.Key] = string(c.entry.Message.(text))
			case c.kind == deletion:
				delete(messages, c.entry.Key)
			}
		}
		from = p.changes
		present := make(map[string]bool)
		for _, body := range messages {
			present[body], seen[body] = true, true
		}
		for body := range seen {
			switch other := partner[body]; {
			case !present[body] && !removed[body]:
				return fmt.Errorf("after part %d of %d: message %s is missing", i+1, len(g.parts), body)
			case other != "" && !seen[other] && !removed[other]:
				return fmt.Errorf("after part %d of %d: message %s is there without message %s", i+1, len(g.parts), body, other)
			}
		}
	}
	return nil
}
