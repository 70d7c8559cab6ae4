package simulation

import (
	"testing"
	"time"
)

func TestInOrderSortsRunsByDelivery(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		noted, later Run
		swapped      bool
	}{
		"redelivered later":                        {Run{Began: now}, Run{Began: now.Add(time.Second), Redelivered: true}, false},
		"redelivered at the same time":             {Run{Began: now}, Run{Began: now, Redelivered: true}, false},
		"first delivery recorded after the second": {Run{Began: now, Redelivered: true}, Run{Began: now}, true},
		"redelivered, then without the flag":       {Run{Began: now, Redelivered: true}, Run{Began: now.Add(time.Second)}, false},
		"both redelivered":                         {Run{Began: now, Redelivered: true}, Run{Began: now, Redelivered: true}, false},
	} {
		first, second := inOrder(&test.noted, &test.later)
		if swapped := first == &test.later && second == &test.noted; swapped != test.swapped {
			t.Errorf("%s: swapped: got %v, want %v", name, swapped, test.swapped)
		}
	}
}
