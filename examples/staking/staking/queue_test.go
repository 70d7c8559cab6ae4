package staking_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/examples/staking/staking"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/reprisetest"
)

func TestQueueRejectsReceiptsOfEarlierConnections(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		name := testkit.Name(t, "staking")
		proxy := testkit.NewProxy(t, b.URL)
		q := open(t, proxy.URL(), name, staking.Config{Design: short("quorum")})
		o := newOriginal(t, b.URL, name, "quorum", time.Second)
		o.send("first")
		before := receive(t, q)
		proxy.Cut()

		// The old receipt settles neither the redelivered message nor the next message.
		o.send("second")
		again := map[string]staking.Received{}
		for range 2 {
			m := receive(t, q)
			again[string(m.Body)] = m
		}
		if again["first"].Delivery == nil || again["second"].Delivery == nil {
			t.Fatalf("received: got %v, want both messages", again)
		}
		for verb, err := range map[string]error{
			"delete": q.Delete(before.Receipt), "requeue": q.Requeue(before.Receipt, nil), "park": q.Park(before.Receipt, nil),
		} {
			if !errors.Is(err, staking.ErrStale) || !strings.Contains(err.Error(), "cannot "+verb) {
				t.Errorf("%s: got %v, want ErrStale", verb, err)
			}
		}
		must(t, q.Delete(again["second"].Receipt))
		must(t, q.Stop(t.Context()))
		if m := o.receive(); m.body != "first" {
			t.Errorf("remaining message: got %q, want %q", m.body, "first")
		}
		if n := o.depth(name); n != 0 {
			t.Errorf("depth: got %d, want 0", n)
		}
	})
}

func TestQueueRejectsForeignAndUsedReceipts(t *testing.T) {
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		config := staking.Config{Client: &reprise.Config{Dial: b.DialContext}}
		one, other := open(t, b.URL(), "one", config), open(t, b.URL(), "other", config)
		for _, q := range []*staking.Queue{one, other} {
			must(t, q.Send(t.Context(), []byte("{}")))
			must(t, q.Send(t.Context(), []byte("{}")))
		}
		m, theirs := receive(t, one), receive(t, other)
		for _, receipt := range []string{theirs.Receipt, "", "1", m.Receipt + "0", m.Receipt + " ", "-1-1"} {
			if err := one.Delete(receipt); !errors.Is(err, staking.ErrForeign) {
				t.Errorf("receipt %q: got %v, want ErrForeign", receipt, err)
			}
		}
		must(t, one.Delete(m.Receipt))
		for range 2 {
			if err := one.Requeue(m.Receipt, nil); !errors.Is(err, staking.ErrSettled) {
				t.Errorf("used receipt: got %v, want ErrSettled", err)
			}
		}
		must(t, one.Stop(t.Context()))
		if n := b.Depth(t, "one"); n != 1 {
			t.Errorf("depth: got %d, want 1", n)
		}
	})
}

func TestRequeueDelaysThenParks(t *testing.T) {
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		q := open(t, b.URL(), "active_staking_queue", staking.Config{MaxRetries: 3, Client: &reprise.Config{Dial: b.DialContext}})
		began := time.Now()
		must(t, q.Send(t.Context(), []byte("{}")))
		for n := range 4 {
			m := receive(t, q)
			if waited := time.Since(began).Round(time.Second); m.RetryAttempts != n || waited != time.Duration(n)*5*time.Second {
				t.Errorf("retry attempts: got %d after %s, want %d", m.RetryAttempts, waited, n)
			}
			must(t, q.Requeue(m.Receipt, fmt.Errorf("reason %d", n+1)))
		}
		synctest.Wait()
		parked := b.Messages(t, "active_staking_queue_failed")
		if len(parked) != 1 || len(parked[0].Errors) != 4 && parked[0].Headers["x-processing-attempts"] != int32(4) {
			t.Errorf("parked messages: got %+v, want one with 4 attempts", parked)
		}
	})
}

