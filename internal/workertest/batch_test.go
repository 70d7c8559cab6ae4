package workertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// queueFor declares a queue that is deleted when the test ends.
func queueFor(t *testing.T, r *raw, c client, args topology.Table) string {
	t.Helper()
	queue := testkit.Name(t, "q")
	r.deleteQueues(queue)
	if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: queue, Args: args}}}); err != nil {
		t.Fatal(err)
	}
	return queue
}

// numbered returns a batch of n messages. The body and the ID of a message are its index.
func numbered(n int, to func(i int) (exchange, key string)) []*reprise.Message {
	batch := make([]*reprise.Message, n)
	for i := range batch {
		exchange, key := to(i)
		batch[i] = &reprise.Message{Exchange: exchange, RoutingKey: key, MessageID: fmt.Sprint(i), Body: fmt.Append(nil, i)}
	}
	return batch
}

// drained removes all messages from a queue and returns their IDs in order.
func (r *raw) drained(queue string) (ids []string) {
	r.t.Helper()
	for {
		d, ok, err := r.Get(queue, true)
		if err != nil {
			r.t.Fatal(err)
		}
		if !ok {
			return ids
		}
		ids = append(ids, d.MessageId)
	}
}

func TestBatchArrivesInOrder(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		c := dial(t, b.URL)
		queue := queueFor(t, r, c, nil)
		if err := c.PublishBatch(t.Context(), nil); err != nil {
			t.Errorf("empty batch: %v", err)
		}
		const n = 3000 // more than the maximum in flight
		if err := c.PublishBatch(t.Context(), numbered(n, func(int) (string, string) { return "", queue })); err != nil {
			t.Fatal(err)
		}
		ids := r.drained(queue)
		if len(ids) != n {
			t.Fatalf("got %d messages, want %d", len(ids), n)
		}
		for i, id := range ids {
			if id != fmt.Sprint(i) {
				t.Fatalf("message at index %[2]d: got %[1]s, want %[2]d", id, i)
			}
		}
	})
}

// Each kind of failure occurs between valid messages. The valid messages arrive once and in order, and each message
// gets a result.
func TestBatchFailuresDoNotAffectOtherMessages(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		c := dial(t, b.URL)
		queue := queueFor(t, r, c, nil)
		full := queueFor(t, r, c, topology.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: full}); err != nil {
			t.Fatal(err)
		}
		fanout := testkit.Name(t, "x")
		r.deleteExchanges(fanout)
		if err := c.Declare(t.Context(), topology.Topology{
			Exchanges: []topology.Exchange{{Name: fanout, Kind: topology.Fanout}},
			Bindings:  []topology.Binding{{Exchange: fanout, Queue: queue}},
		}); err != nil {
			t.Fatal(err)
		}
		var fine []string
		batch := numbered(200, func(i int) (exchange, key string) {
			switch {
			case i%20 == 3:
				return "no-such-exchange", "k"
			case i%20 == 7:
				return "", "no-such-queue"
			case i%20 == 9:
				return "", full
			case i%2 == 0:
				return fanout, "k"
			}
			return "", queue
		})
		for i, m := range batch {
			switch i % 20 {
			case 3, 7, 9:
			case 11:
				m.UserID = "somebody-else"
			case 13:
				m.Headers = map[string]any{"impossible": struct{}{}}
			case 15:
				batch[i] = nil
			default:
				fine = append(fine, m.MessageID)
			}
		}
		err := c.PublishBatch(t.Context(), batch)
		failed, ok := errors.AsType[*reprise.BatchError](err)
		if !ok || failed.Messages != len(batch) {
			t.Fatalf("got %v, want BatchError", err)
		}
		for _, f := range failed.Failed {
			_, unroutable := errors.AsType[*reprise.UnroutableError](f)
			_, refused := errors.AsType[*reprise.RefusedError](f)
			if m := batch[f.Index]; m != nil && m.MessageID != f.MessageID {
				t.Errorf("message %d: got message ID %s, want %s", f.Index, f.MessageID, m.MessageID)
			}
			var ok bool
			switch f.Index % 20 {
			case 3, 7:
				ok = unroutable
			case 9:
				ok = errors.Is(f, reprise.ErrNacked)
			case 11:
				ok = refused
			case 13, 15:
				ok = errors.Is(f, reprise.ErrInvalidMessage)
			}
			if !ok {
				t.Errorf("message %d: got %v, want the error of its kind", f.Index, f.Err)
			}
		}
		if len(failed.Failed) != 6*len(batch)/20 {
			for _, f := range failed.Failed {
				t.Logf("%d %v", f.Index, f.Err)
			}
			t.Errorf("%d messages failed", len(failed.Failed))
		}
		if ids := r.drained(queue); strings.Join(ids, " ") != strings.Join(fine, " ") {
			t.Errorf("arrived: %v\nwant: %v", ids, fine)
		}
	})
}

