package idempotent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/idempotent"
)

// keyRecorder is a store that records the last claimed key.
type keyRecorder struct {
	idempotent.Memory
	mu         sync.Mutex
	key, token string
}

func (s *keyRecorder) Claim(ctx context.Context, key, token string, lease time.Duration) (idempotent.Claim, error) {
	s.mu.Lock()
	s.key, s.token = key, token
	s.mu.Unlock()
	return s.Memory.Claim(ctx, key, token, lease)
}

func (s *keyRecorder) last() (key, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key, s.token
}

// keyOf returns the key that the middleware claims for a message.
func keyOf(t testing.TB, cfg idempotent.Config, m *reprise.Delivery) string {
	t.Helper()
	var store keyRecorder
	if err := protect(t, &store, cfg, new(countingHandler).Handle).Handle(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	key, _ := store.last()
	return key
}

func TestKeys(t *testing.T) {
	byOrder := func(m *reprise.Delivery) string { return fmt.Sprint(m.Headers["order"]) }
	for _, tc := range []struct {
		cfg  idempotent.Config
		m    reprise.Delivery
		want string
	}{
		{idempotent.Config{}, reprise.Delivery{Message: reprise.Message{MessageID: "1"}, Queue: "orders"}, "orders/1"},
		{idempotent.Config{}, reprise.Delivery{Message: reprise.Message{MessageID: "c/d"}, Queue: "a/b"}, "a%2Fb/c/d"},
		{idempotent.Config{Keyless: idempotent.HandleKeyless}, reprise.Delivery{Queue: "orders"}, ""},
		{idempotent.Config{Scope: "all"}, reprise.Delivery{Message: reprise.Message{MessageID: "1"}, Queue: "orders"}, "all/1"},
		{idempotent.Config{Key: byOrder}, reprise.Delivery{Message: reprise.Message{MessageID: "1", Headers: map[string]any{"order": 17}}, Queue: "q"}, "q/17"},
		{
			idempotent.Config{},
			reprise.Delivery{Message: reprise.Message{MessageID: "\xff\x00"}, Queue: "orders"},
			"orders/sha256:ea5dbf9596d187e9500f23e9a680109475341cf4e81f7e043f7d97152c10772f",
		},
	} {
		if got := keyOf(t, tc.cfg, &tc.m); got != tc.want {
			t.Errorf("queue %q, id %q: got key %q, want %q", tc.m.Queue, tc.m.MessageID, got, tc.want)
		}
	}
}

// For any queue names and ids, the keys are valid for a Store, and messages with a different queue or id have different
// keys.
func TestKeysAreValidAndDifferent(t *testing.T) {
	name := rapid.Custom(func(t *rapid.T) string {
		piece := rapid.OneOf(
			rapid.SampledFrom([]string{"/", "%", "%2F", "sha256:", "\x00", "\xff", "a", strings.Repeat("long", 150)}),
			rapid.String(),
			rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOfN(rapid.Byte(), 1, 255).Draw(t, "bytes")) }),
		)
		return strings.Join(rapid.SliceOfN(piece, 1, 3).Draw(t, "pieces"), "")
	}).Filter(func(s string) bool { return s != "" })
	rapid.Check(t, func(rt *rapid.T) {
		a := reprise.Delivery{Message: reprise.Message{MessageID: name.Draw(rt, "id")}, Queue: name.Draw(rt, "queue")}
		b := a
		// The second message has the parts of the first with another boundary, has the key of the first as its id, or
		// is independent.
		switch rapid.IntRange(0, 2).Draw(rt, "second") {
		case 0:
			both := a.Queue + "/" + a.MessageID
			cut := rapid.IntRange(1, len(both)-1).Draw(rt, "cut")
			b.Queue, b.MessageID = both[:cut], strings.TrimPrefix(both[cut:], "/")
		case 1:
			b.MessageID = strings.TrimPrefix(keyOf(t, idempotent.Config{Scope: "s"}, &a), "s/")
		default:
			b.Queue = name.Draw(rt, "another queue")
		}
		if b.Queue == "" || b.MessageID == "" {
			return
		}
		keys := [2]string{}
		for i, m := range []*reprise.Delivery{&a, &b} {
			keys[i] = keyOf(t, idempotent.Config{}, m)
			if k := keys[i]; k == "" || len(k) > 1024 || !utf8.ValidString(k) || strings.ContainsFunc(k, unicode.IsControl) {
				rt.Fatalf("queue %q, id %q: got key %q, want a valid key", m.Queue, m.MessageID, k)
			}
		}
		if same := a.Queue == b.Queue && a.MessageID == b.MessageID; same != (keys[0] == keys[1]) {
			rt.Fatalf("messages %q %q and %q %q: got keys %q and %q, want equal keys %t", a.Queue, a.MessageID, b.Queue, b.MessageID, keys[0], keys[1], same)
		}
	})
}

// A fanout exchange copies a message to several queues.
func TestQueuesHaveSeparateKeys(t *testing.T) {
	for scope, want := range map[string]int32{"": 2, "everything": 1} {
		var inner countingHandler
		h := protect(t, new(idempotent.Memory), idempotent.Config{Scope: scope}, inner.Handle)
		for _, queue := range []string{"invoices", "statistics", "invoices"} {
			if err := h.Handle(t.Context(), &reprise.Delivery{Message: reprise.Message{MessageID: "1"}, Queue: queue}); err != nil {
				t.Error(err)
			}
		}
		if n := inner.runs.Load(); n != want {
			t.Errorf("scope %q: handled %d times, want %d", scope, n, want)
		}
	}
}

func TestMessageWithoutKey(t *testing.T) {
	for name, m := range map[string]reprise.Delivery{
		"without an id":       {Queue: "orders"},
		"with an assigned id": {Message: reprise.Message{MessageID: "assigned"}, Queue: "orders", MessageIDAssigned: true},
	} {
		t.Run(name, func(t *testing.T) {
			var inner countingHandler
			var log bytes.Buffer
			h := protect(t, new(idempotent.Memory), idempotent.Config{
				Keyless: idempotent.HandleKeyless, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			}, inner.Handle)
			for range 2 {
				if err := h.Handle(t.Context(), &m); err != nil {
					t.Error(err)
				}
			}
			if n := inner.runs.Load(); n != 2 {
				t.Errorf("unprotected message was handled %d times, want 2", n)
			}
			if n := strings.Count(log.String(), `level=WARN msg="no key" queue=orders`); n != 2 {
				t.Errorf("got %d warnings, want 2: %s", n, log.String())
			}

			for _, key := range []func(*reprise.Delivery) string{nil, func(m *reprise.Delivery) string { return m.MessageID }} {
				h = protect(t, new(idempotent.Memory), idempotent.Config{Key: key}, inner.Handle)
				err := h.Handle(t.Context(), &m)
				var parked *reprise.ParkError
				if !errors.As(err, &parked) || !errors.Is(err, idempotent.ErrNoKey) || inner.runs.Load() != 2 {
					t.Errorf("got %v, want ParkError; handled %d times", err, inner.runs.Load()-2)
				}
			}
		})
	}
}
