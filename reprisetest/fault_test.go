package reprisetest_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/reprisetest"
	"github.com/reprisemq/reprise/topology"
)

// The test checks the results of a client that publishes a message and, after an error, publishes it
// again.
func TestPublishFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		arm        func(b *reprisetest.Broker) *reprisetest.Fault
		want       error // result of the first publish
		depth      int   // number of messages in the queue after the first publish
		finalDepth int
	}{
		"lost publish":            {func(b *reprisetest.Broker) *reprisetest.Fault { return b.LosePublishes(1) }, reprise.ErrUnconfirmed, 0, 1},
		"lost confirm":            {func(b *reprisetest.Broker) *reprisetest.Fault { return b.LoseConfirms(1) }, reprise.ErrUnconfirmed, 1, 2},
		"nacked":                  {func(b *reprisetest.Broker) *reprisetest.Fault { return b.Nack(1) }, reprise.ErrNacked, 0, 1},
		"duplicated":              {func(b *reprisetest.Broker) *reprisetest.Fault { return b.Duplicate(1) }, nil, 2, 2},
		"healed before the fault": {func(b *reprisetest.Broker) *reprisetest.Fault { defer b.Heal(); return b.LosePublishes(1) }, nil, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
				b.Declare(t, queues(topology.Queue{Name: "orders"}))
				client := b.Client(t, nil)
				fault := c.arm(b)
				m := order("1")
				m.Headers = map[string]any{"n": int64(1)}
				err := client.Publish(t.Context(), m)
				if !errors.Is(err, c.want) {
					t.Errorf("first publish: got %v, want %v", err, c.want)
				}
				if n := b.Depth(t, "orders"); n != c.depth {
					t.Errorf("queue has %d messages, want %d", n, c.depth)
				}
				if err != nil {
					if err := client.Publish(t.Context(), m); err != nil {
						t.Errorf("second publish: %v", err)
					}
				}
				got := b.Messages(t, "orders")
				if len(got) != c.finalDepth {
					t.Errorf("queue has %d messages at the end, want %d", len(got), c.finalDepth)
				}
				for _, m := range got {
					if diff := cmp.Diff(got[0], m); diff != "" || m.MessageID != "1" {
						t.Errorf("duplicates differ (id %q):\n%s", m.MessageID, diff)
					}
				}
				if want := map[bool]int{true: 0, false: 1}[name == "healed before the fault"]; fault.Happened() != want {
					t.Errorf("occurrences of the fault: got %d, want %d", fault.Happened(), want)
				}
			})
		})
	}
}

// The test checks the deliveries that a handler receives if faults affect its worker.
func TestWorkerFaults(t *testing.T) {
	t.Parallel()
	type attempt struct {
		ID          string
		Attempt     int
		Redelivered bool
		At          time.Duration
	}
	const soon = 100 * time.Millisecond // maximum time for a worker to reconnect
	for name, c := range map[string]struct {
		arm    func(b *reprisetest.Broker)
		failed int // number of failed attempts
		want   []attempt
	}{
		"lost ack": {
			func(b *reprisetest.Broker) { b.LoseAcks(1) }, 0,
			[]attempt{{"1", 1, false, 0}, {"1", 1, true, soon}},
		},
		"lost ack after a copy": {
			func(b *reprisetest.Broker) { b.LoseAcks(1) }, 1,
			[]attempt{{"1", 1, false, 0}, {"1", 1, true, soon}, {"1", 2, false, time.Hour}, {"1", 2, true, time.Hour + soon}},
		},
		"lost confirm of a copy": {
			func(b *reprisetest.Broker) { b.LoseConfirms(1) }, 1,
			[]attempt{{"1", 1, false, 0}, {"1", 2, false, time.Hour}, {"1", 2, false, time.Hour + soon}},
		},
		"lost copy": {
			func(b *reprisetest.Broker) { b.LosePublishes(1) }, 1,
			[]attempt{{"1", 1, false, 0}, {"1", 2, false, time.Hour + soon}},
		},
		"nacked copies": {
			func(b *reprisetest.Broker) { b.Nack(3) }, 1,
			[]attempt{{"1", 1, false, 0}, {"1", 2, false, time.Hour + 7*soon}},
		},
		"duplicated copy": {
			func(b *reprisetest.Broker) { b.Duplicate(1) }, 1,
			[]attempt{{"1", 1, false, 0}, {"1", 2, false, time.Hour}, {"1", 2, false, time.Hour}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
				began := time.Now()
				w := b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: failing(c.failed), Policy: every(time.Hour, 5)})
				c.arm(b)
				b.Publish(t, order("1"))
				b.Drain(t)
				var got []attempt
				for _, a := range w.Attempts() {
					got = append(got, attempt{a.Delivery.MessageID, a.Delivery.Attempt, a.Delivery.Redelivered, a.Began.Sub(began)})
				}
				// A worker needs some time to reconnect, so times that differ by less than soon count as equal.
				later := cmp.Comparer(func(x, y time.Duration) bool { return x-y < soon && y-x < soon })
				if diff := cmp.Diff(c.want, got, later); diff != "" {
					t.Errorf("attempts: -want +got:\n%s", diff)
				}
			})
		})
	}
}

