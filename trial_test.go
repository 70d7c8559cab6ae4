package reprise

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"pgregory.net/rapid"
)

// running returns a channel on which nobody answers yet.
func running() *confirming {
	open := make(chan struct{})
	close(open)
	s := newConfirming()
	s.trials = newTrials("me")
	s.conn = &conn{writable: open, socket: &socket{}}
	return s
}

// novelty is what tells messages of a trial apart.
type novelty struct {
	exchange, user string
	size           int
	pause          bool // after it, until everything is answered
}

// What is on trial is in flight with its like only. What was answered is on trial
// no more; and as long as the broker answers, nobody waits for longer than that.
func TestTrialsKeepMessagesApart(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		kinds := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) novelty {
			return novelty{
				rapid.SampledFrom([]string{"", "", "x", "y"}).Draw(t, "exchange"),
				rapid.SampledFrom([]string{"", "", "me", "other"}).Draw(t, "user"),
				rapid.SampledFrom([]int{0, 0, 0, harmless, harmless + 1, harmless + 2}).Draw(t, "size"),
				rapid.Bool().Draw(t, "pause"),
			}
		}), 1, 40).Draw(rt, "messages")
		latency := rapid.SampledFrom([]time.Duration{time.Millisecond, 300 * time.Millisecond}).Draw(rt, "latency")
		var err error
		synctest.Test(t, func(*testing.T) { err = playTrials(kinds, latency) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// playTrials publishes messages, which are all answered after the latency, and
// says what was wrong about it.
func playTrials(kinds []novelty, latency time.Duration) error {
	s := running()
	defer func() {
		time.Sleep(2 * latency)
		close(s.closes)
		close(s.returns)
		close(s.answers)
		s.listen()
	}()
	exchanges, users, largest := map[string]bool{}, map[string]bool{"": true, "me": true}, harmless
	for i, k := range kinds {
		p := pub(k.exchange, "k", "id", strings.Repeat("b", k.size))
		p.msg.UserId = k.user
		began := time.Now()
		s.room <- struct{}{}
		if !s.admit(context.Background(), p) {
			return errors.New("the channel is gone")
		}
		s.register(uint64(i+1), p)
		if waited := time.Since(began); waited > latency {
			return fmt.Errorf("message %d waited for %v", i, waited)
		}
		fresh := !exchanges[k.exchange] || !users[k.user] || k.size > largest
		if fresh && p.trial == (trial{}) {
			return fmt.Errorf("message %d is new, and not on trial", i)
		}
		s.mu.Lock()
		beside := slices.Collect(maps.Values(s.inFlight))
		s.mu.Unlock()
		for _, other := range beside {
			if other.trial != p.trial && (fresh || other.trial != (trial{})) {
				return fmt.Errorf("message %d (%+v) is in flight with one that is not its like (%+v)", i, p.trial, other.trial)
			}
			if k.size > largest && other != p {
				return fmt.Errorf("message %d of %d bytes is not alone", i, k.size)
			}
		}
		go func() {
			time.Sleep(latency)
			s.answer(uint64(i + 1))
		}()
		if k.pause {
			time.Sleep(2 * latency)
		}
		exchanges[k.exchange], users[k.user], largest = true, true, max(largest, k.size)
	}
	return nil
}

// A queue without a majority confirms nothing. What is new does not wait for it for
// ever, and what is not new does not wait at all.
func TestATrialDoesNotWaitForWhatIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := running()
		began := time.Now()
		step := func(tag uint64, exchange string, want time.Duration) {
			t.Helper()
			s.room <- struct{}{}
			if !s.admit(t.Context(), pub(exchange, "k", "id", "")) {
				t.Fatal("the channel is gone")
			}
			s.register(tag, pub(exchange, "k", "id", ""))
			if at := time.Since(began); at != want {
				t.Fatalf("message %d after %v, want %v", tag, at, want)
			}
		}
		step(1, "", 0)
		step(2, "stuck", trialPatience)
		step(3, "stuck", trialPatience)
		step(4, "", 2*trialPatience) // the other is known now
		step(5, "stuck", 2*trialPatience)
		step(6, "", 2*trialPatience)
		step(7, "new", 3*trialPatience)
	})
}

