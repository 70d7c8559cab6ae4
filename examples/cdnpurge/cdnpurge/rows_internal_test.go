package cdnpurge

import (
	"slices"
	"testing"
	"time"
)

// There is one row for each second, even if the tick for this second is late.
func TestRowsReturnsEachSecondOnce(t *testing.T) {
	var r rowCounter
	var got []time.Duration
	for _, since := range []time.Duration{1001 * time.Millisecond, 1990 * time.Millisecond, 2600 * time.Millisecond, 5100 * time.Millisecond} {
		got = append(got, r.due(since)...)
	}
	got = append(got, r.last(5300*time.Millisecond)...)
	got = append(got, r.last(5400*time.Millisecond)...)
	want := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second, 5 * time.Second, 6 * time.Second}
	if !slices.Equal(got, want) {
		t.Errorf("rows: got %v, want %v", got, want)
	}
}