func TestCutCausesRedelivery(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		began := time.Now()
		w := b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: handler(func(*reprise.Delivery) error {
			time.Sleep(time.Minute)
			return nil
		})})
		b.Publish(t, order("1"))
		b.Advance(30 * time.Second)
		b.Refuse(10 * time.Minute)
		b.Cut()
		b.Publish(t, order("2")) // not affected by the fault
		b.Drain(t)
		got := w.Attempts()
		if len(got.Of("1")) != 2 || len(got.Of("2")) != 1 || !got.Of("1")[1].Delivery.Redelivered {
			t.Fatalf("got %d attempts of message 1 and %d of message 2, want 2 (the second redelivered) and 1",
				len(got.Of("1")), len(got.Of("2")))
		}
		if at := got.Of("1")[1].Began.Sub(began); at < 10*time.Minute+30*time.Second {
			t.Errorf("time until the redelivery: got %s, want at least 10m30s because of Refuse", at)
		}
	})
}

func TestBlockDelaysPublishers(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		b.Declare(t, queues(topology.Queue{Name: "orders"}))
		client := b.Client(t, &reprise.Config{ConfirmTimeout: time.Hour})
		b.Block()
		began := time.Now()
		later(t, 20*time.Minute, b.Unblock)
		if err := client.Publish(t.Context(), order("1")); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 20*time.Minute {
			t.Errorf("publish took %s, want 20m", took)
		}
	})
}

// A broker cannot nack a message that was published without confirms.
func TestNackRequiresConfirms(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		b.Declare(t, queues(topology.Queue{Name: "orders"}))
		conn, ch := raw(t, b)
		defer conn.Close()
		fault := b.Nack(1)
		if err := ch.Publish("", "orders", false, false, amqp.Publishing{}); err != nil {
			t.Fatal(err)
		}
		b.Advance(0)
		if n := b.Depth(t, "orders"); n != 1 || fault.Happened() != 0 {
			t.Errorf("got %d messages in the queue and %d occurrences of the fault, want 1 and 0", n, fault.Happened())
		}
	})
}

func TestHealRemovesFaults(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		b.Declare(t, queues(topology.Queue{Name: "orders"}))
		b.Block()
		b.Refuse(time.Hour)
		b.LosePublishes(1)
		b.Heal()
		began := time.Now()
		client := b.Client(t, nil)
		if err := client.Publish(t.Context(), order("1")); err != nil || time.Since(began) != 0 {
			t.Errorf("publish: got error %v after %s, want success after 0s", err, time.Since(began))
		}
	})
}

// A duplicate has the complete body, regardless of the size of the message.
func TestDuplicateCopiesCompleteBody(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		b.Declare(t, queues(topology.Queue{Name: "orders"}))
		client := b.Client(t, nil)
		for _, size := range []int{0, 1, 100_000, 1_000_000} {
			b.Duplicate(1)
			body := bytes.Repeat([]byte("x"), size)
			if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: "orders", Body: body}); err != nil {
				t.Fatal(err)
			}
			got := b.Messages(t, "orders")
			if len(got)%2 != 0 || !bytes.Equal(got[len(got)-1].Body, body) || !bytes.Equal(got[len(got)-2].Body, body) {
				t.Fatalf("body of %d bytes: got %d messages, want pairs with this body", size, len(got))
			}
		}
	})
}

func TestFaultAwait(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		w := b.Work(t, retrying(time.Hour))
		fault := b.LoseAcks(2) // the ack of the original after the copy, and the ack after the redelivery of the original
		later(t, time.Hour, func() { b.Publish(t, order("1")) })
		fault.Await(t)
		if n := len(w.Attempts()); n != 2 {
			t.Errorf("got %d attempts before both acks were lost, want 2", n)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		got := try(t, func(f *fake) {
			b := reprisetest.Config{Timeout: time.Hour}.New(f)
			b.Nack(2).Await(f)
		})
		if want := "reprisetest: timed out after 1h0m0s: got 0 publishes nacked, want 2"; got.String() != want {
			t.Errorf("got failure %q, want %q", got, want)
		}
	})
}

// Faults do not affect the client with which Broker.Publish publishes messages.
func TestFaultsDoNotAffectPublish(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		b.Declare(t, queues(topology.Queue{Name: "orders"}))
		b.Publish(t, order("0"))
		faults := []*reprisetest.Fault{b.LosePublishes(1), b.LoseConfirms(1), b.Nack(1), b.Duplicate(1)}
		b.Refuse(time.Hour)
		b.Cut()
		began := time.Now()
		b.Publish(t, order("1"))
		if took := time.Since(began); took != 0 {
			t.Errorf("publishes took %s, want 0", took)
		}
		for i, f := range faults {
			if f.Happened() > 0 {
				t.Errorf("occurrences of fault %d: got %d, want 0", i, f.Happened())
			}
		}
		if n := b.Depth(t, "orders"); n != 2 {
			t.Errorf("queue has %d messages, want 2", n)
		}
		if strings.Contains(names(b), "reprisetest") {
			t.Errorf("names must not contain internal queues: got %s", names(b))
		}
	})
}

func names(b *reprisetest.Broker) string {
	var all []string
	for _, q := range b.Queues() {
		all = append(all, q.Name)
	}
	return strings.Join(all, " ")
}
