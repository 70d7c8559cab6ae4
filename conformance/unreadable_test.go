package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/ingest"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// block returns an encoded value of a type whose content has a length.
func block(kind byte, content []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(content))), content...)
}

// nested returns an encoded value that nests n deep.
func nested(n int, kinds string) []byte {
	value := []byte{'V'}
	for i := range n {
		kind := kinds[i%len(kinds)]
		if kind == 'F' {
			value = append([]byte{1, 'k'}, value...)
		}
		value = block(kind, value)
	}
	return value
}

func entry(name string, value []byte) []byte {
	return append(append([]byte{byte(len(name))}, name...), value...)
}

func manyEntries(n int) (table [][]byte) {
	for i := range n {
		table = append(table, entry(fmt.Sprintf("h%05d", i), []byte{'t', 1}))
	}
	return table
}

func wide(kind byte, entries [][]byte) []byte { return block(kind, bytes.Join(entries, nil)) }

// unreadable contains encoded headers that the AMQP client of Go cannot decode.
var unreadable = map[string][][]byte{
	"deep table":          {entry("deep", nested(40, "F"))},
	"deep array":          {entry("deep", nested(33, "A"))},
	"deep mix":            {entry("deep", nested(500, "FA"))},
	"many headers":        manyEntries(9000),
	"many in a table":     {entry("wide", wide('F', manyEntries(9000)))},
	"many in an array":    {entry("wide", block('A', bytes.Repeat([]byte{'V'}, 8193)))},
	"mix":                 append(manyEntries(8500), entry("a", nested(40, "F")), entry("b", nested(40, "A"))),
	"name of the packing": {entry(reprise.HeaderUnreadable, block('S', []byte("forged")))},
}

func encoded(id string, headers ...[]byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(amqpwire.PropHeaders|amqpwire.PropDeliveryMode|amqpwire.PropPriority|amqpwire.PropMessageID))
	b = append(b, block(0, bytes.Join(headers, nil))[1:]...)
	b = append(b, 2, 0) // persistent, priority 0
	return append(append(b, byte(len(id))), id...)
}

// disconnections counts lost connections.
type disconnections struct{ atomic.Int32 }

func (d *disconnections) Observe(e reprise.Event) {
	if e.Kind == reprise.EventDisconnected && !errors.Is(e.Err, reprise.ErrClosed) {
		d.Add(1)
	}
}

