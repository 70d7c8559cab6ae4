package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/idempotent"
)

// model is the reference implementation of a Store. It contains the keys that are not free.
type model struct {
	now  time.Duration
	keys map[string]heldKey
}

type heldKey struct {
	token   string
	done    bool
	expires time.Duration
}

func (m *model) get(key string) (h heldKey, found bool) {
	h, found = m.keys[key]
	return h, found && h.expires > m.now
}

func (m *model) claim(key, token string, lease time.Duration) idempotent.Claim {
	h, found := m.get(key)
	switch {
	case found && h.done:
		return idempotent.Claim{State: idempotent.Done}
	case found && h.token != token:
		return idempotent.Claim{State: idempotent.Busy, Left: h.expires - m.now}
	}
	m.keys[key] = heldKey{token: token, expires: m.now + lease}
	return idempotent.Claim{State: idempotent.Claimed}
}

func (m *model) complete(key, token string, retention time.Duration) error {
	if h, found := m.get(key); found && h.token != token {
		return idempotent.ErrLost
	}
	m.keys[key] = heldKey{token: token, done: true, expires: m.now + retention}
	return nil
}

func (m *model) release(key, token string) {
	if h, found := m.get(key); found && !h.done && h.token == token {
		delete(m.keys, key)
	}
}

// testModel makes random calls on the store and the model. It uses few keys, tokens and durations, so that the calls
// collide.
func testModel(t *testing.T, store idempotent.Store, pass func(time.Duration)) {
	ctx := t.Context()
	run := 0
	// The wrapper hides the Deadline method of *testing.T, which panics in a bubble. The test is short enough for
	// rapid's own time limit.
	rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) {
		run++ // each run uses different keys
		key := rapid.Custom(func(t *rapid.T) string {
			return fmt.Sprintf("model %d %s", run, rapid.SampledFrom([]string{"x", "y"}).Draw(t, "key"))
		})
		token := rapid.SampledFrom([]string{"a", "b", "c"})
		span := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(1, 4).Draw(t, "tenths")) * time.Second / 10
		})
		m := &model{keys: map[string]heldKey{}}
		actions := map[string]func(*rapid.T){
			"claim": func(t *rapid.T) {
				key, token, lease := key.Draw(t, "of"), token.Draw(t, "token"), span.Draw(t, "lease")
				got, err := store.Claim(ctx, key, token, lease)
				want := m.claim(key, token, lease)
				if err != nil || got.State != want.State || got.Left > want.Left || got.Left < want.Left-rounding {
					t.Fatalf("Claim(%q, %q, %s): got %+v, %v; want %+v", key, token, lease, got, err, want)
				}
			},
			"complete": func(t *rapid.T) {
				key, token, retention := key.Draw(t, "of"), token.Draw(t, "token"), span.Draw(t, "retention")
				err := store.Complete(ctx, key, token, retention)
				if want := m.complete(key, token, retention); !errors.Is(err, want) {
					t.Fatalf("Complete(%q, %q, %s): got %v, want %v", key, token, retention, err, want)
				}
			},
			"release": func(t *rapid.T) {
				key, token := key.Draw(t, "of"), token.Draw(t, "token")
				if err := store.Release(ctx, key, token); err != nil {
					t.Fatalf("Release(%q, %q): %v", key, token, err)
				}
				m.release(key, token)
			},
			"pass": func(t *rapid.T) {
				d := span.Draw(t, "time")
				pass(d)
				m.now += d
			},
		}
		if p, ok := store.(interface {
			Purge(ctx context.Context) (int64, error)
		}); ok {
			actions["purge"] = func(t *rapid.T) {
				if _, err := p.Purge(ctx); err != nil {
					t.Fatalf("Purge: %v", err)
				}
			}
		}
		t.Repeat(actions)
	})
}
