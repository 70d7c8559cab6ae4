package queue

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// taker is a receiver that accepts messages while it has credit, and keeps them. A negative credit is unlimited.
type taker struct {
	mu      sync.Mutex
	credit  int
	taken   []*Item
	deleted bool
}

func (c *taker) Offer(it *Item) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.credit == 0 {
		return false
	}
	c.credit--
	c.taken = append(c.taken, it)
	return true
}

func (c *taker) QueueDeleted() { c.deleted = true }

func (c *taker) take() []*Item {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.taken
	c.taken = nil
	c.credit += len(taken)
	return taken
}

func message(body string) *Message {
	return &Message{Body: []byte(body), TTL: NoTTL, Properties: []byte{0, 0}}
}

// send publishes the dead letters of a queue in another goroutine, as a virtual host does.
func send(q *Queue) {
	go func() {
		for q.SendDeadLetters() {
		}
	}()
}

// to returns a function for Config.Publish that publishes all dead letters to one queue.
func to(q **Queue) func(*Message, Reason, []string) ([]string, bool) {
	return func(m *Message, _ Reason, _ []string) ([]string, bool) {
		if accepted, _ := (*q).Publish(m); !accepted {
			return []string{(*q).Name()}, true
		}
		return nil, true
	}
}

func (q *Queue) take(noAck bool) (item *Item) {
	_, _ = q.Get(noAck, func(it *Item, _ int) { item = it })
	return item
}

// Two queues dead-letter messages to each other while many goroutines publish, receive, settle and requeue messages.
// Each message must be acknowledged exactly once, and all goroutines must return.
func TestConcurrentQueuesAckEachMessageOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const publishers, each, workers = 4, 500, 4
		meter := NewMeter(1 << 40)
		var work, wait *Queue
		work = New(Config{
			Name: "work", Meter: meter, Settings: Settings{TTL: NoTTL, MaxLength: -1, MaxBytes: -1, DeadLetter: &DeadLetter{}},
			Publish: to(&wait), Ask: send,
		})
		wait = New(Config{
			Name: "wait", Meter: meter, Settings: Settings{TTL: time.Millisecond, MaxLength: -1, MaxBytes: -1, DeadLetter: &DeadLetter{}},
			Publish: to(&work), Ask: send,
		})

		var mu sync.Mutex
		acked := map[string]int{}
		var running sync.WaitGroup
		stop := make(chan struct{})
		for w := range workers {
			running.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(w)))
				receiver := &taker{credit: 5}
				c := &Consumer{Receiver: receiver}
				work.Consume(c, func() {})
				defer work.Cancel(c)
				for {
					items := receiver.take()
					work.Resume(c)
					for _, it := range items {
						switch random.IntN(3) {
						case 0:
							work.Reject(true, it)
						case 1:
							work.Requeue(false, it)
						default:
							mu.Lock()
							acked[string(it.Message.Body)]++
							mu.Unlock()
							work.Ack(it)
						}
					}
					select {
					case <-stop:
						if len(items) == 0 {
							return
						}
					case <-time.After(time.Millisecond):
					}
				}
			})
		}
		for p := range publishers {
			running.Go(func() {
				for i := range each {
					work.Publish(message(string(rune('a'+p)) + string(rune('0'+i))))
				}
			})
		}
		time.Sleep(time.Minute)
		close(stop)
		running.Wait()

		for _, q := range []*Queue{work, wait} {
			if s := q.Stats(); s != (Stats{Counts: s.Counts}) {
				t.Errorf("queue %s is not empty: %+v", q.Name(), s)
			}
			q.Delete(Condition{})
		}
		if left := meter.Used(); left != 0 {
			t.Errorf("meter: got %d bytes, want 0", left)
		}
		if len(acked) != publishers*each {
			t.Errorf("acked messages: got %d, want %d", len(acked), publishers*each)
		}
		for body, n := range acked {
			if n != 1 {
				t.Errorf("message %q was acked %d times", body, n)
			}
		}
	})
}

