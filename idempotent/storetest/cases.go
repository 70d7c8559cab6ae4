package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprisemq/reprise/idempotent"
)

// Times for all tests. A store may round a time up by less than a millisecond.
const (
	lease     = time.Minute
	retention = time.Hour
	rounding  = time.Millisecond
)

// checkedStore calls a store and fails the test on any error.
type checkedStore struct {
	testing.TB
	idempotent.Store
}

func (s checkedStore) claim(key, token string) idempotent.Claim {
	s.Helper()
	got, err := s.Store.Claim(s.Context(), key, token, lease)
	if err != nil {
		s.Fatalf("Claim(%q, %q): %v", key, token, err)
	}
	return got
}

func (s checkedStore) wantClaim(key, token string, want idempotent.State) {
	s.Helper()
	if got := s.claim(key, token); got.State != want {
		s.Fatalf("Claim(%q, %q): got %v, want %v", key, token, got.State, want)
	}
}

func (s checkedStore) wantComplete(key, token string, want error) {
	s.Helper()
	if err := s.Store.Complete(s.Context(), key, token, retention); !errors.Is(err, want) {
		s.Fatalf("Complete(%q, %q): got %v, want %v", key, token, err, want)
	}
}

func (s checkedStore) release(key, token string) {
	s.Helper()
	if err := s.Store.Release(s.Context(), key, token); err != nil {
		s.Fatalf("Release(%q, %q): %v", key, token, err)
	}
}

func testLife(t *testing.T, store idempotent.Store, pass func(time.Duration)) {
	s := checkedStore{t, store}
	s.wantClaim("key", "a", idempotent.Claimed)
	pass(lease / 4)
	if got, want := s.claim("key", "b"), lease*3/4; got.State != idempotent.Busy || got.Left > want || got.Left < want-rounding {
		t.Fatalf("Claim of a claimed key: got %+v, want busy for %v", got, want)
	}
	s.wantComplete("key", "a", nil)
	s.wantClaim("key", "a", idempotent.Done)
	pass(retention - time.Second)
	s.wantClaim("key", "b", idempotent.Done)
	pass(time.Second)
	s.wantClaim("key", "b", idempotent.Claimed)
}

func testRelease(t *testing.T, store idempotent.Store, _ func(time.Duration)) {
	s := checkedStore{t, store}
	s.release("key", "a") // a free key
	s.wantClaim("key", "a", idempotent.Claimed)
	s.release("key", "b")
	s.wantClaim("key", "b", idempotent.Busy)
	s.release("key", "a")
	s.wantClaim("key", "b", idempotent.Claimed)
	s.wantComplete("key", "b", nil)
	s.release("key", "b")
	s.wantClaim("key", "a", idempotent.Done)
}

func testTakeover(t *testing.T, store idempotent.Store, pass func(time.Duration)) {
	s := checkedStore{t, store}
	s.wantClaim("key", "a", idempotent.Claimed)
	pass(lease)
	s.wantClaim("key", "b", idempotent.Claimed)
	s.wantClaim("key", "a", idempotent.Busy)
	s.release("key", "a")
	s.wantComplete("key", "a", idempotent.ErrLost)
	s.wantClaim("key", "c", idempotent.Busy)
	s.wantComplete("key", "b", nil)
	s.wantComplete("key", "a", idempotent.ErrLost)
	s.wantClaim("key", "a", idempotent.Done)
}

func testLate(t *testing.T, store idempotent.Store, pass func(time.Duration)) {
	s := checkedStore{t, store}
	s.wantClaim("forgotten", "a", idempotent.Claimed)
	pass(lease + time.Second)
	s.wantComplete("forgotten", "a", nil)
	s.wantClaim("forgotten", "b", idempotent.Done)

	s.wantClaim("taken over", "a", idempotent.Claimed)
	pass(lease + time.Second)
	s.wantClaim("taken over", "b", idempotent.Claimed)
	s.release("taken over", "b")
	s.wantComplete("taken over", "a", nil)
	s.wantClaim("taken over", "b", idempotent.Done)
}

func testExtend(t *testing.T, store idempotent.Store, pass func(time.Duration)) {
	s := checkedStore{t, store}
	// The extension of one lease does not extend the lease of another key.
	s.wantClaim("extended", "a", idempotent.Claimed)
	pass(lease / 4)
	s.wantClaim("not extended", "a", idempotent.Claimed)
	pass(lease / 2)
	s.wantClaim("extended", "a", idempotent.Claimed)
	pass(lease / 2)
	s.wantClaim("not extended", "b", idempotent.Claimed)
	s.wantClaim("extended", "b", idempotent.Busy)

	for range 4 {
		s.wantClaim("key", "a", idempotent.Claimed)
		pass(lease * 3 / 4)
		s.wantClaim("key", "b", idempotent.Busy)
	}
	pass(lease / 4)
	s.wantClaim("key", "b", idempotent.Claimed)
}