func TestStopRequeuesUnsettledMessages(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		name := testkit.Name(t, "staking")
		q := open(t, b.URL, name, staking.Config{Design: long("quorum")})
		o := newOriginal(t, b.URL, name, "quorum", time.Second)
		byBody := map[string]staking.Received{}
		for _, body := range []string{"deleted", "requeued", "unsettled", "not received"} {
			o.send(body)
			if body != "not received" {
				m := receive(t, q)
				byBody[string(m.Body)] = m
			}
		}
		must(t, q.Delete(byBody["deleted"].Receipt))
		must(t, q.Requeue(byBody["requeued"].Receipt, nil))
		must(t, q.Stop(t.Context()))

		left := map[string]bool{}
		for range 2 {
			m := o.receive()
			left[m.body] = true
			if m.attempts != 0 {
				t.Errorf("%s: got %d attempts, want 0", m.body, m.attempts)
			}
		}
		if !left["unsettled"] || !left["not received"] || o.depth(name) != 0 || o.depth(name+"_delay") != 1 {
			t.Errorf("got %v and %d more messages in the queue, %d in the delay queue, want both messages, 0 and 1",
				left, o.depth(name), o.depth(name+"_delay"))
		}
		for what, err := range map[string]error{"delete": q.Delete(byBody["unsettled"].Receipt), "send": q.Send(t.Context(), nil), "ping": q.Ping(t.Context())} {
			if !errors.Is(err, staking.ErrStopped) && !errors.Is(err, reprise.ErrClosed) {
				t.Errorf("%s after Stop: got %v, want ErrStopped or ErrClosed", what, err)
			}
		}
		if _, err := q.Receive(t.Context()); !errors.Is(err, staking.ErrStopped) {
			t.Errorf("receive after Stop: got %v, want ErrStopped", err)
		}
	})
}

func TestPingFailsWithoutConnection(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		name := testkit.Name(t, "staking")
		proxy := testkit.NewProxy(t, b.URL)
		q := open(t, proxy.URL(), name, staking.Config{})
		o := newOriginal(t, b.URL, name, "quorum", time.Second)
		ping := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			return q.Ping(ctx)
		}
		must(t, ping())
		o.send("first")
		receive(t, q)
		must(t, ping())
		proxy.Refuse()
		proxy.Cut()
		testkit.Eventually(t, within, func() bool { return ping() != nil })
		proxy.Resume()
		testkit.Eventually(t, within, ping)
		must(t, q.Delete(receive(t, q).Receipt))
		must(t, q.Send(t.Context(), []byte("second")))
		if m := receive(t, q); string(m.Body) != "second" || m.RetryAttempts != 0 {
			t.Errorf("received message: got %q after %d retries, want \"second\" after 0", m.Body, m.RetryAttempts)
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if err := q.Ping(canceled); err == nil {
			t.Error("Ping with a canceled context returned no error")
		}
	})
}

// If a queue is deleted, the Queue declares it again and continues, and the receipt of a deleted message has no effect.
func TestReceiveContinuesAfterQueueDeletion(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		name := testkit.Name(t, "staking")
		q := open(t, b.URL, name, staking.Config{})
		o := newOriginal(t, b.URL, name, "quorum", time.Second)
		o.send("first")
		m := receive(t, q)
		_, err := o.ch.QueueDelete(name, false, false, false)
		must(t, err)
		testkit.Eventually(t, within, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			return q.Send(ctx, []byte("second"))
		})
		if m := receive(t, q); string(m.Body) != "second" {
			t.Errorf("received message: got %q, want \"second\"", m.Body)
		}
		if err := q.Delete(m.Receipt); err != nil && !errors.Is(err, staking.ErrStale) { // receipt of the first message
			t.Error(err)
		}
	})
}

