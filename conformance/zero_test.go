package conformance

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/ingest"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// randomProperties returns properties that are absent, empty or set, each with the same probability.
func randomProperties(r *rand.Rand, id string) amqpwire.Properties {
	p := amqpwire.Properties{MessageID: id, Flags: amqpwire.PropMessageID}
	for flag, text := range map[amqpwire.PropertyFlags]*string{
		amqpwire.PropContentType: &p.ContentType, amqpwire.PropContentEncoding: &p.ContentEncoding,
		amqpwire.PropCorrelationID: &p.CorrelationID, amqpwire.PropReplyTo: &p.ReplyTo,
		amqpwire.PropType: &p.Type, amqpwire.PropAppID: &p.AppID,
	} {
		switch r.IntN(3) {
		case 0:
			p.Flags |= flag
		case 1:
			p.Flags |= flag
			*text = fmt.Sprint("v", r.IntN(100))
		}
	}
	switch r.IntN(3) {
	case 0:
		p.Flags |= amqpwire.PropPriority
	case 1:
		p.Flags |= amqpwire.PropPriority
		p.Priority = uint8(r.IntN(10))
	}
	switch r.IntN(3) {
	case 0:
		p.Flags |= amqpwire.PropTimestamp
	case 1:
		p.Flags |= amqpwire.PropTimestamp
		p.Timestamp = 1_700_000_000
	}
	if r.IntN(2) == 0 {
		p.Flags |= amqpwire.PropHeaders
	}
	if r.IntN(2) == 0 {
		p.Flags |= amqpwire.PropDeliveryMode
		p.DeliveryMode = uint8(1 + r.IntN(2))
	}
	return p
}

// preserved returns the properties that all copies must preserve. Copies are persistent and have headers.
func preserved(p amqpwire.Properties) amqpwire.Properties {
	p.Flags &^= amqpwire.PropDeliveryMode | amqpwire.PropHeaders
	p.DeliveryMode, p.Headers = 0, nil
	return p
}

