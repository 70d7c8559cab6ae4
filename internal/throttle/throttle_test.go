package throttle

import (
	"fmt"
	"testing"
	"time"
)

const longest = time.Minute

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// clocked returns a throttle and its clock.
func clocked() (*Throttle, *time.Time) {
	now := noon
	return New(func() time.Time { return now }, longest), &now
}

// wait returns the wait before the next try. It does not count a mistake.
func (t *Throttle) wait(peer, name string) time.Duration { return t.Try(peer, name, true) }

func TestWaitsGrow(t *testing.T) {
	th, now := clocked()
	for range FreeMistakes {
		if wait := th.Try("192.0.2.1:1", "ada", false); wait != 0 {
			t.Fatalf("wait %v after a free mistake", wait)
		}
	}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		want *= time.Second
		for _, right := range []bool{true, false} {
			if wait := th.Try("192.0.2.1:2", "ada", right); wait != want {
				t.Errorf("waits %v, want %v", wait, want)
			}
		}
		*now = now.Add(want)
		if wait := th.wait("192.0.2.1:1", "ada"); wait != 0 {
			t.Errorf("the right one waits %v, when the wait is over", wait)
		}
		th.Try("192.0.2.1:1", "ada", false)
	}
	*now = now.Add(kept + time.Second)
	th.Try("192.0.2.1:1", "ada", false)
	if wait := th.wait("192.0.2.1:1", "ada"); wait != 0 {
		t.Errorf("after an hour without a mistake, one makes a wait of %v", wait)
	}
}

// guess tries as often as possible for the given time, and returns the number of tries that counted.
func guess(th *Throttle, now *time.Time, duration time.Duration, name func(i int) string) (counted int) {
	for end := now.Add(duration); now.Before(end); {
		least := longest
		for i := range 2 * MostNames {
			wait := th.Try("192.0.2.1:1", name(i), false)
			if wait == 0 {
				counted++
			}
			least = min(least, wait)
		}
		*now = now.Add(least)
	}
	return counted
}

func TestThrottleLimitsTriesPerHour(t *testing.T) {
	th, now := clocked()
	if n := guess(th, now, time.Hour, func(int) string { return "ada" }); n != 69 {
		t.Errorf("%d tries for a name in an hour, want 69", n)
	}
	th, now = clocked()
	if n := guess(th, now, time.Hour, func(i int) string { return fmt.Sprint(i) }); n > 69*(MostNames+1) {
		t.Errorf("%d tries for all names in an hour, want %d at the most", n, 69*(MostNames+1))
	}
}

// A program with an old password does not block the other programs on its machine.
func TestThrottleCountsNamesSeparately(t *testing.T) {
	th, now := clocked()
	for range 2 * FreeMistakes {
		th.Try("192.0.2.1:1", "ada", false)
	}
	if th.wait("192.0.2.1:1", "ada") == 0 || th.wait("192.0.2.1:1", "bob") != 0 {
		t.Error("ada does not wait, or bob waits because of her mistakes")
	}
	// A client that tries out names makes all further names of its address wait.
	for i := range MostNames + FreeMistakes {
		th.Try("192.0.2.1:1", fmt.Sprint(i), false)
	}
	if th.wait("192.0.2.1:1", "bob") == 0 || th.wait("192.0.2.2:1", "bob") != 0 {
		t.Error("a guesser of names does not wait, or another address waits")
	}
	if th.wait("192.0.2.1:1", "ada") == 0 {
		t.Error("the throttle forgot a guessed name because of other names")
	}
	*now = now.Add(kept + time.Second)
	if th.wait("192.0.2.1:1", "bob") != 0 || th.Try("192.0.2.1:1", "bob", false) != 0 || th.wait("192.0.2.1:1", "eve") != 0 {
		t.Error("mistakes count after an hour")
	}
}

// A subscriber can use any number of IPv6 addresses, all in one network.
func TestNetworks(t *testing.T) {
	th, _ := clocked()
	for i := range FreeMistakes {
		th.Try(fmt.Sprintf("[2001:db8:0:1::%d]:1", i+1), "", false)
	}
	if th.wait("[2001:db8:0:1:ffff::9%eth0]:7", "") == 0 {
		t.Error("another address of the network does not wait")
	}
	if th.wait("[2001:db8:0:2::1]:1", "") != 0 {
		t.Error("another network waits, too")
	}
	if Network("[::ffff:192.0.2.1]:1") != Network("192.0.2.1:2") {
		t.Error("one address has two keys")
	}
}

func TestThrottleIsBounded(t *testing.T) {
	th, _ := clocked()
	const guesser = "192.0.2.1:1"
	for i := range 3 * MostAddresses {
		th.Try(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255), "ada", false)
		th.Try("192.0.2.2:1", fmt.Sprint(i), false)
		if i%1000 == 0 {
			th.Try(guesser, "ada", false)
		}
	}
	if n := th.addresses.Len(); n != MostAddresses {
		t.Errorf("%d addresses", n)
	}
	if a, _ := th.addresses.Get(Network("192.0.2.2:1")); len(a.names) != MostNames {
		t.Errorf("%d names of an address", len(a.names))
	}
	if th.wait(guesser, "ada") == 0 {
		t.Error("the throttle forgot an active guesser")
	}
}
