package bounded

import "testing"

func TestMapEvictsOldest(t *testing.T) {
	m := New[int, string](3)
	for _, key := range []int{1, 2, 3, 1, 4} { // the second Put of 1 makes 2 the oldest
		m.Put(key, "v")
	}
	if _, there := m.Get(2); there || m.Len() != 3 || m.order.Len() != 3 {
		t.Errorf("got entry 2 %t and Len %d, want false and 3", there, m.Len())
	}
	for _, key := range []int{3, 1, 4} {
		if oldest, _, ok := m.Oldest(); !ok || oldest != key {
			t.Errorf("Oldest: got %d, want %d", oldest, key)
		}
		m.Drop(key)
	}
	if _, _, ok := m.Oldest(); ok || m.Len() != 0 {
		t.Error("map is not empty")
	}
}
