package queue

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/broker/internal/store"
	"github.com/reprisemq/reprise/internal/testkit/flags"
)

// storedQueue is a queue with a store. The test can close and restore the queue.
type storedQueue struct {
	*Queue
	t       *rapid.T
	fs      *memDisk
	store   store.Store
	running sync.WaitGroup
}

func (k *storedQueue) config(c Config) Config {
	c.Store, c.ID, c.Durable = k.store, 7, true
	c.Go = k.running.Go
	c.Trouble = func(err error) { k.t.Error(err) }
	return c
}

func (k *storedQueue) restart(c Config) {
	k.Close()
	k.running.Wait()
	if err := k.store.Close(true); err != nil {
		k.t.Fatal(err)
	}
	k.store = openStore(k.fs)
	var err error
	if k.Queue, err = Restore(k.config(c)); err != nil {
		k.t.Fatal(err)
	}
}

// settle waits until all loads of the queue are complete.
func (k *storedQueue) settle() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for slices.ContainsFunc(k.ready.levels, func(l level) bool { return l.disk.loading }) {
		k.arrived.Wait()
	}
}

// A queue that has most of its messages on disk, and that is closed and restored between operations, behaves like a
// queue that has all messages in memory.
func TestQueueOnDiskMatchesQueueInMemory(t *testing.T) {
	flags.Default(t, "rapid.checks", "30")
	rapid.Check(t, func(t *rapid.T) {
		config := Defaults("q")
		config.Meter = NewMeter(1 << 40)
		config.Quorum = rapid.Bool().Draw(t, "quorum")
		config.MaxPriority = rapid.SampledFrom([]uint8{0, 3}).Draw(t, "priorities")
		limited := rapid.Bool().Draw(t, "limited") // limit the length, without priorities, because a head may be loading
		if limited {
			config.MaxLength = 150
		}
		k := &storedQueue{t: t, fs: newMemDisk()}
		k.store = openStore(k.fs)
		memory := New(config)
		k.Queue = New(k.config(config))
		defer func() {
			k.Close()
			k.running.Wait()
			_ = k.store.Close(true)
		}()

		var held, heldStored []*Item
		number := 0
		// pick removes some random unacked messages from held, and the same messages from heldStored.
		pick := func(t *rapid.T) (a, b []*Item) {
			if len(held) == 0 {
				t.Skip()
			}
			from := rapid.IntRange(0, len(held)-1).Draw(t, "from")
			to := rapid.IntRange(from, min(from+20, len(held))).Draw(t, "to")
			a, b = slices.Clone(held[from:to]), slices.Clone(heldStored[from:to])
			held, heldStored = slices.Delete(held, from, to), slices.Delete(heldStored, from, to)
			return a, b
		}
		requeue := func(failed bool, a, b []*Item) {
			memory.Requeue(failed, a...)
			k.Requeue(failed, b...)
		}
		t.Repeat(map[string]func(*rapid.T){
			"publish": func(t *rapid.T) {
				priority := rapid.Uint8Range(0, 5).Draw(t, "priority")
				for range rapid.IntRange(1, 200).Draw(t, "n") {
					number++
					m := message(fmt.Sprint(number))
					m.Persistent = true
					m.HasPriority, m.Priority = priority > 0 && !limited, priority
					memory.Publish(m)
					k.Publish(m)
				}
			},
			"get": func(t *rapid.T) {
				noAck := rapid.Bool().Draw(t, "noAck")
				for range rapid.IntRange(1, 150).Draw(t, "n") {
					a, b := memory.take(noAck), k.take(noAck)
					if (a == nil) != (b == nil) {
						t.Fatalf("only one queue is empty: got %v in memory, %v on disk", a, b)
					}
					if a == nil {
						break
					}
					if string(a.Message.Body) != string(b.Message.Body) || a.Redelivered != b.Redelivered || a.deliveries != b.deliveries || a.acquired != b.acquired {
						t.Fatalf("messages differ: %s %+v in memory, %s %+v on disk", a.Message.Body, a, b.Message.Body, b)
					}
					if !noAck {
						held, heldStored = append(held, a), append(heldStored, b)
					}
				}
			},
			"ack": func(t *rapid.T) {
				a, b := pick(t)
				memory.Ack(a...)
				k.Ack(b...)
			},
			"reject": func(t *rapid.T) {
				a, b := pick(t)
				memory.Reject(true, a...)
				k.Reject(true, b...)
			},
			"requeue": func(t *rapid.T) {
				a, b := pick(t)
				requeue(rapid.Bool().Draw(t, "failed"), a, b)
			},
			"purge": func(t *rapid.T) {
				if a, b := memory.Purge(), k.Purge(); a != b {
					t.Fatalf("Purge: got %d in memory, %d on disk", a, b)
				}
			},
			"restart": func(t *rapid.T) {
				requeue(true, held, heldStored)
				held, heldStored = nil, nil
				k.restart(config)
			},
			"": func(t *rapid.T) {
				// Without a call of settle, operations overlap with loads. With a length limit, the call is necessary,
				// because the queue can drop the head only when the head is loaded.
				if limited || rapid.Bool().Draw(t, "settled") {
					k.settle()
				}
				a, b := memory.Stats(), k.Stats()
				if a.Ready != b.Ready || a.Unacked != b.Unacked || a.ReadyBytes != b.ReadyBytes || a.UnackedBytes != b.UnackedBytes {
					t.Fatalf("statistics differ: %+v in memory, %+v on disk", a, b)
				}
			},
		})
	})
}

