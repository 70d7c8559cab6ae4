package claimcheck_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/claimcheck"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/reprisetest"
	"github.com/reprisemq/reprise/topology"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const timeout = 2 * time.Minute

// memory is a Store that can fail.
type memory struct {
	mu      sync.Mutex
	bodies  map[string][]byte
	puts    int
	failure error
}

func (s *memory) Put(_ context.Context, key string, body []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return s.failure
	}
	if s.bodies == nil {
		s.bodies = map[string][]byte{}
	}
	s.bodies[key] = bytes.Clone(body)
	s.puts++
	return nil
}

func (s *memory) Get(_ context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if body, found := s.bodies[key]; found && s.failure == nil {
		return bytes.Clone(body), nil
	}
	return nil, errors.Join(fs.ErrNotExist, s.failure)
}

func newCheck(t testing.TB, s claimcheck.Store, threshold int) *claimcheck.Check {
	t.Helper()
	c, err := claimcheck.New(claimcheck.Config{Store: s, Threshold: threshold})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// dial returns a client that replaces large bodies.
func dial(t testing.TB, url string, check *claimcheck.Check) *reprise.Client {
	t.Helper()
	c, err := reprise.Dial(t.Context(), url, &reprise.Config{BeforePublish: check.BeforePublish})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// work runs a worker until the end of the test.
func work(t testing.TB, c *reprise.Client, cfg reprise.WorkerConfig) {
	t.Helper()
	w, err := reprise.NewWorker(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(context.Background()); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() {
		_ = w.Shutdown(context.Background())
		running.Wait()
	})
}

// Retries, parked messages and forwarded messages keep the reference, and handlers receive the body.
func TestReferencePassesThroughRetriesAndFailedQueue(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		store := &memory{}
		check := newCheck(t, store, 1000)
		c := dial(t, b.URL, check)
		queue := testkit.Name(t, "work")
		const delay = 10 * time.Millisecond
		hop, err := topology.Buckets{}.Wait(topology.Delivery{Queue: queue}, delay)
		if err != nil {
			t.Fatal(err)
		}
		testkit.DeleteQueues(t, b.URL, queue, hop.RoutingKey, topology.FailedQueue(queue), topology.FailedQueue(topology.FailedQueue(queue)), queue+".again", topology.FailedQueue(queue+".again"))
		large := bytes.Repeat([]byte("0123456789"), 1000)
		type seen struct {
			id, queue string
			attempt   int
			ok        bool
		}
		got := make(chan seen, 100)
		handler := reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			_, marked := m.Headers[claimcheck.Header]
			want := large
			if m.MessageID == "small" {
				want = large[:1000]
			}
			got <- seen{m.MessageID, m.Queue, m.Attempt, bytes.Equal(m.Body, want) && !marked && m.Headers["tenant"] == "acme"}
			if m.Queue != queue {
				return nil
			}
			return errors.New("scripted failure")
		})
		for _, q := range []string{queue, queue + ".again"} {
			work(t, c, reprise.WorkerConfig{
				Queue: q, Handler: handler, Middleware: []reprise.Middleware{check.Middleware},
				Policy:   reprise.Policy{MaxAttempts: 2, Backoff: backoff.Fixed(10 * time.Millisecond)},
				Strategy: topology.Strategy{Route: topology.Requeuing{}},
			})
		}
		headers := map[string]any{"tenant": "acme"}
		publish := func(id string, send func(m *reprise.Message) error) {
			body := large
			if id == "small" {
				body = large[:1000]
			}
			if err := send(&reprise.Message{RoutingKey: queue, MessageID: id, Body: body, Headers: headers}); err != nil {
				t.Fatal(err)
			}
		}
		testkit.Eventually(t, timeout, func() error { return c.Declare(t.Context(), topology.Buckets{}.Topology(queue)) })
		publish("one", func(m *reprise.Message) error { return c.Publish(t.Context(), m) })
		publish("small", func(m *reprise.Message) error { return c.Publish(t.Context(), m) })
		publish("batch", func(m *reprise.Message) error { return c.PublishBatch(t.Context(), []*reprise.Message{m}) })
		if len(headers) != 1 {
			t.Errorf("headers of the program: got %v, want them unchanged", headers)
		}
		for range 6 {
			if s := <-got; !s.ok {
				t.Errorf("message %s, attempt %d: another body or headers", s.id, s.attempt)
			}
		}
		// A program that forwards raw messages, like a redrive, does not change the reference.
		forward := reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
			if claimcheck.IsReference(&m.Message) == (m.MessageID == "small") {
				t.Errorf("parked message %s: got the body %.80q", m.MessageID, m.Body)
			}
			moved := m.Message
			moved.Exchange, moved.RoutingKey = "", queue+".again"
			return c.Publish(ctx, &moved)
		})
		work(t, c, reprise.WorkerConfig{Queue: topology.FailedQueue(queue), AsDelivered: true, Handler: forward})
		for range 3 {
			if s := <-got; !s.ok || s.queue != queue+".again" {
				t.Errorf("forwarded message %s in %s: another body or headers", s.id, s.queue)
			}
		}
		if store.puts != 2 {
			t.Errorf("bodies were stored %d times, want 2", store.puts)
		}
	})
}

// Any body is restored, and a message can be republished, also with another body.
func TestBodiesAreRestored(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		check := newCheck(t, &memory{}, rapid.IntRange(-1, 20).Draw(rt, "threshold"))
		m := &reprise.Message{}
		for range rapid.IntRange(1, 4).Draw(rt, "messages") {
			want := rapid.SliceOf(rapid.Byte()).Draw(rt, "body")
			m.Body = bytes.Clone(want)
			for range rapid.IntRange(1, 3).Draw(rt, "times") {
				if err := check.BeforePublish(t.Context(), m); err != nil {
					rt.Fatal(err)
				}
			}
			h := check.Middleware(reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
				if _, marked := m.Headers[claimcheck.Header]; marked || !bytes.Equal(m.Body, want) {
					return fmt.Errorf("got %q with the headers %v, want %q", m.Body, m.Headers, want)
				}
				return nil
			}))
			if err := h.Handle(t.Context(), &reprise.Delivery{Message: *m}); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

