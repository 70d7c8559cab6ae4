package reprise

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// holding is RabbitMQ's channel: it passes settlements on while no more than 32 are
// with the queue, holds back the others, and answers requests in between.
type holding struct {
	latency time.Duration // of the queue

	mu        sync.Mutex
	unsettled []uint64
	with      int // commands that are with the queue
	slow      bool
	held      []uint64
	taken     int
	ever      bool        // any were held back
	more      func(n int) // the queue has taken n more messages
}

func (h *holding) Ack(tag uint64, multiple bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.Index(h.unsettled, tag)
	if i < 0 {
		return errUnknownTag
	}
	from := i
	if multiple {
		from = 0
	}
	tags := slices.Clone(h.unsettled[from : i+1])
	h.unsettled = slices.Delete(h.unsettled, from, i+1)
	if h.slow {
		h.held, h.ever = append(h.held, tags...), true
		return nil
	}
	h.pass(tags)
	return nil
}

func (h *holding) Nack(tag uint64, _, _ bool) error { return h.Ack(tag, false) }
func (h *holding) Reject(tag uint64, _ bool) error  { return h.Ack(tag, false) }
func (h *holding) Sync() error                      { return nil }

func (h *holding) pass(tags []uint64) {
	h.slow = h.with >= windowSize
	h.with++
	time.AfterFunc(h.latency, func() {
		h.mu.Lock()
		h.with--
		h.taken += len(tags)
		if h.slow && h.with < windowSize {
			h.slow = false
			if tags := h.held; len(tags) > 0 {
				h.held = nil
				h.pass(tags)
			}
		}
		h.mu.Unlock()
		h.more(len(tags))
	})
}

func (h *holding) isHeld(tag uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.held, tag)
}

func TestNobodyIsToldOfAnAckThatIsHeldBack(t *testing.T) {
	for _, c := range []struct {
		latency  time.Duration
		prefetch int
		certain  bool
		told     float64 // share of acks that somebody waits for
	}{
		{5 * time.Millisecond, 32, true, 1},
		{5 * time.Millisecond, 200, true, 1},
		{5 * time.Millisecond, 200, true, 0.1},
		{5 * time.Millisecond, 200, false, 0.01},
		{400 * time.Millisecond, 200, true, 0.5},
		{400 * time.Millisecond, 200, false, 0.1},
	} {
		t.Run(fmt.Sprintf("%v, prefetch %d, certain %t, %v", c.latency, c.prefetch, c.certain, c.told), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const count = 2000
				random := rand.New(rand.NewPCG(1, 2))
				credit := make(chan struct{}, count+c.prefetch)
				h := &holding{latency: c.latency, more: func(n int) {
					for range n {
						credit <- struct{}{}
					}
				}}
				a := newAcker(h)
				a.window, a.certain = &window{}, c.certain
				a.window.consumes(a.window.asked(), c.prefetch)
				a.expect(c.prefetch - c.prefetch/4)
				go a.run(t.Context())
				h.more(c.prefetch)
				var handlers sync.WaitGroup
				for tag := uint64(1); tag <= count; tag++ {
					<-credit
					h.mu.Lock()
					h.unsettled = append(h.unsettled, tag)
					h.mu.Unlock()
					a.window.delivered(tag)
					told := random.Float64() < c.told
					takes := time.Duration(random.IntN(3000)) * time.Microsecond
					if random.IntN(20) == 0 {
						takes *= 50
					}
					handlers.Go(func() {
						time.Sleep(takes)
						if !told {
							a.ack(tag)
							return
						}
						if !a.ackNow(tag) || h.isHeld(tag) {
							t.Errorf("it was said to be known that %d is taken", tag)
						}
					})
				}
				handlers.Wait()
				a.end()
				<-a.done
				a.window.wait(t.Context())
				h.mu.Lock()
				if len(h.held) > 0 {
					t.Errorf("the channel would be closed, and forget %d acks", len(h.held))
				}
				if c.certain && h.ever {
					t.Error("the channel held some back")
				}
				h.mu.Unlock()
				time.Sleep(3 * c.latency)
				h.mu.Lock()
				defer h.mu.Unlock()
				if h.taken != count {
					t.Errorf("%d of %d were acked", h.taken, count)
				}
			})
		})
	}
}

func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWindow(amqp.Table{"platform": "Erlang/OTP 27.3"})
		room := func(want int) {
			t.Helper()
			if got := w.room(); got != windowSize-want {
				t.Errorf("%d may not be taken, want %d", windowSize-got, want)
			}
		}
		w.consumes(w.asked(), 3)
		for tag := range uint64(3) {
			w.delivered(tag + 1)
			w.wrote(tag+1, tag+1, 1)
		}
		room(3)
		w.delivered(4) // beyond the prefetch
		room(2)
		w.delivered(5)
		room(1)

		// A consumer is cancelled, with two messages that are not settled; what was
		// settled meanwhile came after the question.
		before := w.asked()
		w.wrote(4, 4, 1)
		w.answered(before)
		room(1)
		w.consumes(w.asked(), 3)
		room(0)
		w.delivered(8)
		w.wrote(5, 6, 2) // an ack of messages of both consumers is two commands
		room(2)
		w.delivered(9) // the queue has taken one of the new consumer's
		room(2)
		w.delivered(10)
		room(0)

		for tag := range uint64(40) {
			w.wrote(tag+7, tag+7, 1)
		}
		room(40)
		w.answered(w.asked()) // but some may be held back
		room(40)
		begun := time.Now()
		w.wait(t.Context())
		room(0)
		if took := time.Since(begun); took != takenWithin {
			t.Errorf("it took %v for them to be taken", took)
		}
	})
	if newWindow(amqp.Table{"platform": "Go"}) != nil {
		t.Error("another broker holds acks back, too")
	}
}