// In a classic queue, requeued messages return to their original positions. In a quorum queue, requeued messages
// precede messages that were never delivered, in the order in which they were requeued.
func TestOrderAfterRequeue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quorum := rapid.Bool().Draw(t, "quorum")
		config := Defaults("q")
		config.Quorum = quorum
		q := New(config)
		n := rapid.IntRange(1, 40).Draw(t, "messages")
		var returned, fresh []byte
		for i := range n {
			q.Publish(message(string(rune('A' + i))))
			fresh = append(fresh, byte('A'+i))
		}
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			k := rapid.IntRange(1, n).Draw(t, "taken")
			var items []*Item
			for range k {
				it := q.take(false)
				items = append(items, it)
				if len(returned) > 0 {
					returned = returned[1:]
				} else {
					fresh = fresh[1:]
				}
			}
			for _, it := range rapid.Permutation(items).Draw(t, "returned") {
				q.Requeue(false, it)
				returned = append(returned, it.Message.Body[0])
			}
			if !quorum {
				slices.Sort(returned)
			}
		}
		want := slices.Concat(returned, fresh)
		var got []byte
		for {
			it := q.take(true)
			if it == nil {
				break
			}
			got = append(got, it.Message.Body[0])
		}
		if !slices.Equal(got, want) {
			t.Fatalf("order: got %s, want %s", got, want)
		}
	})
}

func TestDeliveryLimit(t *testing.T) {
	var died []Reason
	q := New(Config{
		Name: "q", Quorum: true, Settings: Settings{TTL: NoTTL, DeliveryLimit: 2, DeadLetter: &DeadLetter{}, MaxLength: -1, MaxBytes: -1},
		Publish: func(_ *Message, why Reason, _ []string) ([]string, bool) { died = append(died, why); return nil, true },
		Ask: func(q *Queue) {
			for q.SendDeadLetters() {
			}
		},
	})
	q.Publish(message("x"))
	for range 5 { // an intentional requeue is not a failure
		it := q.take(false)
		q.Requeue(false, it)
	}
	for want := range int64(3) {
		it := q.take(false)
		if it == nil || it.deliveries != want {
			t.Fatalf("delivery %d: got %+v", want, it)
		}
		q.Requeue(true, it)
	}
	if !slices.Equal(died, []Reason{DeliveryLimit}) || q.Stats().Ready != 0 {
		t.Errorf("reasons: got %v, want delivery_limit; stats %+v", died, q.Stats())
	}
}

func TestRingGrowsAndShrinksInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f fifo
		var model []*Item
		for range rapid.IntRange(1, 30).Draw(t, "phases") {
			for range rapid.IntRange(0, 60).Draw(t, "push") {
				it := &Item{Message: message("")}
				f.push(it)
				model = append(model, it)
			}
			for range min(len(model), rapid.IntRange(0, 60).Draw(t, "pop")) {
				if f.head() != model[0] {
					t.Fatal("wrong head")
				}
				f.pop()
				model = model[1:]
			}
			if f.len() != len(model) || len(f.ring) > max(fifoMin, 4*len(model)) {
				t.Fatalf("length: got %d, want %d, in a ring of %d", f.len(), len(model), len(f.ring))
			}
		}
	})
}

// The receiver processes an acknowledgement before the queue does. If the receiver accepts a message in between, the
// consumer has used its credit from the queue's point of view. The receiver still has credit, so it does not call
// Resume.
func TestAckRestoresCredit(t *testing.T) {
	q := New(Config{Name: "q", Quorum: true, Settings: Settings{TTL: NoTTL, MaxLength: -1, MaxBytes: -1}})
	c := &taker{credit: 100}
	if err := q.Consume(&Consumer{Receiver: c, Prefetch: 2}, func() {}); err != nil {
		t.Fatal(err)
	}
	q.Publish(message("a"))
	q.Publish(message("b"))
	q.Ack(c.take()[0])
	q.Publish(message("c"))
	if taken := c.take(); len(taken) != 1 || string(taken[0].Message.Body) != "c" {
		t.Errorf("after an ack: got deliveries %v, want c", taken)
	}
}