// A failure of the store fails the publishing or the attempt, and no message is lost. An invalid reference is parked.
func TestStoreFailures(t *testing.T) {
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		store := &memory{}
		check := newCheck(t, store, -1)
		c := b.Client(t, &reprise.Config{BeforePublish: check.BeforePublish})
		w := b.WorkWith(t, c, reprise.WorkerConfig{
			Queue: "orders", Policy: reprise.Policy{MaxAttempts: 3, Backoff: backoff.Fixed(time.Minute)}, Middleware: []reprise.Middleware{check.Middleware},
			Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return nil }),
		})
		down := errors.New("store is down")
		fail := func(err error) {
			store.mu.Lock()
			defer store.mu.Unlock()
			store.failure = err
		}
		m := &reprise.Message{RoutingKey: "orders", Body: []byte("body")}
		fail(down)
		// The message is not at fault, so a publisher that drops invalid messages does not drop it.
		if err := c.Publish(t.Context(), m); !errors.Is(err, down) || errors.Is(err, reprise.ErrInvalidMessage) || string(m.Body) != "body" {
			t.Fatalf("publish: got %v and the body %q, want the error of the store and an unchanged message", err, m.Body)
		}
		want := "reprise: 1 of 1 messages failed: message 0: not sent: claimcheck: cannot store the body: store is down"
		if err := c.PublishBatch(t.Context(), []*reprise.Message{{Body: []byte("body")}}); err == nil || err.Error() != want {
			t.Errorf("publish: got %v, want %q", err, want)
		}
		fail(nil)
		if err := c.Publish(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		w.Await(t, 1)
		fail(down)
		if err := c.Publish(t.Context(), m); err != nil { // the reference exists
			t.Fatal(err)
		}
		b.Advance(time.Second)
		fail(nil)
		attempts := w.Await(t, 3)
		if errs := attempts.Errors(); errs[0] != nil || !errors.Is(errs[1], down) || errs[2] != nil {
			t.Errorf("got the results %v, want a retry after the failure of the store", errs)
		}
		for _, key := range []string{"", "../../etc/passwd", strings.Repeat("0", 64)} {
			b.Publish(t, &reprise.Message{RoutingKey: "orders", Body: []byte("body"), Headers: map[string]any{claimcheck.Header: key}})
		}
		b.Drain(t)
		if n := len(b.Messages(t, topology.FailedQueue("orders"))); n != 3 || len(w.Attempts()) != 6 {
			t.Errorf("got %d parked messages after %d attempts, want 3 and 6", n, len(w.Attempts()))
		}
	})
}

func TestDir(t *testing.T) {
	t.Parallel()
	dir := claimcheck.Dir(t.TempDir())
	key := strings.Repeat("ab", 32)
	if _, err := dir.Get(t.Context(), key); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("get: got %v, want fs.ErrNotExist", err)
	}
	old := time.Now().Add(-time.Hour)
	for range 2 {
		if err := dir.Put(t.Context(), key, []byte("body")); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(string(dir) + "/" + key)
		if err != nil || time.Since(info.ModTime()) > 30*time.Minute {
			t.Errorf("got %v, %v; want a file whose age was renewed", info, err)
		}
		if err := os.Chtimes(string(dir)+"/"+key, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if body, err := dir.Get(t.Context(), key); err != nil || string(body) != "body" {
		t.Errorf("get: got %q, %v", body, err)
	}
	if files, err := os.ReadDir(string(dir)); err != nil || len(files) != 1 {
		t.Errorf("got the files %v, %v; want one", files, err)
	}
	if err := claimcheck.Dir(string(dir)+"/missing").Put(t.Context(), key, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("put into a missing directory: got %v, want fs.ErrNotExist", err)
	}
}

// A directory that is missing, for example because it is not mounted, is not a reason to park messages without a body.
func TestMissingDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"":              `claimcheck: directory "" not found`,
		dir + "/absent": `claimcheck: directory "` + dir + `/absent" not found`,
		dir + "/file":   `claimcheck: "` + dir + `/file" is not a directory`,
	} {
		if _, err := claimcheck.New(claimcheck.Config{Store: claimcheck.Dir(path)}); err == nil || err.Error() != want {
			t.Errorf("directory %q: got %v, want %q", path, err, want)
		}
		if _, err := claimcheck.Dir(path).Get(t.Context(), strings.Repeat("ab", 32)); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("directory %q: got %v, want an error that does not match fs.ErrNotExist", path, err)
		}
	}
}

func FuzzReference(f *testing.F) {
	check := newCheck(f, &memory{}, 1)
	m := &reprise.Message{Body: []byte("body")}
	if err := check.BeforePublish(f.Context(), m); err != nil {
		f.Fatal(err)
	}
	f.Add(m.Headers[claimcheck.Header].(string), m.Body)
	f.Add("", []byte(nil))
	f.Fuzz(func(t *testing.T, key string, body []byte) {
		d := &reprise.Delivery{Message: reprise.Message{Body: body, Headers: map[string]any{claimcheck.Header: key}}}
		err := check.Middleware(reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return nil })).Handle(t.Context(), d)
		_, parked := errors.AsType[*reprise.ParkError](err)
		if parked == claimcheck.IsReference(&d.Message) {
			t.Errorf("got %v", err)
		}
	})
}
