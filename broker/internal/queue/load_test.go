package queue

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// filled returns a store in which queue 7 has n messages of the given size, numbered from 1. The messages are only on
// disk, because filled reopens the store. If the function change is not nil, filled calls it for each entry before
// saving the entry.
func filled(t *testing.T, n, size int, change func(i int, e *store.Entry)) store.Store {
	t.Helper()
	fs := newMemDisk()
	s := openStore(fs)
	for i := 1; i <= n; i++ {
		e := store.Entry{Key: store.Key{Queue: 7, Order: uint64(i)}, State: store.State{Bytes: int64(size)}, Message: large(i, size)}
		if change != nil {
			change(i, &e)
		}
		s.Put(e)
	}
	if err := s.Close(true); err != nil {
		t.Fatal(err)
	}
	return openStore(fs)
}

func large(number, size int) *Message {
	m := message(fmt.Sprint(number))
	m.Persistent = true
	m.Body = append(m.Body, make([]byte, size-len(m.Body))...)
	return m
}

func numberOf(it *Item) (n int) {
	_, _ = fmt.Sscanf(string(it.Message.Body), "%d", &n)
	return n
}

// restored restores queue 7. When the test is complete, the queue and then the store are closed.
func restored(t *testing.T, s store.Store, change func(*Config)) *Queue {
	t.Helper()
	var reading sync.WaitGroup
	c := Defaults("q")
	c.Store, c.ID, c.Durable, c.Go = s, 7, true, reading.Go
	c.Trouble = func(err error) { t.Error("unexpected error:", err) }
	c.Meter, c.Resident = NewMeter(16<<20), 1<<20
	if change != nil {
		change(&c)
	}
	q, err := Restore(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		q.Close()
		reading.Wait()
		_ = s.Close(true)
	})
	return q
}

// unreadable is a store whose Load method fails while failing is set.
type unreadable struct {
	store.Store
	failing atomic.Bool
}

var errBadBlock = errors.New("bad block")

func (u *unreadable) Load(queue uint64, level uint8, after uint64, n, bytes int) ([]store.Loaded, error) {
	if u.failing.Load() {
		return nil, errBadBlock
	}
	return u.Store.Load(queue, level, after, n, bytes)
}

// While a message is unreadable, Get returns an error. When the message is readable again, Get returns the message.
func TestGetReturnsReadError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &unreadable{Store: filled(t, 3, 100, nil)}
		s.failing.Store(true)
		q := restored(t, s, func(c *Config) { c.Trouble = func(error) {} })
		for range 2 {
			if found, err := q.Get(false, func(*Item, int) {}); found || !errors.Is(err, errBadBlock) {
				t.Errorf("Get: got %v, %v, want false, %v", found, err, errBadBlock)
			}
		}
		s.failing.Store(false)
		time.Sleep(2 * retryLoad) // virtual time
		for i := range 3 {
			if it := q.take(true); it == nil || numberOf(it) != i+1 {
				t.Errorf("position %d: got %v, want message %d", i+1, it, i+1)
			}
		}
	})
}

// Close and Delete stop the timer that retries a failed load.
func TestCloseStopsLoadRetry(t *testing.T) {
	for name, end := range map[string]func(*Queue){
		"closed":  (*Queue).Close,
		"deleted": func(q *Queue) { q.Delete(Condition{}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &unreadable{Store: filled(t, 3, 100, nil)}
				s.failing.Store(true)
				q := restored(t, s, func(c *Config) { c.Trouble = func(error) {} })
				if _, err := q.Get(false, func(*Item, int) {}); !errors.Is(err, errBadBlock) {
					t.Fatal(err)
				}
				timers := slices.Collect(maps.Values(q.reloads))
				end(q)
				if len(timers) != 1 || timers[0].Stop() {
					t.Errorf("got %d timers, want one stopped timer", len(timers))
				}
			})
		})
	}
}

// Close, Delete and Purge unblock a caller that waits for a message from the disk.
func TestCloseUnblocksGet(t *testing.T) {
	for name, end := range map[string]func(*Queue){
		"closed":  (*Queue).Close,
		"deleted": func(q *Queue) { q.Delete(Condition{}) },
		"purged":  func(q *Queue) { q.Purge() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := restored(t, filled(t, 3, 100, nil), func(c *Config) { c.Go = func(func()) {} })
				var got sync.WaitGroup
				got.Go(func() {
					if found, err := q.Get(false, func(*Item, int) {}); found || err != nil {
						t.Errorf("Get: got %v, %v, want false, nil", found, err)
					}
				})
				synctest.Wait()
				end(q)
				got.Wait()
			})
		})
	}
}

// If each message exceeds the size of a chunk, the queue loads one message at a time.
func TestQueueLoadsLargeMessagesOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		q := restored(t, filled(t, n, 257<<10, nil), nil)
		for i := 1; i <= n; i++ {
			synctest.Wait()
			if used := q.config.Meter.Used(); used > 1<<20 {
				t.Fatalf("before message %d: got %d KiB in memory, want at most 1 MiB", i, used>>10)
			}
			if it := q.take(true); it == nil || numberOf(it) != i {
				t.Fatalf("position %d: got %v, want message %d", i, it, i)
			}
		}
	})
}

// While memory is low, a queue keeps only a few messages in memory, and limits their total size.
func TestLargeMessagesSpillToDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := restored(t, filled(t, 0, 0, nil), nil)
		for i := range 60 {
			q.Publish(large(i+1, 257<<10))
		}
		if err := q.config.Store.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if used := q.config.Meter.Used(); used > 2<<20 {
			t.Errorf("got %d KiB in memory, want at most 2 MiB", used>>10)
		}
		for i := range 60 {
			if it := q.take(true); it == nil || numberOf(it) != i+1 {
				t.Fatalf("position %d: got %v, want message %d", i+1, it, i+1)
			}
		}
	})
}

