package testkit

import (
	"sync/atomic"
	"testing"
)

func TestAloneWaitsForOthers(t *testing.T) {
	Each(t, func(t *testing.T, b Target) {
		name := Name(t, "alone")
		var inside atomic.Int32
		t.Run("together", func(t *testing.T) {
			for _, who := range []string{"a", "b", "c"} {
				t.Run(who, func(t *testing.T) {
					t.Parallel()
					Alone(t, b, name)
					if inside.Add(1) > 1 {
						t.Error("not alone")
					}
					t.Cleanup(func() { inside.Add(-1) }) // runs before the lock is released
				})
			}
		})
		if n := inside.Load(); n != 0 {
			t.Errorf("%d are left", n)
		}
	})
}
