package idempotent_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/idempotent"
	"github.com/reprisemq/reprise/idempotent/storetest"
)

func TestMemoryImplementsStore(t *testing.T) {
	storetest.Run(t, storetest.Subject{
		New: func(testing.TB) idempotent.Store { return new(idempotent.Memory) },
	})
}

func TestMemoryLimitsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &idempotent.Memory{MaxKeys: 3}
		claim := func(key string) (idempotent.State, error) {
			t.Helper()
			c, err := s.Claim(t.Context(), key, "token", time.Minute)
			return c.State, err
		}
		for i, retention := range []time.Duration{3 * time.Hour, time.Hour, 2 * time.Hour} {
			key := fmt.Sprint(i)
			if got, err := claim(key); got != idempotent.Claimed {
				t.Fatalf("claim of key %s: got %v (%v), want claimed", key, got, err)
			}
			if err := s.Complete(t.Context(), key, "token", retention); err != nil {
				t.Fatal(err)
			}
		}

		// The store removes the completed key that would expire next.
		if got, err := claim("3"); got != idempotent.Claimed {
			t.Fatalf("claim in a full store: got %v (%v), want claimed", got, err)
		}
		for key, want := range map[string]idempotent.State{"0": idempotent.Done, "2": idempotent.Done} {
			if got, err := claim(key); got != want {
				t.Errorf("key %s: got %v (%v), want %v", key, got, err, want)
			}
		}
		if n := s.Len(); n != 3 {
			t.Errorf("store has %d keys, want 3", n)
		}

		// The store never removes a claim before it expires.
		for _, key := range []string{"4", "5"} {
			if got, err := claim(key); got != idempotent.Claimed {
				t.Fatalf("claim of key %s: got %v (%v), want claimed", key, got, err)
			}
		}
		if got, err := claim("6"); !errors.Is(err, idempotent.ErrFull) {
			t.Errorf("claim of another key in a full store: got %v (%v), want ErrFull", got, err)
		}
		if got, err := claim("4"); got != idempotent.Claimed {
			t.Errorf("extension of a claim in a full store: got %v (%v), want claimed", got, err)
		}
		if err := s.Complete(t.Context(), "5", "token", time.Hour); err != nil {
			t.Errorf("cannot complete a claim in a full store: %v", err)
		}
		time.Sleep(time.Minute)
		if n := s.Len(); n != 1 {
			t.Errorf("store has %d keys after the end of the leases, want 1", n)
		}
	})
}

func TestMemoryRemovesExpiredKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(idempotent.Memory)
		for i := range 1000 {
			if err := s.Complete(t.Context(), fmt.Sprint(i), "token", time.Duration(i+1)*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		for left := 1000; left > 0; left -= 100 {
			if n := s.Len(); n != left {
				t.Fatalf("store has %d keys, want %d", n, left)
			}
			time.Sleep(100 * time.Second)
		}
	})
}
