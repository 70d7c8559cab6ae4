package queue

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// memDisk contains the committed data of a memStore, which replaces package diskstore in these tests. The tests of
// diskstore, chaos, vhosttest and brokertest use the real store.
type memDisk struct {
	mu        sync.Mutex
	messages  map[store.Key]savedMessage
	orders    map[memLevel][]uint64 // orders of the messages, sorted
	documents map[string][]byte
	counts    map[memLevel]memCount
	open      bool
}

type savedMessage struct {
	store.State
	content []byte
}

type memLevel struct {
	queue uint64
	level uint8
}

type memCount struct {
	messages int
	bytes    int64
}

func newMemDisk() *memDisk {
	return &memDisk{messages: map[store.Key]savedMessage{}, orders: map[memLevel][]uint64{}, documents: map[string][]byte{}, counts: map[memLevel]memCount{}}
}

// crashed returns a copy of the disk after a power failure, with all committed changes.
func (d *memDisk) crashed() *memDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &memDisk{messages: maps.Clone(d.messages), orders: map[memLevel][]uint64{}, documents: maps.Clone(d.documents), counts: maps.Clone(d.counts), open: d.open}
	for at, orders := range d.orders {
		c.orders[at] = slices.Clone(orders)
	}
	return c
}

func (d *memDisk) set(e store.Entry) {
	at := memLevel{e.Queue, e.Level}
	if i, found := slices.BinarySearch(d.orders[at], e.Order); !found {
		d.orders[at] = slices.Insert(d.orders[at], i, e.Order)
	}
	d.messages[e.Key] = savedMessage{e.State, e.Message.Append(nil)}
}

// remove removes the messages of a level whose order is at least from and less than before.
func (d *memDisk) remove(at memLevel, from, before uint64) {
	i, _ := slices.BinarySearch(d.orders[at], from)
	j, _ := slices.BinarySearch(d.orders[at], before)
	for _, order := range d.orders[at][i:j] {
		delete(d.messages, store.Key{Queue: at.queue, Level: at.level, Order: order})
	}
	d.orders[at] = slices.Delete(d.orders[at], i, j)
}

func (d *memDisk) count(at memLevel, messages int, bytes int64) {
	c := d.counts[at]
	d.counts[at] = memCount{c.messages + messages, c.bytes + bytes}
}

// memStore is a [store.Store] on a memDisk. Like the real store, it commits in the background.
type memStore struct {
	store.Store // nil; the tests call only the methods below
	disk        *memDisk
	unclean     bool

	mu        sync.Mutex
	committed *sync.Cond
	ticket    store.Ticket // ticket of the pending commit
	changes   []func(*memDisk)
	waiters   []store.Waiter
	holders   int
	running   bool
	closed    bool
}

func openStore(d *memDisk) *memStore {
	s := &memStore{disk: d, unclean: d.open, ticket: 1}
	s.committed = sync.NewCond(&s.mu)
	d.open = true
	return s
}

func (s *memStore) change(do func(*memDisk)) store.Ref {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes = append(s.changes, do)
	s.commitSoon()
	return store.Ref{Ticket: s.ticket}
}

func (s *memStore) commitSoon() {
	if !s.running && !s.closed && s.holders == 0 {
		s.running = true
		go s.commit()
	}
}

func (s *memStore) commit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.holders == 0 && len(s.changes)+len(s.waiters) > 0 {
		changes, waiters, ticket := s.changes, s.waiters, s.ticket
		s.changes, s.waiters, s.ticket = nil, nil, ticket+1
		s.disk.mu.Lock()
		for _, do := range changes {
			do(s.disk)
		}
		s.disk.mu.Unlock()
		s.mu.Unlock()
		for _, w := range waiters {
			w.Committed(ticket)
		}
		s.mu.Lock()
	}
	s.running = false
	s.committed.Broadcast()
}

func (s *memStore) Put(e store.Entry) store.Ref {
	return s.change(func(d *memDisk) {
		d.set(e)
		d.count(memLevel{e.Queue, e.Level}, 1, e.Bytes)
	})
}

func (s *memStore) Update(e store.Entry, _ store.Ref) store.Ref {
	return s.change(func(d *memDisk) { d.set(e) })
}

func (s *memStore) Delete(k store.Key, _ store.Ref, bytes int64) {
	s.change(func(d *memDisk) {
		d.remove(memLevel{k.Queue, k.Level}, k.Order, k.Order+1)
		d.count(memLevel{k.Queue, k.Level}, -1, -bytes)
	})
}

