package queue

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// chain contains a queue and the queue to which it dead-letters messages.
type chain struct {
	store        store.Store
	source, work *Queue
	running      sync.WaitGroup
}

// openChain returns a chain whose first queue has a maximum length of one message.
func openChain(t *testing.T, fs *memDisk) *chain {
	t.Helper()
	return openChainWith(t, fs, func(config *Config) { config.MaxLength = 1 })
}

func openChainWith(t *testing.T, fs *memDisk, limit func(*Config)) *chain {
	t.Helper()
	c := &chain{store: openStore(fs)}
	restore := func(name string, id uint64, change func(*Config)) *Queue {
		config := Defaults(name)
		config.Store, config.ID, config.Durable, config.Go = c.store, id, true, c.running.Go
		config.Trouble = func(err error) { t.Error("unexpected error:", err) }
		change(&config)
		q, err := Restore(config)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	c.work = restore("work", 2, func(*Config) {})
	c.source = restore("source", 1, func(config *Config) {
		limit(config)
		config.DeadLetter, config.Publish, config.Ask = &DeadLetter{}, to(&c.work), func(q *Queue) {
			c.running.Go(func() {
				for q.SendDeadLetters() {
				}
			})
		}
	})
	return c
}

func (c *chain) close(clean bool) {
	c.source.Close()
	c.work.Close()
	c.running.Wait()
	_ = c.store.Close(clean)
}

// arrived waits up to 10 s for a message. It returns nil after a timeout.
func arrived(q *Queue) *Item {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if it := q.take(false); it != nil {
			return it
		}
	}
	return nil
}

// A full queue dead-letters a message to another queue, which delivers the message. The broker crashes before any of
// these changes is on disk. After the restart, the full queue dead-letters the message again. The message must then
// be marked as redelivered, even after a second restart.
func TestDroppedMessageIsRedeliveredAfterCrash(t *testing.T) {
	for name, closed := range map[string]bool{"after the crash": false, "after another start": true} {
		t.Run(name, func(t *testing.T) {
			fs := newMemDisk()
			c := openChain(t, fs)
			if err := c.work.Consumed(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.source.Publish(large(1, 10))
			if err := c.store.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			crashed := fs.crashed()        // a copy of the disk without the following changes
			c.source.Publish(large(2, 10)) // drops message 1
			it := arrived(c.work)
			if it == nil || numberOf(it) != 1 || it.Redelivered {
				t.Fatalf("before the crash: got %+v, want message 1, not redelivered", it)
			}
			c.work.Ack(it)
			c.close(true)

			c = openChain(t, crashed)
			if closed {
				c.close(true)
				c = openChain(t, crashed)
			}
			defer c.close(true)
			c.source.Publish(large(2, 10))
			if it := arrived(c.work); it == nil || numberOf(it) != 1 || !it.Redelivered {
				t.Errorf("after the crash: got %+v, want message 1, redelivered", it)
			}
			c.source.Publish(large(3, 10))
			if it := arrived(c.work); it == nil || numberOf(it) != 2 || it.Redelivered {
				t.Errorf("published after the crash: got %+v, want message 2, not redelivered", it)
			}
		})
	}
}

// After a crash, an expired message is marked as redelivered if it expired before the restart, because the broker may have
// dead-lettered it before the crash. A message that expires later is not marked.
func TestOnlyMessagesExpiredBeforeRestartAreRedelivered(t *testing.T) {
	for name, test := range map[string]struct {
		down        time.Duration // time between the crash and the restart
		again       bool          // the broker restarts once more before the message expires
		redelivered bool
	}{
		"expired during the outage": {down: 2 * time.Hour, redelivered: true},
		"expired after the restart": {down: time.Minute},
		"expired after two starts":  {down: time.Minute, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit := func(config *Config) { config.TTL = time.Hour }
				fs := newMemDisk()
				c := openChainWith(t, fs, limit)
				c.source.Publish(large(1, 10))
				if err := c.store.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				crashed := fs.crashed()
				c.close(true)
				time.Sleep(test.down)
				c = openChainWith(t, crashed, limit)
				if test.again {
					c.close(true)
					time.Sleep(2 * time.Hour)
					c = openChainWith(t, crashed, limit)
				}
				defer c.close(true)
				time.Sleep(time.Hour)
				it := arrived(c.work)
				if it == nil || it.Redelivered != test.redelivered {
					t.Errorf("dead letter: got %+v, want redelivered: %v", it, test.redelivered)
				}
			})
		})
	}
}

// After a crash, a queue that had a consumer has all saved messages, including those that a consumer received without
// waiting, and marks them as redelivered.
func TestDeliveredMessagesSurviveCrash(t *testing.T) {
	for name, test := range map[string]struct{ quorum, persistent bool }{
		"persistent in a classic queue": {persistent: true},
		"persistent in a quorum queue":  {quorum: true, persistent: true},
		"transient in a quorum queue":   {quorum: true},
	} {
		t.Run(name, func(t *testing.T) {
			var running sync.WaitGroup
			defer running.Wait()
			open := func(s store.Store) *Queue {
				config := Defaults("work")
				config.Store, config.ID, config.Durable, config.Quorum, config.Go = s, 1, true, test.quorum, running.Go
				q, err := Restore(config)
				if err != nil {
					t.Fatal(err)
				}
				return q
			}
			fs := newMemDisk()
			s := openStore(fs)
			q := open(s)
			if err := q.Consumed(t.Context()); err != nil {
				t.Fatal(err)
			}
			c := &taker{credit: 1}
			if err := q.Consume(&Consumer{Receiver: c}, func() {}); err != nil {
				t.Fatal(err)
			}
			publish := func(q *Queue, n int) {
				m := large(n, 10)
				m.Persistent = test.persistent
				if accepted, ticket := q.Publish(m); !accepted || ticket == 0 {
					t.Errorf("publish message %d: accepted %v, commit %d, want true and a commit", n, accepted, ticket)
				}
			}
			publish(q, 1)
			publish(q, 2)
			if received := c.take(); len(received) != 1 || received[0].Redelivered {
				t.Fatalf("before the crash: got %d messages, want 1 without the flag", len(received))
			}
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			crashed := openStore(fs.crashed())
			q.Close()
			_ = s.Close(true)

			q = open(crashed)
			defer crashed.Close(true)
			defer q.Close()
			publish(q, 3)
			for n := 1; n <= 3; n++ {
				if it := arrived(q); it == nil || numberOf(it) != n || it.Redelivered != (n < 3) {
					t.Errorf("after the crash: got %+v, want message %d, redelivered %v", it, n, n < 3)
				}
			}
		})
	}
}