func testShort(t *testing.T, store idempotent.Store, pass func(time.Duration)) {
	s := checkedStore{t, store}
	if got, err := store.Claim(t.Context(), "key", "a", time.Nanosecond); got.State != idempotent.Claimed {
		t.Fatalf("Claim for 1 ns: got %v (%v), want claimed", got.State, err)
	}
	if got := s.claim("key", "b"); got.State != idempotent.Busy || got.Left <= 0 || got.Left > rounding {
		t.Fatalf("Claim of a key before its lease ends: got %+v, want busy for at most %v", got, rounding)
	}
	pass(rounding)
	s.wantClaim("key", "b", idempotent.Claimed)
	if err := store.Complete(t.Context(), "key", "b", time.Nanosecond); err != nil {
		t.Fatal(err)
	}
	s.wantClaim("key", "a", idempotent.Done)
	pass(rounding)
	s.wantClaim("key", "a", idempotent.Claimed)
}

func testRepeat(t *testing.T, store idempotent.Store, pass func(time.Duration)) {
	s := checkedStore{t, store}
	for range 2 {
		s.wantClaim("key", "a", idempotent.Claimed)
	}
	for range 2 {
		s.release("key", "a")
	}
	s.wantClaim("key", "a", idempotent.Claimed)
	for range 2 {
		s.wantComplete("key", "a", nil)
		pass(retention / 2)
	}
	pass(retention/2 - time.Second) // the retention counts from the second Complete
	s.wantClaim("key", "b", idempotent.Done)
	pass(time.Second)
	s.wantClaim("key", "b", idempotent.Claimed)
}

func testKeys(t *testing.T, store idempotent.Store, _ func(time.Duration)) {
	s := checkedStore{t, store}
	keys := []string{
		"a", "A", " a", "a ", "1", "1.0", "01", "0x1", "%", "_", "a%", "null", "NULL",
		"'", "''", `"`, `\`, "$1", "?1", ":a", "/*", "--", "'; DROP TABLE reprise_idempotent; --",
		"caf\u00e9", "cafe\u0301", "\u212b", "\u00c5", "ß", "ss", "日本", "\U0001f4b6",
		strings.Repeat("k", 1024), strings.Repeat("k", 1023) + "j",
	}
	token := strings.Repeat("t", 64)
	for _, key := range keys {
		s.wantClaim(key, token, idempotent.Claimed)
	}
	for i, key := range keys {
		if i%2 == 0 {
			s.wantComplete(key, token, nil)
		} else {
			s.release(key, token)
		}
	}
	for i, key := range keys {
		want := idempotent.Claimed
		if i%2 == 0 {
			want = idempotent.Done
		}
		s.wantClaim(key, "b", want)
	}
}

// concurrency is the number of goroutines that call the store at the same time.
const concurrency = 16

func testOneWins(t *testing.T, store idempotent.Store, pass func(time.Duration)) {
	s := checkedStore{t, store}
	round := func(key string, before func(), want map[idempotent.State]int) {
		t.Helper()
		before()
		var mu sync.Mutex
		got := map[idempotent.State]int{}
		var wg sync.WaitGroup
		for i := range concurrency {
			wg.Go(func() {
				c, err := store.Claim(t.Context(), key, fmt.Sprint("token ", i), lease)
				if err != nil {
					t.Errorf("Claim: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				got[c.State]++
			})
		}
		wg.Wait()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%d concurrent claims of %s: got %v, want %v", concurrency, key, got, want)
		}
	}
	for n := range 8 {
		one := map[idempotent.State]int{idempotent.Claimed: 1, idempotent.Busy: concurrency - 1}
		key := fmt.Sprint("key ", n)
		round(key, func() {}, one)
		round(key, func() { pass(lease) }, one) // the claim exists, but has expired
		key = fmt.Sprint("done ", n)
		round(key, func() {
			s.wantClaim(key, "a", idempotent.Claimed)
			s.wantComplete(key, "a", nil)
		}, map[idempotent.State]int{idempotent.Done: concurrency})
	}
}

func testExclusion(t *testing.T, store idempotent.Store, _ func(time.Duration)) {
	const turns = 20
	var inside, claims atomic.Int32
	var wg sync.WaitGroup
	for i := range concurrency / 2 {
		wg.Go(func() {
			for n := range turns {
				token := fmt.Sprint(i, " ", n)
				c, err := store.Claim(t.Context(), "key", token, lease)
				if err != nil {
					t.Errorf("Claim: %v", err)
					return
				}
				if c.State != idempotent.Claimed {
					continue
				}
				claims.Add(1)
				if inside.Add(1) != 1 {
					t.Error("two callers have claimed the key")
				}
				inside.Add(-1)
				if err := store.Release(t.Context(), "key", token); err != nil {
					t.Errorf("Release: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	if claims.Load() == 0 && !t.Failed() {
		t.Error("no caller has claimed the key")
	}
}

func testContext(t *testing.T, store idempotent.Store, _ func(time.Duration)) {
	s := checkedStore{t, store}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := store.Claim(canceled, "free", "a", lease); !errors.Is(err, context.Canceled) {
		t.Errorf("Claim with a canceled context: got error %v, want context.Canceled", err)
	}
	s.wantClaim("free", "b", idempotent.Claimed)

	s.wantClaim("key", "a", idempotent.Claimed)
	if err := store.Release(canceled, "key", "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("Release with a canceled context: got error %v, want context.Canceled", err)
	}
	if err := store.Complete(canceled, "key", "a", retention); !errors.Is(err, context.Canceled) {
		t.Errorf("Complete with a canceled context: got error %v, want context.Canceled", err)
	}
	s.wantClaim("key", "b", idempotent.Busy)
	s.wantComplete("key", "a", nil)
}
