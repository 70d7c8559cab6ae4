package logstore

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"
)

// history records the expected content of a store after each commit.
type history struct {
	states []content // content after each commit; the first is the content after Open
	first  Ticket
	waited Ticket
	refs   map[Key]Ref
	next   uint64
}

func (h *history) now() content { return h.states[len(h.states)-1] }

// in applies a change to the expected content after the commit with the ticket t.
func (h *history) in(t Ticket, change func(content)) {
	for len(h.states) <= int(t-h.first) {
		h.states = append(h.states, h.now().clone())
	}
	change(h.now())
}

// After a power failure at any time, a store has the content after the last confirmed commit or after a later commit,
// whichever part of the unsynced data is on disk. It never contains only a part of a commit.
func TestCrashPreservesCommits(t *testing.T) {
	defer func(limit, loose int) { chunkLimit, maxLoose = limit, loose }(chunkLimit, maxLoose)
	chunkLimit, maxLoose = 4, 2
	rapid.Check(t, func(t *rapid.T) {
		const queues, levels = 3, 2
		fs := vfs.NewCrashableMem()
		d := openCrashed(t, fs)
		h := &history{states: []content{newContent()}, first: 0, refs: make(map[Key]Ref)}
		existing := func(t *rapid.T) (Key, bool) {
			keys := slices.SortedFunc(maps.Keys(h.now().messages), func(a, b Key) int { return cmp.Compare(a.Order, b.Order) })
			if len(keys) == 0 {
				return Key{}, false
			}
			return rapid.SampledFrom(keys).Draw(t, "key"), true
		}
		held := false // several changes belong to the same commit
		release := func() {
			if held {
				held = false
				d.Release()
			}
		}
		locked := func(change func(Ticket)) {
			if !held {
				d.Hold() // no commit starts before Release
				defer d.Release()
			}
			d.mu.Lock()
			ticket := d.pending.ticket
			d.mu.Unlock()
			change(ticket)
		}
		t.Repeat(map[string]func(*rapid.T){
			"hold": func(*rapid.T) {
				if !held {
					held = true
					d.Hold()
				}
			},
			"release": func(*rapid.T) { release() },
			"put": func(t *rapid.T) {
				h.next++
				k := keyOf(rapid.Uint64Range(0, queues-1).Draw(t, "queue"), rapid.Uint8Range(0, levels-1).Draw(t, "level"), h.next)
				body := fmt.Sprint("message ", h.next)
				locked(func(ticket Ticket) {
					h.refs[k] = d.Put(entry(k, body))
					h.in(ticket, func(c content) { c.messages[k] = body })
				})
			},
			"update": func(t *rapid.T) {
				if k, ok := existing(t); ok {
					body := h.now().messages[k] // unchanged, because an update must not change the number of bytes
					locked(func(ticket Ticket) {
						h.refs[k] = d.Update(entry(k, body), h.refs[k])
						h.in(ticket, func(c content) { c.messages[k] = body })
					})
				}
			},
			"move": func(t *rapid.T) {
				if k, ok := existing(t); ok {
					h.next++
					to := keyOf(k.Queue, rapid.Uint8Range(0, levels-1).Draw(t, "level"), h.next)
					body := h.now().messages[k]
					locked(func(ticket Ticket) {
						h.refs[to] = d.Move(k, h.refs[k], entry(to, body))
						h.in(ticket, func(c content) { delete(c.messages, k); c.messages[to] = body })
					})
				}
			},
			"delete": func(t *rapid.T) {
				if k, ok := existing(t); ok {
					locked(func(ticket Ticket) {
						d.Delete(k, h.refs[k], int64(len(h.now().messages[k])))
						h.in(ticket, func(c content) { delete(c.messages, k) })
					})
				}
			},
			"delete queue": func(t *rapid.T) {
				q := rapid.Uint64Range(0, queues-1).Draw(t, "queue")
				locked(func(ticket Ticket) {
					d.DeleteQueue(q)
					h.in(ticket, func(c content) {
						for k := range c.messages {
							if k.Queue == q {
								delete(c.messages, k)
							}
						}
					})
				})
			},
			"delete range": func(t *rapid.T) {
				release()
				if err := d.sync(); err != nil { // all messages must be committed
					t.Fatal(err)
				}
				q, l := rapid.Uint64Range(0, queues-1).Draw(t, "queue"), rapid.Uint8Range(0, levels-1).Draw(t, "level")
				after := rapid.Uint64Range(0, h.next+1).Draw(t, "after")
				before := rapid.Uint64Range(after, h.next+2).Draw(t, "before")
				n, bytes := 0, int64(0)
				within := func(k Key) bool { return k.Queue == q && k.Level == l && after < k.Order && k.Order < before }
				for k, body := range h.now().messages {
					if within(k) {
						n, bytes = n+1, bytes+int64(len(body))
					}
				}
				locked(func(ticket Ticket) {
					d.DeleteRange(q, l, after, before, n, bytes)
					h.in(ticket, func(c content) { maps.DeleteFunc(c.messages, func(k Key, _ string) bool { return within(k) }) })
				})
			},
			"document": func(t *rapid.T) {
				name, value := rapid.SampledFrom([]string{"a", "a/b", "c"}).Draw(t, "name"), fmt.Sprint(h.next)
				locked(func(ticket Ticket) {
					d.SetDocument(name, []byte(value))
					h.in(ticket, func(c content) { c.documents[name] = value })
				})
			},
			"delete document": func(t *rapid.T) {
				locked(func(ticket Ticket) {
					d.DeleteDocument("a")
					h.in(ticket, func(c content) { delete(c.documents, "a") })
				})
			},
			"wait": func(t *rapid.T) {
				release()
				var ticket Ticket
				locked(func(t Ticket) { ticket = t })
				if err := d.Wait(t.Context(), ticket); err != nil {
					t.Fatal(err)
				}
				h.in(ticket, func(content) {})
				h.waited = ticket
			},
			"make room": func(t *rapid.T) { // commits the pending changes, and copies messages
				release()
				if err := d.MakeRoom(t.Context()); err != nil {
					t.Fatal(err)
				}
			},
			"read": func(t *rapid.T) { // Load reads records of the newest segment and of copied messages, too
				release()
				if err := d.sync(); err != nil {
					t.Fatal(err)
				}
				if found, err := d.read(queues, levels); err != nil || !found.equal(h.now()) {
					t.Fatalf("content of the open store: got %v, %v, want %v", found, err, h.now())
				}
			},
			"yield": func(*rapid.T) { runtime.Gosched() },
			"crash": func(t *rapid.T) {
				seed := rapid.Uint64().Draw(t, "what is on disk")
				release()
				fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: int(seed % 101), RNG: rand.New(rand.NewPCG(seed, 0))})
				old := d
				defer old.Close(true)
				d = openCrashed(t, fs)
				if !d.Unclean() {
					t.Fatal("crash is not reported as unclean")
				}
				found, err := d.read(queues, levels)
				if err != nil {
					t.Fatal(err)
				}
				h.found(t, found)
			},
			"restart": func(t *rapid.T) {
				release()
				if err := d.Close(true); err != nil {
					t.Fatal(err)
				}
				d = openCrashed(t, fs)
				found, err := d.read(queues, levels)
				if err != nil {
					t.Fatal(err)
				}
				if d.Unclean() || !found.equal(h.now()) {
					t.Fatalf("content after a clean close differs: wrote %v, found %v, unclean %v", h.now(), found, d.Unclean())
				}
				h.begin(found)
			},
		})
		release()
		if err := d.Close(true); err != nil {
			t.Fatal(err)
		}
	})
}

// found determines the commit after which the store had the recovered content c, and continues the history from there.
func (h *history) found(t *rapid.T, c content) {
	for i := len(h.states) - 1; i >= 0 && h.first+Ticket(i) >= h.waited; i-- {
		if c.equal(h.states[i]) {
			h.begin(c)
			return
		}
	}
	t.Fatalf("recovered content must be one of the commits %d to %d, %+v: got %+v",
		h.waited, h.first+Ticket(len(h.states)), h.states, c)
}

func (h *history) begin(c content) {
	h.states = []content{c}
	h.first, h.waited = 0, 0
	clear(h.refs)
}

func openCrashed(t *rapid.T, fs vfs.FS) *disk {
	t.Helper()
	size := rapid.SampledFrom([]int{128, 1000, segmentBytes}).Draw(t, "size of segments")
	s, err := Open(Options{Dir: dataDir, Log: discard, FS: fs, Segment: size})
	if err != nil {
		t.Fatal(err)
	}
	d := s.(*disk)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.partBytes = rapid.SampledFrom([]int64{0, 20, partBytes}).Draw(t, "size of parts")
	return d
}