func (r *raw) publish(key string, p amqpwire.Properties) {
	r.t.Helper()
	encoded, err := p.Append(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.publishEncoded(key, encoded)
}

// publishEncoded publishes a message with encoded properties.
func (r *raw) publishEncoded(key string, properties []byte) {
	r.t.Helper()
	r.send(1, &amqpwire.BasicPublish{RoutingKey: key})
	header := append([]byte{0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, properties...) // class, weight, body size
	r.frame(2, 1, string(header), 0xCE)
	r.frame(3, 1, "b", 0xCE)
}

// get takes one message from a queue, and waits for it.
func (r *raw) get(queue string) amqpwire.Properties {
	r.t.Helper()
	p, err := amqpwire.ParseProperties(r.getEncoded(queue))
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// getEncoded is like get, but returns the encoded properties.
func (r *raw) getEncoded(queue string) []byte {
	r.t.Helper()
	var payload []byte
	testkit.Eventually(r.t, timeout, func() bool {
		r.send(1, &amqpwire.BasicGet{Queue: queue, NoAck: true})
		f, err := r.in.ReadFrame()
		if err != nil {
			r.t.Fatal(err)
		}
		m, err := amqpwire.ParseMethod(f.Payload)
		if err != nil {
			r.t.Fatal(err)
		}
		if _, empty := m.(*amqpwire.BasicGetEmpty); empty {
			return false
		}
		for range 2 { // content header and body
			f, err := r.in.ReadFrame()
			if err != nil {
				r.t.Fatal(err)
			}
			if f.Type == amqpwire.FrameHeader {
				payload = bytes.Clone(f.Payload)
			}
		}
		return true
	})
	h, err := amqpwire.ParseContentHeader(payload)
	if err != nil {
		r.t.Fatal(err)
	}
	return h.Properties
}

func openArchive(t *testing.T) *store.Archive {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "failed.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	a, err := store.Open(t.Context(), db, store.Config{Dialect: store.SQLite})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func runUntilEnd(t *testing.T, f func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// A message keeps the properties that are present with an empty value or the value 0, on all ways: a copy for a retry, a
// copy in the failed queue, archive, export, import, edit, replay, redrive and a scheduled message.
func TestZeroPropertiesSurvive(t *testing.T) {
	const messages = 20
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := dialRaw(t, b).open(100, 0)
		work, out := testkit.Name(t, "zero"), testkit.Name(t, "zero-out")
		client, err := reprise.Dial(t.Context(), b.URL, nil)
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
		must(client.Declare(ctx, topology.Buckets{}.Topology(work)))
		must(client.Declare(ctx, topology.Topology{Queues: []topology.Queue{{Name: out}}}))

		t.Cleanup(func() {
			for _, queue := range []string{work, topology.FailedQueue(work), work + ".wait.0-1000", out, out + ".level.0"} {
				r.send(1, &amqpwire.QueueDelete{Queue: queue})
				expect(r, &amqpwire.QueueDeleteOk{})
			}
		})

		random := rand.New(rand.NewPCG(1, uint64(len(b.Name))))
		want := map[string]amqpwire.Properties{}
		for i := range messages {
			p := randomProperties(random, fmt.Sprint("id-", i))
			want[p.MessageID] = p
			r.publish(work, p)
		}

		r.send(1, &amqpwire.BasicQos{PrefetchCount: 1})
		expect(r, &amqpwire.BasicQosOk{}) // the broker has not refused a message

		var mu sync.Mutex
		runs, visits := map[string]int{}, map[int]int{}
		count := func(step int) func() bool {
			return func() bool {
				mu.Lock()
				defer mu.Unlock()
				return visits[step] == messages
			}
		}
		worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
			Queue: work, Policy: reprise.Policy{MaxAttempts: 2, Backoff: backoff.Fixed(time.Millisecond)},
			Handler: reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
				mu.Lock()
				runs[m.MessageID]++
				step := runs[m.MessageID]
				visits[step]++
				mu.Unlock()
				p := want[m.MessageID]
				if has := p.Has(amqpwire.PropPriority) && p.Priority == 0; has != m.Zero.Has(reprise.PropertyPriority) {
					t.Errorf("attempt %d of %s: priority 0 is %t, want %t", step, m.MessageID, !has, has)
				}
				if step <= 4 { // two attempts before the archive, two after the replay
					return errors.New("not yet")
				}
				m.Exchange, m.RoutingKey = "", out
				return client.PublishIn(ctx, time.Millisecond, &m.Message)
			}),
		})
		must(err)
		runUntilEnd(t, worker.Run)

		// Archive, export, import, edit and replay.
		first, second := openArchive(t), openArchive(t)
		ingest, err := ingest.New(client, first, ingest.Config{Queues: []string{topology.FailedQueue(work)}})
		must(err)
		stopIngest := runUntilEnd(t, ingest.Run)
		var exported bytes.Buffer
		testkit.Eventually(t, timeout, func() bool {
			exported.Reset()
			n, err := first.Export(ctx, failed.Filter{}, &exported)
			return err == nil && n == messages
		})
		stopIngest()
		if _, err := second.Import(ctx, &exported, "cli:test"); err != nil {
			t.Fatal(err)
		}
		for m, err := range second.Each(ctx, failed.Filter{}) {
			must(err)
			c := m.Content
			c.Headers = c.Headers.Clone()
			c.Headers["edited"] = true
			must(second.Edit(ctx, m.ID, m.Revision, c, "cli:test"))
		}
		replayer := replay.New(client, second, replay.Config{})
		runUntilEnd(t, replayer.Run)
		_, err = second.BeginReplay(ctx, failed.Plan{Filter: failed.Filter{All: true}}, "cli:test")
		must(err)
		replayer.Wake()
		testkit.Eventually(t, timeout, count(4))
		testkit.Eventually(t, timeout, func() bool {
			n, err := client.Depth(ctx, topology.FailedQueue(work))
			return err == nil && n == messages
		})

		_, sent, err := replay.Redrive(ctx, client, replay.RedriveConfig{From: topology.FailedQueue(work)})
		if err != nil || sent != messages {
			t.Fatalf("redrive: got %d sent, %v; want %d", sent, err, messages)
		}
		for range messages {
			got := r.get(out)
			if w := want[got.MessageID]; fmt.Sprintf("%+v", preserved(got)) != fmt.Sprintf("%+v", preserved(withTimestamp(w, got))) {
				t.Errorf("properties: got  %+v\n            want %+v", preserved(got), preserved(w))
			}
		}
	})
}

// withTimestamp adds the timestamp that PublishIn adds to a message without one.
func withTimestamp(p, got amqpwire.Properties) amqpwire.Properties {
	if !p.Has(amqpwire.PropTimestamp) {
		p.Flags |= amqpwire.PropTimestamp
		p.Timestamp = got.Timestamp
	}
	return p
}

// The broker ignores the flags of properties that do not belong to a property, and does not pass them on.
func TestReservedPropertyFlags(t *testing.T) {
	eachRaw(t, func(t *testing.T, b testkit.Target, r *raw) {
		if b.Version == "3.10" { // passes the flags on
			return
		}
		r.open(10, 0)
		q := testkit.Name(t, "q")
		r.send(1, &amqpwire.QueueDeclare{Queue: q, Durable: true})
		expect(r, &amqpwire.QueueDeclareOk{})
		defer r.send(1, &amqpwire.QueueDelete{Queue: q, NoWait: true})
		for _, properties := range []string{"\x00\x01", "\x00\x02", "\x80\x03\x01x"} {
			r.publishEncoded(q, []byte(properties))
			want := append([]byte{properties[0], 0}, properties[2:]...)
			if got := r.getEncoded(q); !bytes.Equal(got, want) {
				t.Errorf("%q: got properties %q, want %q", properties, got, want)
			}
		}
	})
}
