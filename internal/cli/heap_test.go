package cli

import "testing"

func TestAHeapMayGrowToItsFloorOrTwofold(t *testing.T) {
	for live, want := range map[uint64]int{0: 4700, 1 << 20: 4700, 12 << 20: 300, 24 << 20: 100, 25 << 20: 100, 1 << 40: 100} {
		if got := percentFor(live); got != want {
			t.Errorf("with %d bytes alive: %d %%, want %d %%", live, got, want)
		}
	}
}
