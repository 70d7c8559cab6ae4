package queue

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// strandedQueue returns a queue with n+live messages of 4 KiB on disk. The first n messages have expired. The queue
// uses at-least-once dead-lettering, and its dead letters are unroutable until target is set.
func strandedQueue(t *testing.T, n, live int) (q *Queue, target *atomic.Pointer[Queue]) {
	t.Helper()
	past := time.Now().Add(-time.Hour).UnixNano()
	s := filled(t, n+live, 4<<10, func(i int, e *store.Entry) {
		e.Level = quorumDefaultPriority
		if i <= n {
			e.Deadline = past
		}
	})
	target = new(atomic.Pointer[Queue])
	q = restored(t, s, func(c *Config) {
		c.Quorum, c.Overflow, c.DeadLetter = true, RejectPublish, &DeadLetter{AtLeastOnce: true}
		c.Ask = send
		c.Publish = func(m *Message, _ Reason, _ []string) ([]string, bool) {
			to := target.Load()
			if to != nil {
				to.Publish(m)
			}
			return nil, to != nil
		}
	})
	return q, target
}

// Stranded dead letters do not block the messages behind them, and the contents of the letters do not stay in memory.
// When a target queue is available, the queue sends the dead letters.
func TestStrandedDeadLettersDoNotBlockQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, live = 3000, 100
		q, target := strandedQueue(t, n, live)
		time.Sleep(time.Minute)
		if onDisk := q.Stats().OnDisk; onDisk < n/2 {
			t.Errorf("without a target queue: only %d messages are on disk", onDisk)
		}
		receiver := &taker{credit: -1}
		if err := q.Consume(&Consumer{Receiver: receiver}, func() {}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		items := receiver.take()
		for i, it := range items {
			if numberOf(it) != n+i+1 {
				t.Fatalf("position %d: got message %d, want %d", i+1, numberOf(it), n+i+1)
			}
		}
		if len(items) != live {
			t.Errorf("deliveries: got %d, want %d", len(items), live)
		}
		q.Ack(items...)
		if used, most := q.config.Meter.Used(), int64(n*itemOverhead); used > most {
			t.Errorf("memory: got %d bytes, want at most %d", used, most)
		}

		config := Defaults("target")
		config.Meter = NewMeter(1 << 40)
		to := New(config)
		target.Store(to)
		time.Sleep(2 * retryUndeliverable)
		came := make(map[int]bool)
		for it := to.take(true); it != nil; it = to.take(true) {
			came[numberOf(it)] = true
		}
		if len(came) != n {
			t.Errorf("published dead letters: got %d, want %d", len(came), n)
		}
		if used, st := q.config.Meter.Used(), q.Stats(); used != 0 || st.Dead != 0 || st.DeadBytes != 0 {
			t.Errorf("after publication: got %d bytes in memory, statistics %+v, want 0 bytes and no dead letters", used, st)
		}
	})
}

// Get returns the message behind stranded dead letters.
func TestGetSkipsStrandedDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3000
		q, _ := strandedQueue(t, n, 1)
		if it := q.take(true); it == nil || numberOf(it) != n+1 {
			t.Errorf("got %v, want message %d", it, n+1)
		}
	})
}

// When a queue with stranded dead letters is deleted, it releases all counted memory.
func TestDeleteFreesStrandedDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := strandedQueue(t, 50, 0)
		synctest.Wait()
		if dead := q.Stats().Dead; dead != 50 {
			t.Errorf("dead letters: got %d, want 50", dead)
		}
		q.Delete(Condition{})
		if used := q.config.Meter.Used(); used != 0 {
			t.Errorf("memory after Delete: got %d bytes, want 0", used)
		}
	})
}