// observed returns a client that logs to the output of the test, and its lost connections.
func observed(t *testing.T, b testkit.Target) (*reprise.Client, *disconnections) {
	t.Helper()
	lost := &disconnections{}
	client, err := reprise.Dial(t.Context(), b.URL, &reprise.Config{Observer: lost, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	return client, lost
}

// A message that the AMQP client cannot decode does not close the connection. The worker parks it with its headers, and handles
// the other messages. Peek, archive, replay and redrive work with it, and preserve its headers.
func TestUnreadableHeaders(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := dialRaw(t, b).open(100, 0)
		work, out := testkit.Name(t, "unreadable"), testkit.Name(t, "unreadable-out")
		client, lost := observed(t, b)
		ctx := t.Context()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		failedQueue := topology.FailedQueue(work)
		must(client.Declare(ctx, topology.Buckets{}.Topology(work)))
		must(client.Declare(ctx, topology.Topology{Queues: []topology.Queue{{Name: out}}}))
		t.Cleanup(func() {
			for _, queue := range []string{work, failedQueue, out} {
				r.send(1, &amqpwire.QueueDelete{Queue: queue})
				expect(r, &amqpwire.QueueDeleteOk{})
			}
		})
		for kind, headers := range unreadable {
			r.publishEncoded(work, encoded("before "+kind, entry("h", []byte{'L', 0, 0, 0, 0, 0, 0, 0, 1})))
			r.publishEncoded(work, encoded(kind, headers...))
			r.publishEncoded(work, encoded("after "+kind))
		}

		var mu sync.Mutex
		handled := map[string]bool{}
		worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
			Queue: work, Prefetch: 2, Concurrency: 1,
			Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				handled[m.MessageID] = true
				if strings.HasPrefix(m.MessageID, "before") && m.Headers["h"] != int64(1) {
					return errors.New("header of type L is missing")
				}
				return nil
			}),
		})
		must(err)
		stopWorker := runUntilEnd(t, worker.Run)
		parked := func() {
			t.Helper()
			testkit.Eventually(t, timeout, func() error {
				if n, err := client.Depth(ctx, failedQueue); n != len(unreadable) {
					return fmt.Errorf("%d messages are parked: %w", n, err)
				}
				mu.Lock()
				defer mu.Unlock()
				if len(handled) != 2*len(unreadable) {
					return fmt.Errorf("%d messages were handled", len(handled))
				}
				return nil
			})
		}
		parked()
		for kind := range unreadable {
			if handled[kind] {
				t.Errorf("%s: the handler received the message", kind)
			}
		}

		seen := 0
		must(client.Peek(ctx, failedQueue, 100, func(m *reprise.Delivery) {
			if _, packed := m.Headers[reprise.HeaderUnreadable].([]byte); packed && strings.Contains(fmt.Sprint(m.Headers["x-reprise-errors"]), "readable") {
				seen++
			}
		}))
		if seen != len(unreadable) {
			t.Errorf("Peek: got %d messages with a reason, want %d", seen, len(unreadable))
		}

		archive := openArchive(t)
		ingest, err := ingest.New(client, archive, ingest.Config{Queues: []string{failedQueue}})
		must(err)
		stopIngest := runUntilEnd(t, ingest.Run)
		testkit.Eventually(t, timeout, func() error {
			n, err := archive.Count(ctx, failed.Filter{})
			if err == nil && int(n.N) != len(unreadable) {
				err = fmt.Errorf("%d messages are archived", n.N)
			}
			return err
		})
		stopIngest()
		replayer := replay.New(client, archive, replay.Config{})
		runUntilEnd(t, replayer.Run)
		_, err = archive.BeginReplay(ctx, failed.Plan{Filter: failed.Filter{All: true}}, "cli:test")
		must(err)
		replayer.Wake()
		parked()
		stopWorker()

		_, sent, err := replay.Redrive(ctx, client, replay.RedriveConfig{From: failedQueue, To: &failed.Target{RoutingKey: out}})
		if err != nil || sent != len(unreadable) {
			t.Fatalf("redrive: got %d sent, %v; want %d", sent, err, len(unreadable))
		}
		for range unreadable {
			got := r.getEncoded(out)
			size := binary.BigEndian.Uint32(got[2:]) // flags, headers, delivery mode, priority, message ID
			kind := string(got[2+4+size+2+1:])
			for _, header := range unreadable[kind] { // RabbitMQ can change the order
				if !bytes.Contains(got, header) {
					t.Errorf("%s: header %.20q is lost", kind, header)
				}
			}
			if priority := got[2+4+size+1]; unreadable[kind] == nil || priority != 0 {
				t.Errorf("got message %q with priority %d", kind, priority)
			}
		}
		if n := lost.Load(); n > 0 {
			t.Errorf("connections were lost %d times", n)
		}
	})
}

// oversize declares a queue with messages whose content headers exceed the maximum size of a frame, because RabbitMQ has added
// headers, and returns a client, the queue, and the lost connections.
func oversize(t *testing.T, b testkit.Target, messages int) (*reprise.Client, string, *disconnections) {
	r := dialRaw(t, b).open(100, 0)
	source, queue := testkit.Name(t, "source"), testkit.Name(t, "oversize")
	client, lost := observed(t, b)
	queues := topology.Buckets{}.Topology(queue).Merge(topology.Topology{Queues: []topology.Queue{{Name: source, Args: topology.Table{
		"x-message-ttl": int64(1), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue,
	}}}})
	if err := client.Declare(t.Context(), queues); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r := dialRaw(t, b).open(100, 0)
		for _, queue := range []string{source, queue, topology.FailedQueue(queue)} {
			r.send(1, &amqpwire.QueueDelete{Queue: queue})
			expect(r, &amqpwire.QueueDeleteOk{})
		}
	})
	for range messages {
		r.publishEncoded(source, encoded("large", large))
	}
	testkit.Eventually(t, timeout, func() bool {
		n, err := client.Depth(t.Context(), queue)
		return err == nil && n == messages
	})
	return client, queue, lost
}

