package load

import (
	"testing"
)

func received(t *testing.T, numbers ...uint32) *ledger {
	t.Helper()
	l := newLedger(1)
	for _, n := range numbers {
		if err := l.receive(0, stamp{run: 1, number: n}); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func TestSettleComparesReceivedAndPublished(t *testing.T) {
	published := map[flow]int64{{0, 0}: 70}
	all := make([]uint32, 70)
	for i := range all {
		all[i] = uint32(i)
	}
	for name, c := range map[string]struct {
		ledgers []*ledger
		ok      bool
	}{
		"all":                          {[]*ledger{received(t, all...)}, true},
		"two consumers":                {[]*ledger{received(t, all[:33]...), received(t, all[33:]...)}, true},
		"first lost":                   {[]*ledger{received(t, all[1:]...)}, false},
		"last lost":                    {[]*ledger{received(t, all[:69]...)}, false},
		"middle lost":                  {[]*ledger{received(t, append(all[:64:64], all[65:]...)...)}, false},
		"all lost":                     {[]*ledger{received(t)}, false},
		"one delivered to both":        {[]*ledger{received(t, all[:33]...), received(t, all[32:]...)}, false},
		"one unpublished":              {[]*ledger{received(t, append(all[:70:70], 70)...)}, false},
		"one lost and one unpublished": {[]*ledger{received(t, append(all[:69:69], 70)...)}, false},
	} {
		if err := settle(published, c.ledgers); (err == nil) != c.ok {
			t.Errorf("%s: got %v, want success %t", name, err, c.ok)
		}
	}
}

func TestLedgerRejectsDistantNumbers(t *testing.T) {
	if err := newLedger(1).receive(0, stamp{run: 1, number: furthest + 1}); err == nil {
		t.Error("number beyond the limit accepted")
	}
}

func TestWindowCountsConfirmsOnce(t *testing.T) {
	w := newWindow(100)
	if n := w.reserve(10); n != 10 {
		t.Fatalf("reserve in a window of 100: got %d, want 10", n)
	}
	for _, ack := range []struct {
		tag      uint64
		multiple bool
	}{{3, false}, {1, false}, {5, true}, {7, false}, {10, true}} {
		if err := w.ack(ack.tag, ack.multiple); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := w.flush(); n != 10 || err != nil {
		t.Errorf("confirmed: got %d, %v, want 10", n, err)
	}
	if err := w.ack(7, false); err == nil {
		t.Error("second confirm accepted")
	}
}

func TestWindowRejectsConfirmsOfUnsentMessages(t *testing.T) {
	w := newWindow(100)
	w.reserve(1)
	if err := w.ack(2, true); err != nil {
		t.Fatal(err)
	}
	if _, err := w.flush(); err == nil {
		t.Error("confirm of an unsent message accepted")
	}
}

func TestWindowLimitsMessagesInFlight(t *testing.T) {
	w := newWindow(3)
	if n := w.reserve(10); n != 3 {
		t.Fatalf("reserve: got %d, want 3", n)
	}
	if err := w.ack(2, true); err != nil {
		t.Fatal(err)
	}
	if _, err := w.flush(); err != nil {
		t.Fatal(err)
	}
	if n := w.reserve(10); n != 2 {
		t.Errorf("reserve after two confirms: got %d, want 2", n)
	}
	w.close()
	if n := w.reserve(10); n != 0 {
		t.Errorf("reserve in a closed window: got %d, want 0", n)
	}
}

func TestShareAssignsEveryQueue(t *testing.T) {
	for _, c := range []struct{ takers, queues int }{{1, 1}, {1, 7}, {3, 7}, {7, 3}, {5, 5}} {
		served := make(map[int]bool)
		for i := range c.takers {
			mine := share(i, c.takers, c.queues)
			if len(mine) == 0 {
				t.Errorf("%+v: taker %d has no queue", c, i)
			}
			for _, q := range mine {
				served[q] = true
			}
		}
		if len(served) != c.queues {
			t.Errorf("%+v: queues with a taker: got %d, want %d", c, len(served), c.queues)
		}
	}
}