// A queue keeps messages in memory while it uses less than all queues leave free: at most half of the memory, and of what
// other queues leave. Saved messages that no consumer waits for use a seventeenth.
func TestQueuesShareMemory(t *testing.T) {
	const resident, size = 1 << 20, 2 << 10
	for name, c := range map[string]struct {
		transient, consumed bool
		others              int64
		want                int64
	}{
		"transient, alone":     {transient: true, want: resident / 2},
		"transient, others":    {transient: true, others: resident / 2, want: resident / 4},
		"persistent, consumed": {consumed: true, want: resident / 2},
		"persistent, others":   {consumed: true, others: resident / 2, want: resident / 4},
		"persistent, unread":   {want: roomFor * size},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := restored(t, filled(t, 0, 0, nil), nil)
				q.config.Meter.Add(c.others)
				if c.consumed {
					if err := q.Consume(&Consumer{Receiver: &taker{}}, func() {}); err != nil {
						t.Fatal(err)
					}
				}
				for i := range 2 * resident / size {
					m := large(i+1, size)
					m.Persistent = !c.transient
					q.Publish(m)
				}
				if err := q.config.Store.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if got := q.config.Meter.Used() - c.others; got < c.want*9/10 || got > c.want*5/4 {
					t.Errorf("messages in memory: got %d KiB, want about %d KiB", got>>10, c.want>>10)
				}
			})
		})
	}
}

// A consumer without a prefetch first receives only the messages that fit into memory. After it has settled messages,
// it receives more messages.
func TestMemoryLimitsConsumerWithoutPrefetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3000
		q := restored(t, filled(t, n, 20<<10, nil), nil)
		receiver := &taker{credit: -1}
		if err := q.Consume(&Consumer{Receiver: receiver}, func() {}); err != nil {
			t.Fatal(err)
		}
		next := 1
		for rounds := 0; next <= n; rounds++ {
			if rounds > 20 {
				t.Fatalf("after %d rounds, only %d messages were delivered", rounds, next-1)
			}
			synctest.Wait()
			if used := q.config.Meter.Used(); used > 17<<20 {
				t.Errorf("got %d MiB in memory, want at most 17 MiB", used>>20)
			}
			items := receiver.take()
			for _, it := range items {
				if numberOf(it) != next {
					t.Fatalf("next message: got %d, want %d", numberOf(it), next)
				}
				next++
			}
			q.Ack(items...)
		}
	})
}

// While other queues use all the memory, a queue delivers further messages only after acknowledgements. When the other
// queues release memory, the queue continues without them.
func TestQueueContinuesWhileMemoryIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, others = 2000, 20 << 20
		meter := NewMeter(16 << 20)
		meter.Add(others)
		q := restored(t, filled(t, n, 1<<10, nil), func(c *Config) { c.Meter = meter })
		receiver := &taker{credit: -1}
		if err := q.Consume(&Consumer{Receiver: receiver}, func() {}); err != nil {
			t.Fatal(err)
		}
		came := 0
		for came < n/2 {
			synctest.Wait()
			items := receiver.take()
			if len(items) == 0 || len(items) > n/4 {
				t.Fatalf("deliveries before an ack while memory is short: got %d, want 1 to %d", len(items), n/4)
			}
			came += len(items)
			q.Ack(items...)
		}
		synctest.Wait()
		meter.Add(-others)
		time.Sleep(2 * memoryCheckInterval) // virtual time
		if came += len(receiver.take()); came != n {
			t.Errorf("received messages: got %d, want %d", came, n)
		}
	})
}

// The queue does not load messages while it has many unsent dead letters. Therefore, if Get is the first call that
// finds many expired messages, it must request their publication.
func TestGetSendsExpiredMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := restored(t, filled(t, 0, 0, nil), func(c *Config) {
			c.DeadLetter, c.Ask = &DeadLetter{}, send
			c.Publish = func(*Message, Reason, []string) ([]string, bool) { return nil, true }
		})
		for range 2 * maxDead { // more than maxDead of these messages fit into memory
			m := large(0, 600)
			m.TTL = time.Second
			q.Publish(m)
		}
		q.Publish(large(1, 600))
		if err := q.config.Store.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		q.mu.Lock()
		q.timer.Stop() // simulate a late timer
		q.mu.Unlock()
		time.Sleep(2 * time.Second)
		if it := q.take(true); it == nil || numberOf(it) != 1 {
			t.Errorf("got %v, want message 1", it)
		}
	})
}

// A queue that is short of memory keeps messages that are not on the disk yet, so that each of them can be delivered.
func TestQueueKeepsUncommittedMessagesInMemory(t *testing.T) {
	s := openStore(newMemDisk())
	q := restored(t, s, func(c *Config) { c.Meter, c.Resident = NewMeter(1<<20), 1 })
	const messages = 2 * roomFor
	s.Hold() // no commit starts before Release
	for i := range messages {
		if accepted, _ := q.Publish(large(i, 100)); !accepted {
			t.Fatalf("message %d was refused", i)
		}
	}
	q.Committed(0) // an earlier commit is complete
	for i := range messages {
		if it := q.take(false); it == nil || numberOf(it) != i {
			t.Fatalf("got %+v, want message %d", it, i)
		}
	}
	s.Release()
}
