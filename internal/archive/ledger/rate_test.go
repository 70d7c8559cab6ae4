package ledger

import (
	"testing"
	"time"
)

func TestDoneRate(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(from, until int, n int64) sample {
		s := sample{at: start.Add(time.Duration(from) * time.Second), until: start.Add(time.Duration(until) * time.Second), times: 1}
		s.terms[done], s.terms[debounced], s.terms[retried], s.terms[gaveUp] = n, 10*n, 10*n, 10*n
		return s
	}
	for name, tc := range map[string]struct {
		samples []sample
		want    float64
		known   bool
	}{
		"one sample":                  {[]sample{at(0, 0, 5)}, 0, false},
		"two samples":                 {[]sample{at(0, 0, 5), at(15, 15, 35)}, 2, true},
		"last two intervals only":     {[]sample{at(0, 0, 0), at(15, 15, 3000), at(30, 30, 3030), at(45, 45, 3060)}, 2, true},
		"no activity for a long time": {[]sample{at(0, 0, 5), at(15, 300, 35)}, 0, true},
		"activity after a pause":      {[]sample{at(0, 300, 35), at(315, 315, 95)}, 2, true},
		"decreasing count":            {[]sample{at(0, 0, 50), at(15, 15, 35)}, 0, true},
	} {
		got, known := doneRate(tc.samples, 30*time.Second)
		if got != tc.want || known != tc.known {
			t.Errorf("%s: got %v, %v, want %v, %v", name, got, known, tc.want, tc.known)
		}
	}
}
