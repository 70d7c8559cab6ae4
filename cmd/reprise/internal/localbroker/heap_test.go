package localbroker

import "testing"

func TestHeapGrowsToFloor(t *testing.T) {
	for live, want := range map[uint64]int{0: 500, 1 << 20: 500, 6 << 20: 300, 12 << 20: 100, 13 << 20: 100, 1 << 40: 100} {
		if got := percentFor(live); got != want {
			t.Errorf("live heap of %d bytes: got %d %%, want %d %%", live, got, want)
		}
	}
}
