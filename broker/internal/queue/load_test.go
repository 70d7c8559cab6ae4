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

// filled returns a store in which queue 7 has n messages of the given size, numbered from 1. The store is reopened, so the
// messages are only on disk. Change, if not nil, modifies each entry before it is saved.
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

// restored returns queue 7. At the end of the test it closes the queue, then the store.
func restored(t *testing.T, s store.Store, change func(*Config)) *Queue {
	t.Helper()
	var reading sync.WaitGroup
	c := Defaults("q")
	c.Store, c.ID, c.Durable, c.Go = s, 7, true, reading.Go
	c.Trouble = func(err error) { t.Error("trouble: ", err) }
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

// unreadable is a store whose reads fail while now is set.
type unreadable struct {
	store.Store
	now atomic.Bool
}

var errBadBlock = errors.New("bad block")

func (u *unreadable) Load(queue uint64, level uint8, after uint64, n, bytes int) ([]store.Loaded, error) {
	if u.now.Load() {
		return nil, errBadBlock
	}
	return u.Store.Load(queue, level, after, n, bytes)
}

// Get returns the error of an unreadable message, and returns the message when it is readable again.
func TestGetDoesNotWaitForTheDiskToRecover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &unreadable{Store: filled(t, 3, 100, nil)}
		s.now.Store(true)
		q := restored(t, s, func(c *Config) { c.Trouble = func(error) {} })
		for range 2 {
			if found, err := q.Get(false, func(*Item, int) {}); found || !errors.Is(err, errBadBlock) {
				t.Errorf("found %v, %v", found, err)
			}
		}
		s.now.Store(false)
		time.Sleep(2 * retryLoad) // in virtual time
		for i := range 3 {
			if it := q.take(true); it == nil || numberOf(it) != i+1 {
				t.Errorf("in place %d came %v", i+1, it)
			}
		}
	})
}

// The end of a queue stops the timer that retries a failed load.
func TestEndStopsTheRetryOfALoad(t *testing.T) {
	for name, end := range map[string]func(*Queue){
		"closed":  (*Queue).Close,
		"deleted": func(q *Queue) { q.Delete(Condition{}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &unreadable{Store: filled(t, 3, 100, nil)}
				s.now.Store(true)
				q := restored(t, s, func(c *Config) { c.Trouble = func(error) {} })
				if _, err := q.Get(false, func(*Item, int) {}); !errors.Is(err, errBadBlock) {
					t.Fatal(err)
				}
				timers := slices.Collect(maps.Values(q.reloads))
				end(q)
				if len(timers) != 1 || timers[0].Stop() {
					t.Errorf("%d timers, want one that is stopped", len(timers))
				}
			})
		})
	}
}

// The end of a queue unblocks a caller that waits for a message from the disk.
func TestGetEndsWithTheQueue(t *testing.T) {
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
						t.Errorf("found %v, %v", found, err)
					}
				})
				synctest.Wait()
				end(q)
				got.Wait()
			})
		})
	}
}

// If a message exceeds the chunk size, the queue loads one message at a time.
func TestLargeMessagesAreReadInTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		q := restored(t, filled(t, n, 257<<10, nil), nil)
		for i := 1; i <= n; i++ {
			synctest.Wait()
			if used := q.config.Meter.Used(); used > 1<<20 {
				t.Fatalf("before message %d, %d KiB are in memory", i, used>>10)
			}
			if it := q.take(true); it == nil || numberOf(it) != i {
				t.Fatalf("in place %d came %v", i, it)
			}
		}
	})
}

// While memory is short, a queue may have a few messages in memory, but limits their total size.
func TestLargeMessagesDoNotStayInMemory(t *testing.T) {
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
			t.Errorf("%d KiB are in memory", used>>10)
		}
		for i := range 60 {
			if it := q.take(true); it == nil || numberOf(it) != i+1 {
				t.Fatalf("in place %d came %v", i+1, it)
			}
		}
	})
}

// A consumer without prefetch receives only the messages that fit into memory. It receives the others when it settles its
// messages.
func TestAConsumerWithoutPrefetchIsGivenWhatFitsIntoMemory(t *testing.T) {
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
				t.Fatalf("after %d rounds, only %d have come", rounds, next-1)
			}
			synctest.Wait()
			if used := q.config.Meter.Used(); used > 17<<20 {
				t.Errorf("%d MiB are in memory", used>>20)
			}
			items := receiver.take()
			for _, it := range items {
				if numberOf(it) != next {
					t.Fatalf("in place %d came %d", next, numberOf(it))
				}
				next++
			}
			q.Ack(items...)
		}
	})
}

// While other queues use the memory, a queue delivers further messages after acknowledgements. When the other queues release
// the memory, it resumes automatically.
func TestAQueueGoesOnWithoutMemory(t *testing.T) {
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
				t.Fatalf("while there was no memory, %d messages came at once", len(items))
			}
			came += len(items)
			q.Ack(items...)
		}
		synctest.Wait()
		meter.Add(-others)
		time.Sleep(2 * retryCrowded) // in virtual time
		if came += len(receiver.take()); came != n {
			t.Errorf("in all, %d messages came", came)
		}
	})
}

// The queue stops loading while it has many unsent dead letters. A call of Get that is the first to notice many expired
// messages must still get them sent.
func TestGetHasDeadLettersSentThatAreInItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := restored(t, filled(t, 0, 0, nil), func(c *Config) {
			c.DeadLetter, c.Ask = &DeadLetter{}, send
			c.Publish = func(*Message, Reason, []string) ([]string, bool) { return nil, true }
		})
		for range 2 * maxDead { // more than maxDead of them fit into memory
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
			t.Errorf("came: %v", it)
		}
	})
}