var large = entry("large", block('S', bytes.Repeat([]byte("x"), 130_950)))

// A worker parks a message whose headers exceed a frame, and handles the other messages.
func TestWorkerParksOversizeHeaders(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		client, work, lost := oversize(t, b, 1)
		if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: work, MessageID: "after"}); err != nil {
			t.Fatal(err)
		}
		handled := make(chan string, 10)
		worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
			Queue: work, Prefetch: 1, Concurrency: 1,
			Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
				handled <- m.MessageID
				return nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		runUntilEnd(t, worker.Run)
		if got := <-handled; got != "after" {
			t.Errorf("got message %q, want the message after the unreadable message", got)
		}
		testkit.Eventually(t, timeout, func() error {
			var parked string
			err := client.Peek(t.Context(), topology.FailedQueue(work), 1, func(m *reprise.Delivery) { parked, _ = m.Headers["large"].(string) })
			if err == nil && len(parked) != 130_950 {
				err = fmt.Errorf("the parked message has %d bytes in its header", len(parked))
			}
			return err
		})
		if n := lost.Load(); n > 0 {
			t.Errorf("connections were lost %d times", n)
		}
	})
}

// The archive stores messages whose headers exceed a frame with these headers, so that any number of such messages does not
// stop it.
func TestArchiveStoresOversizeHeaders(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		const messages = 40 // more than the archive receives at a time
		client, foreign, lost := oversize(t, b, messages)
		if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: foreign, MessageID: "after"}); err != nil {
			t.Fatal(err)
		}
		archive := openArchive(t)
		ingest, err := ingest.New(client, archive, ingest.Config{Queues: []string{foreign}})
		if err != nil {
			t.Fatal(err)
		}
		stop := runUntilEnd(t, ingest.Run)
		testkit.Eventually(t, timeout, func() error {
			n, err := archive.Count(t.Context(), failed.Filter{})
			if err == nil && n.N != messages+1 {
				err = fmt.Errorf("%d messages are archived", n.N)
			}
			return err
		})
		stop()
		all, _, err := archive.List(t.Context(), failed.Filter{}, store.Page{Size: messages + 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			m, err := archive.Get(t.Context(), s.ID)
			if err != nil {
				t.Fatal(err)
			}
			headers, _ := m.Headers[reprise.HeaderUnreadable].([]byte)
			if m.Properties.MessageID == "large" && (!bytes.Contains(headers, large) || m.Headers["x-death"] == nil || string(m.Body) != "b") {
				t.Errorf("got body %q, %d bytes of headers, and x-death %v; want the whole message", m.Body, len(headers), m.Headers["x-death"])
			}
		}
		if n := lost.Load(); n > 0 {
			t.Errorf("connections were lost %d times", n)
		}
	})
}

// A header CC that the client cannot decode together with the other headers does not lead copies to other queues.
func TestUnreadableHeadersWithCC(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := dialRaw(t, b).open(100, 0)
		client, work, _ := oversize(t, b, 0)
		other := testkit.Name(t, "other")
		if err := client.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: other}}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			r.send(1, &amqpwire.QueueDelete{Queue: other})
			expect(r, &amqpwire.QueueDeleteOk{})
		})
		r.publishEncoded(work, encoded("cc", append(manyEntries(9000), entry("CC", block('A', block('S', []byte(other)))))...))
		worker, err := reprise.NewWorker(client, reprise.WorkerConfig{Queue: work, Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return nil })})
		if err != nil {
			t.Fatal(err)
		}
		runUntilEnd(t, worker.Run)
		testkit.Eventually(t, timeout, func() bool {
			n, err := client.Depth(t.Context(), topology.FailedQueue(work))
			return err == nil && n == 1
		})
		if n, err := client.Depth(t.Context(), other); err != nil || n != 1 {
			t.Errorf("the other queue has %d messages (%v), want only the original", n, err)
		}
	})
}
