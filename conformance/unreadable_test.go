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
	failures "github.com/reprisemq/reprise/internal/archive/failed"
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

// A message that the AMQP client cannot decode does not close the connection. The worker parks it with its headers, and handles
// the other messages. Peek, archive, replay and redrive work with it, and preserve its headers.
func TestUnreadableHeaders(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := dialRaw(t, b).open(100, 0)
		work, out := testkit.Name(t, "unreadable"), testkit.Name(t, "unreadable-out")
		var lost disconnections
		client, err := reprise.Dial(t.Context(), b.URL, &reprise.Config{Observer: &lost, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close(context.Background()) })
		ctx := t.Context()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		failed := topology.FailedQueue(work)
		must(client.Declare(ctx, topology.Buckets{}.Topology(work)))
		must(client.Declare(ctx, topology.Topology{Queues: []topology.Queue{{Name: out}}}))
		t.Cleanup(func() {
			for _, queue := range []string{work, failed, out} {
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
			Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Message) error {
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
				if n, err := client.Depth(ctx, failed); n != len(unreadable) {
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
		must(client.Peek(ctx, failed, 100, func(m *reprise.Message) {
			if _, packed := m.Headers[reprise.HeaderUnreadable].([]byte); packed && strings.Contains(fmt.Sprint(m.Headers["x-reprise-errors"]), "readable") {
				seen++
			}
		}))
		if seen != len(unreadable) {
			t.Errorf("Peek: got %d messages with a reason, want %d", seen, len(unreadable))
		}

		archive := openArchive(t)
		ingest, err := failures.NewIngest(client, archive, failures.IngestConfig{Queues: []string{failed}})
		must(err)
		stopIngest := runUntilEnd(t, ingest.Run)
		testkit.Eventually(t, timeout, func() error {
			n, err := archive.Count(ctx, failures.Filter{})
			if err == nil && int(n.N) != len(unreadable) {
				err = fmt.Errorf("%d messages are archived", n.N)
			}
			return err
		})
		stopIngest()
		replayer, err := failures.NewReplayer(client, archive, failures.ReplayerConfig{})
		must(err)
		runUntilEnd(t, replayer.Run)
		_, err = archive.BeginReplay(ctx, failures.Plan{Filter: failures.Filter{All: true}}, "cli:test")
		must(err)
		replayer.Wake()
		parked()
		stopWorker()

		_, sent, err := failures.Redrive(ctx, client, failures.RedriveConfig{From: failed, To: &failures.Target{RoutingKey: out}})
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

// RabbitMQ delivers content headers that exceed the maximum size of a frame, if it has added headers. The worker rejects such a
// message, so that the broker moves it, with its headers, to the failed queue. No program can publish a copy, so the archive
// leaves the message in the queue, and stores the others.
func TestOversizeHeaders(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := dialRaw(t, b).open(100, 0)
		source, work := testkit.Name(t, "source"), testkit.Name(t, "oversize")
		failed := topology.FailedQueue(work)
		var lost disconnections
		client, err := reprise.Dial(t.Context(), b.URL, &reprise.Config{Observer: &lost, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close(context.Background()) })
		ctx := t.Context()
		queues := topology.Buckets{}.Topology(work).Merge(topology.Topology{Queues: []topology.Queue{{Name: source, Args: topology.Table{
			"x-message-ttl": int64(1), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": work,
		}}}})
		if err := client.Declare(ctx, queues); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			for _, queue := range []string{source, work, failed} {
				r.send(1, &amqpwire.QueueDelete{Queue: queue})
				expect(r, &amqpwire.QueueDeleteOk{})
			}
		})
		waitForOne := func() {
			t.Helper()
			testkit.Eventually(t, timeout, func() bool {
				n, err := client.Depth(ctx, failed)
				return err == nil && n == 1
			})
		}
		large := entry("large", block('S', bytes.Repeat([]byte("x"), 130_950)))
		r.publishEncoded(source, encoded("large", large))
		testkit.Eventually(t, timeout, func() bool {
			n, err := client.Depth(ctx, work)
			return err == nil && n == 1
		})
		r.publishEncoded(work, encoded("after"))
		handled := make(chan string, 10)
		worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
			Queue: work, Prefetch: 1, Concurrency: 1,
			Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Message) error {
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
		waitForOne()
		if err := client.Peek(ctx, failed, 1, func(m *reprise.Message) {
			if _, isText := m.Headers[reprise.HeaderUnreadable].(string); !isText || m.MessageID != "large" {
				t.Errorf("Peek: got message %q with headers %.200v", m.MessageID, m.Headers)
			}
		}); err != nil {
			t.Error(err)
		}
		waitForOne() // the broker has requeued the message
		_, sent, err := failures.Redrive(ctx, client, failures.RedriveConfig{From: failed, To: &failures.Target{RoutingKey: source}})
		if sent != 0 || err == nil || !strings.Contains(err.Error(), "larger than the maximum size of a frame") {
			t.Errorf("redrive: got %d sent, %v; want a refusal", sent, err)
		}

		archive := openArchive(t)
		ingest, err := failures.NewIngest(client, archive, failures.IngestConfig{Queues: []string{failed}})
		if err != nil {
			t.Fatal(err)
		}
		stop := runUntilEnd(t, ingest.Run)
		testkit.Eventually(t, timeout, func() bool { return ingest.Healthy() != nil })
		r.publishEncoded(failed, encoded("small"))
		testkit.Eventually(t, timeout, func() bool {
			n, err := archive.Count(ctx, failures.Filter{})
			return err == nil && n.N == 1
		})
		stop()
		waitForOne()
		if n := lost.Load(); n > 0 {
			t.Errorf("connections were lost %d times", n)
		}
	})
}
