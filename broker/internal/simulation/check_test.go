package simulation

import (
	"testing"
	"time"
)

func TestRunsAreInTheOrderOfTheirDeliveries(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		noted, later Run
		swapped      bool
	}{
		"delivered again later":                      {Run{Began: now}, Run{Began: now.Add(time.Second), Redelivered: true}, false},
		"delivered again at once":                    {Run{Began: now}, Run{Began: now, Redelivered: true}, false},
		"first delivery noted after the second":      {Run{Began: now, Redelivered: true}, Run{Began: now}, true},
		"marked first, and again without the mark":   {Run{Began: now, Redelivered: true}, Run{Began: now.Add(time.Second)}, false},
		"marked twice, since a third one came first": {Run{Began: now, Redelivered: true}, Run{Began: now, Redelivered: true}, false},
	} {
		first, second := inOrder(&test.noted, &test.later)
		if swapped := first == &test.later && second == &test.noted; swapped != test.swapped {
			t.Errorf("%s: swapped %v, want %v", name, swapped, test.swapped)
		}
	}
}
