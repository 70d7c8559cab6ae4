package encryption_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/claimcheck"
	"github.com/reprisemq/reprise/encryption"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/reprisetest"
	"github.com/reprisemq/reprise/topology"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func newKeys(t testing.TB, current string, names ...string) *encryption.Keys {
	t.Helper()
	keys := map[string][]byte{}
	for _, name := range names {
		keys[name] = bytes.Repeat([]byte(name[:1]), 32)
	}
	k, err := encryption.New(encryption.Config{Current: current, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// read returns the message that a handler receives, or the error of the middleware.
func read(t testing.TB, k *encryption.Keys, m *reprise.Message) (got reprise.Message, err error) {
	t.Helper()
	err = k.Middleware(reprise.HandlerFunc(func(_ context.Context, d *reprise.Delivery) error {
		got = d.Message
		return nil
	})).Handle(context.Background(), &reprise.Delivery{Message: *m})
	return got, err
}

// Any body is decrypted with any of the keys. A message can be published several times. A change of the body or of the message
// id is detected.
func TestBodiesAreDecrypted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		old, current := newKeys(t, "a", "a"), newKeys(t, "b", "a", "b")
		publisher := rapid.SampledFrom([]*encryption.Keys{old, current}).Draw(rt, "publisher")
		want := rapid.SliceOf(rapid.Byte()).Draw(rt, "body")
		headers := map[string]any{"tenant": "acme"}
		m := &reprise.Message{Body: bytes.Clone(want), MessageID: rapid.String().Draw(rt, "id"), Headers: maps.Clone(headers)}
		for range rapid.IntRange(1, 3).Draw(rt, "times") {
			if err := publisher.BeforePublish(t.Context(), m); err != nil {
				rt.Fatal(err)
			}
		}
		if len(want) > 8 && bytes.Contains(m.Body, want) || m.MessageID == "" {
			rt.Fatalf("message %q has the readable body %q", m.MessageID, m.Body)
		}
		got, err := read(t, current, m)
		if err != nil || !bytes.Equal(got.Body, want) || !maps.Equal(got.Headers, headers) {
			rt.Fatalf("got %q with the headers %v, %v; want %q", got.Body, got.Headers, err, want)
		}
		changed := *m
		if rapid.Bool().Draw(rt, "change the id") {
			changed.MessageID += "x"
		} else {
			changed.Body = slices.Clone(m.Body)
			changed.Body[rapid.IntRange(0, len(m.Body)-1).Draw(rt, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
		}
		if _, err := read(t, current, &changed); !errors.Is(err, encryption.ErrUnauthentic) || !isParked(err) {
			rt.Fatalf("changed message: got %v, want it to be parked", err)
		}
		if err := publisher.BeforePublish(t.Context(), &changed); !errors.Is(err, encryption.ErrUnauthentic) || !errors.Is(err, reprise.ErrInvalidMessage) {
			rt.Fatalf("publish a changed message: got %v, want ErrUnauthentic", err)
		}
	})
}

func isParked(err error) bool {
	_, parked := errors.AsType[*reprise.ParkError](err)
	return parked
}

// A message with an unknown key is retried until the key is deployed. Retries and parked messages remain encrypted, also with a
// claim check, and are republished unchanged.
func TestEncryptedMessagesPassThroughWorker(t *testing.T) {
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		check, err := claimcheck.New(claimcheck.Config{Store: claimcheck.Dir(t.TempDir()), Threshold: 100})
		if err != nil {
			t.Fatal(err)
		}
		keys := newKeys(t, "new", "new", "old")
		c := b.Client(t, &reprise.Config{BeforePublish: func(ctx context.Context, m *reprise.Message) error {
			if err := keys.BeforePublish(ctx, m); err != nil {
				return err
			}
			return check.BeforePublish(ctx, m)
		}})
		body := strings.Repeat("secret", 50)
		handled := map[string]bool{}
		cfg := reprise.WorkerConfig{
			Queue: "orders", Policy: reprise.Policy{MaxAttempts: 3, Backoff: backoff.Fixed(time.Minute)},
			Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
				if s := string(m.Body); s != body && s != "secret" || len(m.Headers) != 0 {
					t.Errorf("message %s: got the body %.80q and the headers %v", m.MessageID, m.Body, m.Headers)
				}
				handled[m.MessageID] = true
				return errors.New("scripted failure")
			}),
		}
		late := newKeys(t, "old", "old")
		cfg.Middleware = []reprise.Middleware{check.Middleware, late.Middleware}
		w := b.Work(t, cfg)
		small, large := &reprise.Message{RoutingKey: "orders", MessageID: "small", Body: []byte("secret")}, &reprise.Message{RoutingKey: "orders", MessageID: "large", Body: []byte(body)}
		for _, m := range []*reprise.Message{small, large} {
			for range 2 { // the second time, m is encrypted
				if err := c.Publish(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, err := range w.Await(t, 4).Errors() {
			if err == nil || !strings.Contains(err.Error(), `encryption: key "new" not found`) || isParked(err) {
				t.Errorf("unknown key: got %v, want a retry", err)
			}
		}
		if err := w.Stop(); err != nil {
			t.Fatal(err)
		}
		cfg.Middleware[1] = keys.Middleware // the deployment of the key
		b.Work(t, cfg)
		b.Drain(t)
		if len(handled) != 2 {
			t.Errorf("got the handled messages %v, want both", handled)
		}
		parked := b.Messages(t, topology.FailedQueue("orders"))
		for _, m := range parked {
			if bytes.Contains(m.Body, []byte("secret")) || m.Headers[encryption.Header] != "new" || claimcheck.IsReference(&m.Message) != (m.MessageID == "large") {
				t.Errorf("parked message %s: got the body %q and the headers %v", m.MessageID, m.Body, m.Headers)
			}
		}
		if len(parked) != 4 {
			t.Errorf("got %d parked messages, want 4", len(parked))
		}
	})
}

// A copy for a retry has the id and the header, so that it can be decrypted. RabbitMQ does not change them.
func TestRetriesAreDecrypted(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		keys := newKeys(t, "a", "a")
		ctx := context.Background()
		c, err := reprise.Dial(ctx, b.URL, &reprise.Config{BeforePublish: keys.BeforePublish})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(ctx)
		queue := testkit.Name(t, "work")
		hop, err := topology.Buckets{}.Wait(topology.Delivery{Queue: queue}, time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		testkit.DeleteQueues(t, b.URL, queue, hop.RoutingKey, topology.FailedQueue(queue))
		got := make(chan string, 2)
		w, err := reprise.NewWorker(c, reprise.WorkerConfig{
			Queue: queue, Policy: reprise.Policy{Backoff: backoff.Fixed(time.Millisecond)}, Middleware: []reprise.Middleware{keys.Middleware},
			Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
				if got <- string(m.Body); m.Attempt == 1 {
					return errors.New("scripted failure")
				}
				return nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Declare(ctx, topology.Buckets{}.Topology(queue)); err != nil {
			t.Fatal(err)
		}
		if err := c.Publish(ctx, &reprise.Message{RoutingKey: queue, Body: []byte("secret")}); err != nil {
			t.Fatal(err)
		}
		ran := make(chan error)
		go func() { ran <- w.Run(ctx) }()
		for range 2 {
			if s := <-got; s != "secret" {
				t.Errorf("got the body %q, want secret", s)
			}
		}
		if err := errors.Join(w.Shutdown(ctx), <-ran); err != nil {
			t.Error(err)
		}
	})
}

func TestPlaintext(t *testing.T) {
	t.Parallel()
	m := &reprise.Message{Body: []byte("plain")}
	if _, err := read(t, newKeys(t, "a", "a"), m); !errors.Is(err, encryption.ErrNotEncrypted) || !isParked(err) {
		t.Errorf("got %v, want ErrNotEncrypted", err)
	}
	k, err := encryption.New(encryption.Config{Keys: map[string][]byte{"a": bytes.Repeat([]byte("a"), 32)}, AcceptPlaintext: true})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := read(t, k, m); err != nil || string(got.Body) != "plain" {
		t.Errorf("got %q, %v; want the body", got.Body, err)
	}
	if err := k.BeforePublish(t.Context(), m); err == nil || !strings.Contains(err.Error(), "Config.Current must not be empty") {
		t.Errorf("publish without a current key: got %v, want an error", err)
	}
}

func TestConfigIsValidated(t *testing.T) {
	t.Parallel()
	key := bytes.Repeat([]byte("a"), 32)
	for want, c := range map[string]encryption.Config{
		"Keys must not be empty":                {},
		`must be the name of a key: got "b"`:    {Current: "b", Keys: map[string][]byte{"a": key}},
		`Keys["a"] must have 32 bytes: got 16 `: {Keys: map[string][]byte{"a": key[:16]}},
		"Keys must not contain a key without":   {Keys: map[string][]byte{"": key}},
		`Keys["a"] must be random: got 32 zer`:  {Keys: map[string][]byte{"a": make([]byte, 32)}},
	} {
		if _, err := encryption.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// In the wrong order, the store would contain readable bodies, or the worker would find a changed body.
func TestWrongOrderWithClaimCheckIsReported(t *testing.T) {
	t.Parallel()
	check, err := claimcheck.New(claimcheck.Config{Store: claimcheck.Dir(t.TempDir()), Threshold: 100})
	if err != nil {
		t.Fatal(err)
	}
	keys := newKeys(t, "a", "a")
	m := &reprise.Message{Body: bytes.Repeat([]byte("secret"), 50)}
	publish := func(before ...func(context.Context, *reprise.Message) error) error {
		return errors.Join(before[0](t.Context(), m), before[1](t.Context(), m))
	}
	if err := publish(check.BeforePublish, keys.BeforePublish); err == nil || !strings.Contains(err.Error(), "call Keys.BeforePublish before Check.BeforePublish") {
		t.Errorf("publish: got %v, want an error about the order", err)
	}
	m = &reprise.Message{Body: bytes.Repeat([]byte("secret"), 50)}
	if err := publish(keys.BeforePublish, check.BeforePublish); err != nil {
		t.Fatal(err)
	}
	if _, err := read(t, keys, m); err == nil || isParked(err) || !strings.Contains(err.Error(), "Check.Middleware must be before Keys.Middleware") {
		t.Errorf("handle: got %v, want a retry and an error about the order", err)
	}
}

// The header can have any type, because any program can publish.
func TestHeaderIsNotAName(t *testing.T) {
	t.Parallel()
	for _, header := range []any{nil, 7, []byte("a")} {
		m := &reprise.Message{Body: []byte("plain"), Headers: map[string]any{encryption.Header: header}}
		if _, err := read(t, newKeys(t, "a", "a"), m); !isParked(err) || !strings.Contains(err.Error(), "must be a string") {
			t.Errorf("header %v: got %v, want the message to be parked", header, err)
		}
	}
}

func FuzzDecrypt(f *testing.F) {
	k := newKeys(f, "a", "a")
	m := &reprise.Message{Body: []byte("body"), MessageID: "id"}
	if err := k.BeforePublish(f.Context(), m); err != nil {
		f.Fatal(err)
	}
	f.Add("a", m.Body)
	f.Add("", []byte(nil))
	f.Fuzz(func(t *testing.T, name string, body []byte) {
		changed := &reprise.Message{MessageID: "id", Body: body, Headers: map[string]any{encryption.Header: name}}
		if got, err := read(t, k, changed); err == nil && (name != "a" || string(got.Body) != "body" || !bytes.Equal(body, m.Body)) {
			t.Errorf("decrypted %q to %q", body, got.Body)
		}
	})
}