// The test cuts the connection at several points. Each message that is reported as stored is in the queue once. The result
// of every other message is ErrUnconfirmed, and the queue contains the message at most once.
func TestBatchReportsResultsAfterLostConnection(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for _, cut := range []struct {
			direction testkit.Direction
			frame     int
		}{{testkit.ToServer, 1}, {testkit.ToServer, 100}, {testkit.ToServer, 2000}, {testkit.ToClient, 1}, {testkit.ToClient, 2}} {
			t.Run(fmt.Sprintf("%v %d", cut.direction, cut.frame), func(t *testing.T) {
				r := newRaw(t, b.URL)
				proxy := testkit.NewProxy(t, b.URL)
				c := dial(t, proxy.URL())
				queue := queueFor(t, r, c, nil)
				if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: queue}); err != nil { // opens the channel
					t.Fatal(err)
				}
				r.take(queue)
				const n = 2000
				lost := proxy.CutBeforeFrame(cut.direction, cut.frame)
				err := c.PublishBatch(t.Context(), numbered(n, func(int) (string, string) { return "", queue }))
				<-lost
				unknown := map[string]bool{}
				if failed, ok := errors.AsType[*reprise.BatchError](err); ok {
					for _, f := range failed.Failed {
						if !errors.Is(f, reprise.ErrUnconfirmed) {
							t.Errorf("message %d: got %v, want ErrUnconfirmed", f.Index, f.Err)
						}
						unknown[f.MessageID] = true
					}
				} else if err != nil {
					t.Fatal(err)
				}
				if len(unknown) > 1024 {
					t.Errorf("got %d unconfirmed messages, want at most 1024", len(unknown))
				}
				// The broker may store the data from the cut connection at the same time as the data from the next
				// connection, in any order.
				stored := map[string]int{}
				for _, id := range r.drained(queue) {
					stored[id]++
				}
				for i := range n {
					if id := fmt.Sprint(i); stored[id] > 1 || stored[id] == 0 && !unknown[id] {
						t.Errorf("stored copies of message %s: got %d, want at most 1, and 0 only if the result is unknown", id, stored[id])
					}
				}
			})
		}
	})
}

// If ctx is canceled, the error for each message reports whether the message was sent.
func TestCanceledBatchReportsSentMessages(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		const bound, n = 1024, 1500
		r := newRaw(t, b.URL)
		var reading sync.RWMutex
		c := dial(t, b.URL, dialBlockable(&reading, publishes))
		queue := queueFor(t, r, c, nil)
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: queue}); err != nil {
			t.Fatal(err)
		}
		r.take(queue)
		reading.Lock()
		defer reading.Unlock()
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		published := make(chan error, 1)
		go func() {
			published <- c.PublishBatch(ctx, numbered(n, func(int) (string, string) { return "", queue }))
		}()
		testkit.Eventually(t, timeout, func() bool { return r.depth(queue) == bound })
		cancel(enough)
		failed, ok := errors.AsType[*reprise.BatchError](<-published)
		if !ok || len(failed.Failed) != n {
			t.Fatalf("got %v, want BatchError for all messages", failed)
		}
		for i, f := range failed.Failed {
			sent := i < bound
			if !errors.Is(f, enough) || errors.Is(f, reprise.ErrUnconfirmed) != sent || strings.Contains(f.Error(), "not sent") == sent {
				t.Fatalf("message %d: got %v, want the cause of the cancellation, and ErrUnconfirmed %t", i, f, sent)
			}
		}
		if depth := r.depth(queue); depth != bound {
			t.Errorf("stored messages: got %d, want %d, because these were sent", depth, bound)
		}
	})
}

// After a ConfirmTimeout without progress, the batch fails as a whole. The timeout applies once, not once per message.
func TestBatchWithoutConnectionTimesOutOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, err := broker.New(broker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := reprise.Dial(t.Context(), "amqp://guest:guest@memory", &reprise.Config{Dial: b.DialContext})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(context.Background()) }()
		if err := b.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		began := time.Now()
		err = c.PublishBatch(t.Context(), numbered(100, func(int) (string, string) { return "", "q" }))
		if took := time.Since(began); took != reprise.DefaultConfirmTimeout {
			t.Errorf("PublishBatch returned after %v, want DefaultConfirmTimeout", took)
		}
		failed, ok := errors.AsType[*reprise.BatchError](err)
		if !ok || len(failed.Failed) != 100 || !errors.Is(err, reprise.ErrDisconnected) || errors.Is(err, reprise.ErrUnconfirmed) {
			t.Fatalf("got %v, want ErrDisconnected for all messages", err)
		}
		if text := err.Error(); strings.Count(text, "not sent within 30s") != 3 || !strings.Contains(text, "; and 97 more") {
			t.Errorf("unexpected error text: %s", text)
		}
	})
}

