package testkit

import (
	"sync/atomic"
	"testing"
)

func TestAloneIsExclusive(t *testing.T) {
	Each(t, func(t *testing.T, b Target) {
		name := Name(t, "alone")
		var inside atomic.Int32
		t.Run("together", func(t *testing.T) {
			for _, test := range []string{"a", "b", "c"} {
				t.Run(test, func(t *testing.T) {
					t.Parallel()
					Alone(t, b, name)
					if inside.Add(1) > 1 {
						t.Error("lock was acquired twice")
					}
					t.Cleanup(func() { inside.Add(-1) }) // runs before the lock is released
				})
			}
		})
		if n := inside.Load(); n != 0 {
			t.Errorf("tests with the lock: got %d, want 0", n)
		}
	})
}
