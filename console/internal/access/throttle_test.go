package access

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestIsRandom(t *testing.T) {
	token, _ := NewToken()
	if !isRandom(token) {
		t.Errorf("%s is taken for made up", token)
	}
	for _, made := range []string{"", "guess", tokenPrefix, strings.TrimPrefix(token, tokenPrefix), token + "A", token[:len(token)-1], token[:len(token)-1] + "+"} {
		if isRandom(made) {
			t.Errorf("%s is taken for random", made)
		}
	}
}

// A subscriber has as many IPv6 addresses as they like, all in one network.
func TestThrottleKnowsNetworks(t *testing.T) {
	now := noon
	clock := func() time.Time { return now }
	th := NewThrottle(clock)
	for i := range FreeMistakes {
		th.note(throttleKey(fmt.Sprintf("[2001:db8:0:1::%d]:1", i+1)))
	}
	if th.wait(throttleKey("[2001:db8:0:1:ffff::9%eth0]:7")) == 0 {
		t.Error("another address of the network need not wait")
	}
	if th.wait(throttleKey("[2001:db8:0:2::1]:1")) != 0 {
		t.Error("another network waits, too")
	}
	if throttleKey("[::ffff:192.0.2.1]:1") != throttleKey("192.0.2.1:2") {
		t.Error("one address counts as two")
	}
}

func TestThrottleIsBounded(t *testing.T) {
	now := noon
	clock := func() time.Time { return now }
	th := NewThrottle(clock)
	address := func(i int) string { return fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255) }
	guesser := throttleKey("192.0.2.1:1")
	for i := range 3 * mostAddresses {
		th.note(throttleKey(address(i)))
		if i%1000 == 0 {
			th.note(guesser)
		}
	}
	if n := len(th.addresses.entries); n != mostAddresses || th.addresses.order.Len() != mostAddresses {
		t.Errorf("%d addresses, %d in order", n, th.addresses.order.Len())
	}
	if th.wait(guesser) == 0 {
		t.Error("who goes on guessing was forgotten")
	}
}

func TestSessionsAreBounded(t *testing.T) {
	now := noon
	clock := func() time.Time { return now }
	s := newSessions(clock)
	first := s.Begin(Token{})
	for range mostSessions {
		s.Begin(Token{})
	}
	if n := len(s.byID.entries); n != mostSessions || s.byID.order.Len() != mostSessions {
		t.Errorf("%d sessions, %d in order", n, s.byID.order.Len())
	}
	if _, ok := s.find(first); ok {
		t.Error("the oldest is still there")
	}
	now = noon.Add(SessionLife)
	s.Begin(Token{})
	if n := len(s.byID.entries); n != 1 {
		t.Errorf("%d sessions after all others have ended", n)
	}
}