// The first message that is too large closes a channel, but does not affect other messages. Later messages that are too
// large do not close a channel.
func TestTooLargeMessagesCostOneChannel(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		limit := 16 << 20
		if b.Version == "3.10" {
			limit = 128 << 20
		}
		r := newRaw(t, b.URL)
		c := dial(t, b.URL)
		queue := queueFor(t, r, c, nil)
		huge := make([]byte, limit+1)
		var fine, larger []string
		batch := numbered(300, func(int) (string, string) { return "", queue })
		for i, m := range batch {
			if i == 100 || i == 150 {
				m.Body = huge
				continue
			}
			if i%50 == 20 {
				m.Body = huge[:(i+1)<<10] // larger than all earlier messages
				larger = append(larger, m.MessageID)
			}
			fine = append(fine, m.MessageID)
		}
		err := c.PublishBatch(t.Context(), batch)
		failed, ok := errors.AsType[*reprise.BatchError](err)
		if !ok || len(failed.Failed) != 2 {
			t.Fatalf("got %v, want two failures", err)
		}
		for i, f := range failed.Failed {
			e, ok := errors.AsType[*reprise.TooLargeError](f)
			if !ok || f.Index != 100+50*i || e.Size != limit+1 || e.Limit != limit || errors.Is(f, reprise.ErrUnconfirmed) {
				t.Errorf("message %d: got %v, want a TooLargeError with size %d and limit %d", f.Index, f.Err, limit+1, limit)
			}
		}
		if n := c.log.count("channel closed"); n != 1 {
			t.Errorf("channel was closed %d times, want 1", n)
		}
		// A broker that is busy for more than 10 s with a message of a new size may get the following messages first.
		ids := r.drained(queue)
		small := func(ids []string) string {
			return strings.Join(slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return slices.Contains(larger, id) }), " ")
		}
		if small(ids) != small(fine) {
			t.Errorf("arrived messages: got %v, want the order %v", ids, fine)
		}
		slices.Sort(ids)
		slices.Sort(fine)
		if !slices.Equal(ids, fine) {
			t.Errorf("arrived messages: got %v, want %v", ids, fine)
		}
		if n := c.log.count("connection lost"); n != 0 {
			t.Errorf("connection was lost %d times, want 0", n)
		}
	})
}

// Repeated errors of one publisher delay other messages only briefly.
func TestPublishErrorsDoNotAffectOtherMessages(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		c := dial(t, b.URL)
		queue := queueFor(t, r, c, nil)
		const n = 100
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				for range n / 4 {
					m := &reprise.Message{RoutingKey: queue, MessageID: fmt.Sprint(i)}
					if err := c.Publish(t.Context(), m); err != nil {
						t.Errorf("cannot publish valid message: %v", err)
					}
				}
			})
			all.Go(func() {
				for range 10 {
					err := c.Publish(t.Context(), &reprise.Message{Exchange: "no-such-exchange"})
					if _, ok := errors.AsType[*reprise.UnroutableError](err); !ok {
						t.Errorf("got %v, want UnroutableError", err)
					}
				}
			})
		}
		all.Wait()
		if depth := r.depth(queue); depth != n {
			t.Errorf("%d messages were stored, want %d", depth, n)
		}
	})
}

// A queue that does not confirm delays other messages only briefly, whether they are in the same batch or not.
func TestUnconfirmingQueueDoesNotBlockBatch(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]int{"known": 1, "found out on the way": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const each = 1500 // more than the maximum in flight
				c, m := dialEmbeddedWithGate(t)
				names := declareQueues(t, c, 4)
				stuck := names[:2]
				for _, queue := range stuck {
					m.mute(queue)
					for range before {
						_ = c.Publish(t.Context(), &reprise.Message{RoutingKey: queue})
					}
				}
				batch := numbered(each*len(names), func(i int) (string, string) { return "", names[i%len(names)] })
				began := time.Now()
				var e *reprise.BatchError
				if !errors.As(c.PublishBatch(t.Context(), batch), &e) {
					t.Fatal("batch was confirmed completely")
				}
				if took := time.Since(began); took > 4*reprise.DefaultConfirmTimeout {
					t.Errorf("duration of PublishBatch: got %v, want at most %v", took, 4*reprise.DefaultConfirmTimeout)
				}
				unsent := map[string]int{}
				for _, failed := range e.Failed {
					queue := batch[failed.Index].RoutingKey
					switch {
					case queue != stuck[0] && queue != stuck[1]:
						t.Fatalf("message %d for queue %s: %v", failed.Index, queue, failed.Err)
					case errors.Is(failed.Err, reprise.ErrStalled):
						unsent[queue]++
					case !errors.Is(failed.Err, reprise.ErrUnconfirmed):
						t.Errorf("message %d for queue %s: got %v, want ErrUnconfirmed", failed.Index, queue, failed.Err)
					}
				}
				if len(e.Failed) != each*len(stuck) {
					t.Errorf("failed messages: got %d, want %d", len(e.Failed), each*len(stuck))
				}
				for _, queue := range names {
					want := each - unsent[queue]
					if slices.Contains(stuck, queue) {
						want += before
					}
					if n, err := c.Depth(t.Context(), queue); err != nil || n != want {
						t.Errorf("depth of queue %s: got %d, %v; want %d, because %d messages were not sent", queue, n, err, want, unsent[queue])
					}
				}
				m.release(t)
				for _, queue := range stuck {
					if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: queue}); err != nil {
						t.Errorf("cannot publish to queue %s after its recovery: %v", queue, err)
					}
				}
			})
		})
	}
}