// Names are made up without end, say an exchange for each request.
func TestTrialsForget(t *testing.T) {
	known := newTrials("me")
	for i := range 3 * mostKnown {
		name := fmt.Sprint(i)
		known.learn(trial{exchange: name, user: name})
		p := pub(name, "k", "id", "")
		p.msg.UserId = name
		if known.of(p) != (trial{}) {
			t.Fatalf("%s is on trial again at once", name)
		}
	}
	if len(known.exchanges) > mostKnown || len(known.users) > mostKnown {
		t.Errorf("%d exchanges and %d users are known", len(known.exchanges), len(known.users))
	}
	p := pub("0", "k", "id", "")
	p.msg.UserId = "me"
	if n := known.of(p); n != (trial{exchange: "0"}) {
		t.Errorf("after all of them on trial: %+v", n)
	}
}

func TestWhoIsToBlame(t *testing.T) {
	const inVHost = " in vhost '/'"
	noExchange := &amqp.Error{Code: 404, Reason: "NOT_FOUND - no exchange 'x'" + inVHost, Server: true, Recover: true}
	mayNotWrite := &amqp.Error{Code: 403, Reason: "ACCESS_REFUSED - write access to exchange 'x'" + inVHost + " refused for user 'me'", Server: true, Recover: true}
	mayNotWriteDefault := &amqp.Error{Code: 403, Reason: "ACCESS_REFUSED - access to exchange 'amq.default'" + inVHost + " refused for user 'me'", Server: true, Recover: true}
	topic := &amqp.Error{Code: 403, Reason: "ACCESS_REFUSED - write access to topic 'k' in exchange 'x'" + inVHost + " refused for user 'me'", Server: true, Recover: true}
	wrongUser := &amqp.Error{Code: 406, Reason: "PRECONDITION_FAILED - user_id property set to 'u' but authenticated user was 'me'", Server: true, Recover: true}
	tooLarge := &amqp.Error{Code: 406, Reason: "PRECONDITION_FAILED - message size 11 is larger than configured max size 10", Server: true, Recover: true}
	lost := &amqp.Error{Code: 501, Reason: "EOF"}
	forced := &amqp.Error{Code: 320, Reason: "CONNECTION_FORCED - shutdown", Server: true}
	x, y := trial{exchange: "x"}, trial{exchange: "y"}
	for name, tc := range map[string]struct {
		pub     *publication
		of      trial
		present trial
		reason  *amqp.Error
		sole    bool
		want    string // of the error; "" for none
	}{
		"no such exchange":                    {pub("x", "k", "", ""), x, x, noExchange, false, `unroutable: exchange "x" does not exist`},
		"another exchange":                    {pub("y", "k", "", ""), y, x, noExchange, false, ""},
		"an exchange that was there before":   {pub("x", "k", "", ""), x, trial{}, noExchange, false, ""},
		"the only message":                    {pub("x", "k", "", ""), trial{}, trial{}, noExchange, true, `unroutable: exchange "x" does not exist`},
		"no permission":                       {pub("x", "k", "", ""), x, x, mayNotWrite, false, "refused the message for exchange \"x\""},
		"no permission: the default exchange": {pub("", "k", "", ""), trial{exchange: "amq.default"}, trial{exchange: "amq.default"}, mayNotWriteDefault, false, "refused the message for exchange \"\""},
		"one topic of many":                   {pub("x", "l", "", ""), x, x, topic, false, ""},
		"one topic":                           {pub("x", "k", "", ""), x, x, topic, true, "refused the message"},
		"another's user id":                   {pub("", "k", "", ""), trial{user: "u"}, trial{user: "u"}, wrongUser, false, "refused the message"},
		"too large":                           {pub("", "k", "", "01234567890"), trial{}, trial{}, tooLarge, false, "has 11 bytes, the broker takes 10 at most"},
		"not too large":                       {pub("", "k", "", "0123456789"), trial{}, trial{}, tooLarge, false, ""},
		"a lost connection":                   {pub("x", "k", "", ""), x, x, lost, true, ""},
		"a broker that goes down":             {pub("x", "k", "", ""), x, x, forced, true, ""},
	} {
		tc.pub.trial = tc.of
		err := blame(tc.pub, tc.reason, tc.present, tc.sole)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}