// A connection failure during Requeue does not lose the message, because the original remains in the queue until the
// broker has confirmed the copy.
func TestRequeueKeepsMessagesDespiteFaults(t *testing.T) {
	for name, fault := range map[string]func(b *reprisetest.Broker){
		"publish lost":   func(b *reprisetest.Broker) { b.LosePublishes(1) },
		"confirm lost":   func(b *reprisetest.Broker) { b.LoseConfirms(1) },
		"ack lost":       func(b *reprisetest.Broker) { b.LoseAcks(1) },
		"publish nacked": func(b *reprisetest.Broker) { b.Nack(1) },
		"blocked": func(b *reprisetest.Broker) {
			b.Block()
			time.AfterFunc(time.Minute, b.Unblock)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
				const n = 5
				q := open(t, b.URL(), "active_staking_queue", staking.Config{Client: &reprise.Config{Dial: b.DialContext, Heartbeat: time.Hour}})
				for i := range n {
					must(t, q.Send(t.Context(), fmt.Append(nil, i)))
				}
				var held []staking.Received
				for range n {
					held = append(held, receive(t, q))
				}
				fault(b)
				for _, m := range held {
					must(t, q.Requeue(m.Receipt, nil))
				}
				done := map[string]bool{}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				for len(done) < n {
					m, err := q.Receive(ctx)
					if err != nil {
						t.Fatalf("after %d of %d messages: %v", len(done), n, err)
					}
					if m.RetryAttempts > 0 {
						done[string(m.Body)] = true
						must(t, q.Delete(m.Receipt))
					} else {
						must(t, q.Requeue(m.Receipt, nil)) // the broker has redelivered the original
					}
				}
			})
		})
	}
}

func TestQueueSupportsConcurrentReceivers(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		const n = 200
		name := testkit.Name(t, "staking")
		q := open(t, b.URL, name, staking.Config{Design: short("quorum"), Unsettled: 20})
		o := newOriginal(t, b.URL, name, "quorum", time.Second)
		for i := range n {
			o.send(fmt.Sprint(i))
		}
		var mu sync.Mutex
		done := map[string]int{}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for {
					m, err := q.Receive(ctx)
					if err != nil {
						return
					}
					if m.RetryAttempts == 0 && len(m.Body)%2 == 0 {
						err = q.Requeue(m.Receipt, nil)
					} else {
						err = q.Delete(m.Receipt)
						mu.Lock()
						if done[string(m.Body)]++; len(done) == n {
							cancel()
						}
						mu.Unlock()
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if len(done) != n {
			t.Errorf("processed messages: got %d, want %d", len(done), n)
		}
		for body, times := range done {
			if times != 1 {
				t.Errorf("processing of message %s: got %d times, want 1", body, times)
			}
		}
	})
}

func TestOpenRejectsInvalidConfig(t *testing.T) {
	for _, tc := range []struct {
		config staking.Config
		want   string
	}{
		{staking.Config{MaxRetries: -1}, "must not be negative: got -1 (0 means 10)"},
		{staking.Config{Unsettled: -1}, "must be 1 to 65535: got"},
		{staking.Config{Unsettled: 70_000}, "must be 1 to 65535: got"},
		{staking.Config{Design: staking.Design{QueueType: "stream"}}, `must be "quorum" or "classic"`},
		{staking.Config{Client: &reprise.Config{Heartbeat: 1}}, "must be at least 1s"},
	} {
		if _, err := staking.Open(t.Context(), "amqp://nowhere.invalid", "q", &tc.config); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: got %v, want %q", tc.config, err, tc.want)
		}
	}
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		client := &reprise.Config{Dial: b.DialContext}
		open(t, b.URL(), "q", staking.Config{Client: client})
		_, err := staking.Open(t.Context(), b.URL(), "q", &staking.Config{Client: client, Design: staking.Design{QueueType: "classic"}})
		if _, ok := errors.AsType[*reprise.DeclareError](err); !ok {
			t.Errorf("queue of another type: got %v, want a DeclareError", err)
		}
		if _, err := staking.Open(t.Context(), b.URL(), "", &staking.Config{Client: client}); err == nil {
			t.Error("Open without a name returned no error")
		}
	})
}
