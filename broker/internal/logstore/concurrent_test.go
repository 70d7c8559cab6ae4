package logstore

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Queues are read and changed while the store copies and drops segments, and while backups run. Each committed message that is
// not deleted is readable at any time, and after a restart.
func TestConcurrentUse(t *testing.T) {
	const queues, rounds = 4, 300
	fs := vfs.NewMem()
	d := openSegments(t, fs, 3000)
	contents := make([]content, queues)
	var users, others sync.WaitGroup
	done := make(chan struct{})
	for q := range uint64(queues) {
		users.Go(func() {
			random, have := rand.New(rand.NewPCG(q, 0)), newContent()
			contents[q] = have
			order := uint64(0)
			for range rounds {
				for range random.IntN(5) + 1 {
					order++
					k, body := keyOf(q, 0, order), fmt.Sprintf("%d/%d/%s", q, order, strings.Repeat("x", random.IntN(200)))
					d.Put(entry(k, body))
					have.messages[k] = body
				}
				if err := d.sync(); err != nil {
					t.Error(err)
					return
				}
				loaded, expected := 0, len(have.messages)
				for after := uint64(0); ; {
					some, err := d.Load(q, 0, after, 50, 1<<20)
					if err != nil {
						t.Error(err)
						return
					}
					if len(some) == 0 {
						break
					}
					for _, m := range some {
						if have.messages[m.Key] != string(m.Message) {
							t.Errorf("message %v: got %q, want %q", m.Key, m.Message, have.messages[m.Key])
						}
						loaded++
						after = m.Order
						switch random.IntN(20) {
						case 0: // stays
						case 1:
							d.Update(entry(m.Key, string(m.Message)), Ref{Slot: -1})
						default:
							d.Delete(m.Key, Ref{Slot: -1}, m.Bytes)
							delete(have.messages, m.Key)
						}
					}
				}
				if loaded != expected {
					t.Errorf("queue %d: loaded %d messages, want %d", q, loaded, expected)
				}
				if err := d.sync(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	others.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			default:
			}
			if err := d.MakeRoom(t.Context()); err != nil {
				t.Error(err)
			}
			if err := d.Backup(fmt.Sprint("backup", n)); err != nil {
				t.Error(err)
			}
			d.SetDocument("name", fmt.Append(nil, n))
		}
	})
	users.Wait()
	close(done)
	others.Wait()
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
	want := newContent()
	for _, have := range contents {
		maps.Copy(want.messages, have.messages)
	}
	d = openSegments(t, fs, 3000)
	found, err := d.read(queues, 1)
	want.documents = found.documents
	if err != nil || !found.equal(want) {
		t.Errorf("after a restart: got %d messages, %v, want %d", len(found.messages), err, len(want.messages))
	}
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
}
