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