func (s *memStore) Move(from store.Key, _ store.Ref, to store.Entry) store.Ref {
	return s.change(func(d *memDisk) {
		d.remove(memLevel{from.Queue, from.Level}, from.Order, from.Order+1)
		d.count(memLevel{from.Queue, from.Level}, -1, -to.Bytes)
		d.set(to)
		d.count(memLevel{to.Queue, to.Level}, 1, to.Bytes)
	})
}

func (s *memStore) DeleteRange(queue uint64, level uint8, after, before uint64, n int, bytes int64) {
	s.change(func(d *memDisk) {
		d.remove(memLevel{queue, level}, after+1, before)
		d.count(memLevel{queue, level}, -n, -bytes)
	})
}

func (s *memStore) DeleteQueue(queue uint64) {
	s.change(func(d *memDisk) {
		maps.DeleteFunc(d.messages, func(k store.Key, _ savedMessage) bool { return k.Queue == queue })
		maps.DeleteFunc(d.orders, func(l memLevel, _ []uint64) bool { return l.queue == queue })
		maps.DeleteFunc(d.counts, func(l memLevel, _ memCount) bool { return l.queue == queue })
	})
}

func (s *memStore) SetDocument(name string, value []byte) store.Ticket {
	return s.change(func(d *memDisk) { d.documents[name] = value }).Ticket
}

func (s *memStore) DeleteDocument(name string) store.Ticket {
	return s.change(func(d *memDisk) { delete(d.documents, name) }).Ticket
}

func (s *memStore) Documents(prefix string) iter.Seq2[store.Document, error] {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	var all []store.Document
	for _, name := range slices.Sorted(maps.Keys(s.disk.documents)) {
		if strings.HasPrefix(name, prefix) {
			all = append(all, store.Document{Name: name, Value: s.disk.documents[name]})
		}
	}
	return func(yield func(store.Document, error) bool) {
		for _, d := range all {
			if !yield(d, nil) {
				return
			}
		}
	}
}

func (s *memStore) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holders++
}

func (s *memStore) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holders--
	s.commitSoon()
}

func (s *memStore) Notify(w store.Waiter) store.Ticket {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters = append(s.waiters, w)
	s.commitSoon()
	return s.ticket
}

func (s *memStore) Wait(_ context.Context, t store.Ticket) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.ticket <= t && (s.running || len(s.changes) > 0) {
		s.committed.Wait()
	}
	return nil
}

func (s *memStore) Flush(ctx context.Context) error {
	s.mu.Lock()
	t := s.ticket
	s.mu.Unlock()
	return s.Wait(ctx, t)
}

func (s *memStore) Load(queue uint64, level uint8, after uint64, n, bytes int) (all []store.Loaded, err error) {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	orders := s.disk.orders[memLevel{queue, level}]
	i, found := slices.BinarySearch(orders, after)
	if found {
		i++
	}
	for _, order := range orders[i:] {
		k := store.Key{Queue: queue, Level: level, Order: order}
		m := s.disk.messages[k]
		all = append(all, store.Loaded{Key: k, State: m.State, Message: slices.Clone(m.content)})
		if bytes -= len(m.content); len(all) >= n || bytes < 0 {
			break
		}
	}
	return all, nil
}

func (s *memStore) Levels(queue uint64) (all []store.Level, err error) {
	d := s.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	for at, c := range d.counts {
		if at.queue != queue {
			continue
		}
		var last uint64
		for _, order := range slices.Clone(d.orders[at]) {
			if m := d.messages[store.Key{Queue: at.queue, Level: at.level, Order: order}]; m.Transient {
				d.remove(at, order, order+1)
				c.messages, c.bytes = c.messages-1, c.bytes-m.Bytes
				continue
			}
			last = order
		}
		if d.counts[at] = c; c.messages > 0 {
			all = append(all, store.Level{Level: at.level, Messages: c.messages, Bytes: c.bytes, Last: last})
		}
	}
	slices.SortFunc(all, func(a, b store.Level) int { return cmp.Compare(a.Level, b.Level) })
	return all, nil
}

func (s *memStore) Unclean() bool { return s.unclean }

func (s *memStore) Close(clean bool) error {
	s.mu.Lock()
	for s.running {
		s.committed.Wait()
	}
	s.closed = true
	s.mu.Unlock()
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	if clean || !s.unclean {
		s.disk.open = false
	}
	return nil
}