// If messages are missing in the store, the queue reports them and continues with the other messages.
func TestQueueSkipsMissingMessages(t *testing.T) {
	fs := newMemDisk()
	s := openStore(fs)
	for i := range uint64(3) {
		s.Put(store.Entry{Key: store.Key{Queue: 7, Order: i + 1}, Message: message("lost")})
	}
	s.DeleteRange(7, 0, 0, 100, 0, 0)
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	var troubles []error
	var running sync.WaitGroup
	config := Defaults("q")
	config.Store, config.ID, config.Durable, config.Go = s, 7, true, running.Go
	config.Trouble = func(err error) { troubles = append(troubles, err) }
	q, err := Restore(config)
	if err != nil {
		t.Fatal(err)
	}
	q.Publish(message("found"))
	if it := q.take(true); it == nil || string(it.Message.Body) != "found" {
		t.Errorf("got %v, want found", it)
	}
	running.Wait() // until the queue has loaded the other messages
	q.Close()
	running.Wait()
	if len(troubles) != 1 || !strings.Contains(troubles[0].Error(), "3 messages") {
		t.Errorf("reported errors: got %v, want one about 3 messages", troubles)
	}
	if err := s.Close(true); err != nil {
		t.Fatal(err)
	}
	s = openStore(fs)
	defer s.Close(true)
	if levels, err := s.Levels(7); err != nil || len(levels) != 0 {
		t.Errorf("store is not empty: %+v, %v", levels, err)
	}
}

// If a queue is purged during a load, it discards the messages that the load returns.
func TestPurgeDuringLoad(t *testing.T) {
	fs := newMemDisk()
	s := openStore(fs)
	for i := range uint64(3) {
		s.Put(store.Entry{Key: store.Key{Queue: 7, Order: i + 1}, Message: message("old")})
	}
	if err := s.Close(true); err != nil { // a clean close saves the counts
		t.Fatal(err)
	}
	s = openStore(fs)
	defer s.Close(true)
	var reading []func()
	config := Defaults("q")
	config.Store, config.ID, config.Durable = s, 7, true
	config.Go = func(read func()) { reading = append(reading, read) }
	config.Trouble = func(err error) { t.Error(err) }
	q, err := Restore(config)
	if err != nil {
		t.Fatal(err)
	}
	if n := q.Purge(); n != 3 {
		t.Errorf("Purge: got %d, want 3", n)
	}
	q.Publish(message("new"))
	if len(reading) != 1 {
		t.Fatalf("reads: got %d, want 1", len(reading))
	}
	reading[0]()
	if it := q.take(true); it == nil || string(it.Message.Body) != "new" {
		t.Errorf("got %+v, want new", it)
	}
	if st := q.Stats(); st.Ready != 0 {
		t.Errorf("queue is not empty: %+v", st)
	}
	q.Close()
}
