package failedcmd

import "testing"

func TestTrend(t *testing.T) {
	if got := trend(buckets(0, 0, 1, 0, 4, 4, 0, 8), 4); got != "·▁██" {
		t.Error(got)
	}
	if got := trend(nil, 4); got != "" {
		t.Error(got)
	}
}
