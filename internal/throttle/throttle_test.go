package throttle

import (
	"fmt"
	"testing"
	"time"
)

const longest = time.Minute

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// newThrottle returns a throttle and its clock.
func newThrottle() (*Throttle, *time.Time) {
	now := noon
	return New(func() time.Time { return now }, longest), &now
}

// wait returns the time until the next permitted try, without counting a mistake.
func (t *Throttle) wait(peer, name string) time.Duration { return t.Try(peer, name, true) }

func TestThrottleDoublesWait(t *testing.T) {
	th, now := newThrottle()
	for range FreeMistakes {
		if wait := th.Try("192.0.2.1:1", "ada", false); wait != 0 {
			t.Fatalf("wait after a free mistake: got %v, want 0", wait)
		}
	}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		want *= time.Second
		for _, right := range []bool{true, false} {
			if wait := th.Try("192.0.2.1:2", "ada", right); wait != want {
				t.Errorf("wait: got %v, want %v", wait, want)
			}
		}
		*now = now.Add(want)
		if wait := th.wait("192.0.2.1:1", "ada"); wait != 0 {
			t.Errorf("wait with the right password after the wait: got %v, want 0", wait)
		}
		th.Try("192.0.2.1:1", "ada", false)
	}
	*now = now.Add(mistakeLifetime + time.Second)
	th.Try("192.0.2.1:1", "ada", false)
	if wait := th.wait("192.0.2.1:1", "ada"); wait != 0 {
		t.Errorf("wait after an hour without mistakes and a mistake: got %v, want 0", wait)
	}
}

// guess tries as often as the throttle permits for the given duration, and returns the number of permitted tries.
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
	th, now := newThrottle()
	if n := guess(th, now, time.Hour, func(int) string { return "ada" }); n != 69 {
		t.Errorf("tries for a name in an hour: got %d, want 69", n)
	}
	th, now = newThrottle()
	if n := guess(th, now, time.Hour, func(i int) string { return fmt.Sprint(i) }); n > 69*(MostNames+1) {
		t.Errorf("tries for all names in an hour: got %d, want at most %d", n, 69*(MostNames+1))
	}
}

// A program with an old password does not block the other programs on its machine.
func TestThrottleCountsNamesSeparately(t *testing.T) {
	th, now := newThrottle()
	for range 2 * FreeMistakes {
		th.Try("192.0.2.1:1", "ada", false)
	}
	if th.wait("192.0.2.1:1", "ada") == 0 || th.wait("192.0.2.1:1", "bob") != 0 {
		t.Error("ada does not wait, or bob waits because of the mistakes of ada")
	}
	// If a client tries many names, all further names from its address must wait.
	for i := range MostNames + FreeMistakes {
		th.Try("192.0.2.1:1", fmt.Sprint(i), false)
	}
	if th.wait("192.0.2.1:1", "bob") == 0 || th.wait("192.0.2.2:1", "bob") != 0 {
		t.Error("client that guesses names does not wait, or another address waits")
	}
	if th.wait("192.0.2.1:1", "ada") == 0 {
		t.Error("throttle forgot a guessed name because of other names")
	}
	*now = now.Add(mistakeLifetime + time.Second)
	if th.wait("192.0.2.1:1", "bob") != 0 || th.Try("192.0.2.1:1", "bob", false) != 0 || th.wait("192.0.2.1:1", "eve") != 0 {
		t.Error("mistakes still count after an hour")
	}
}

// A client can use any number of IPv6 addresses of its network.
func TestThrottleCountsIPv6Networks(t *testing.T) {
	th, _ := newThrottle()
	for i := range FreeMistakes {
		th.Try(fmt.Sprintf("[2001:db8:0:1::%d]:1", i+1), "", false)
	}
	if th.wait("[2001:db8:0:1:ffff::9%eth0]:7", "") == 0 {
		t.Error("another address of the network does not wait")
	}
	if th.wait("[2001:db8:0:2::1]:1", "") != 0 {
		t.Error("another network waits")
	}
	if Network("[::ffff:192.0.2.1]:1") != Network("192.0.2.1:2") {
		t.Error("IPv4-mapped address and IPv4 address have different keys")
	}
}

func TestThrottleLimitsAddressesAndNames(t *testing.T) {
	th, _ := newThrottle()
	const guesser = "192.0.2.1:1"
	for i := range 3 * MostAddresses {
		th.Try(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255), "ada", false)
		th.Try("192.0.2.2:1", fmt.Sprint(i), false)
		if i%1000 == 0 {
			th.Try(guesser, "ada", false)
		}
	}
	if n := th.addresses.Len(); n != MostAddresses {
		t.Errorf("number of addresses: got %d, want %d", n, MostAddresses)
	}
	if a, _ := th.addresses.Get(Network("192.0.2.2:1")); len(a.names) != MostNames {
		t.Errorf("number of names of an address: got %d, want %d", len(a.names), MostNames)
	}
	if th.wait(guesser, "ada") == 0 {
		t.Error("throttle forgot an active client")
	}
}
