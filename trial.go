package reprise

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// trial is what is new about a message on a channel, and may cost that channel:
// the broker answers a message that it must not take by closing it, and says
// nothing more about the others in flight. So that one publisher's mistake does
// not leave others without an answer, messages that are on trial are in flight with
// their like only: first everything before them is answered, and then they are
// before anything else follows.
//
//	in flight:  a a a a │ x x │ a x b a x …
//	                    └──┬──┘
//	              x goes to an exchange for the first time
//
// A trial costs the channel one round trip of idleness. The zero trial is none.
type trial struct {
	exchange string // to which nothing was published before: it may not exist
	user     string // a UserID not seen before: it may be refused
	size     int    // of the body, larger than all before: it goes quite alone
}

// harmless is a size that every broker takes.
const harmless = 64 << 10

// trialPatience bounds how long a trial holds up others. The broker refuses at
// once; only a confirm may take long, and does not come where a queue has lost its
// majority. What was not refused meanwhile counts as accepted, though a broker that
// was silent for so long may still refuse it: that costs those in flight their answer
// (ErrUnconfirmed) once, since the next channel knows nothing. To go on doubting would
// cost everybody a second for each message, for as long as one queue is stuck.
const trialPatience = time.Second

// trials is what a channel has learned. Only its writer uses it.
type trials struct {
	user      string // whose name in UserID is nothing new
	exchanges map[string]bool
	users     map[string]bool
	largest   int
}

// mostKnown bounds how many names are remembered of a channel, or of a connection. Then
// it begins anew, at the price of another trial, or another question, for each.
const mostKnown = 10_000

// newTrials makes those of a user.
func newTrials(user string) trials {
	return trials{user: user, exchanges: map[string]bool{}, users: map[string]bool{}, largest: harmless}
}

// of returns what is new about a publication.
func (t *trials) of(pub *publication) (n trial) {
	if len(pub.msg.Body) > t.largest {
		n.size = len(pub.msg.Body)
	}
	if x := exchangeName(pub.exchange); !t.exchanges[x] {
		n.exchange = x
	}
	if u := pub.msg.UserID; u != "" && u != t.user && !t.users[u] {
		n.user = u
	}
	return n
}

// learn notes that messages like these were not refused, as far as one can wait.
func (t *trials) learn(n trial) {
	t.largest = max(t.largest, n.size)
	if n.exchange != "" {
		know(t.exchanges, n.exchange)
	}
	if n.user != "" {
		know(t.users, n.user)
	}
}

func know(names map[string]bool, name string) {
	if len(names) >= mostKnown {
		clear(names)
	}
	names[name] = true
}

// exchangeName is how the broker calls an exchange.
func exchangeName(name string) string {
	if name == "" {
		return "amq.default"
	}
	return name
}

// begin waits until pub may be in flight with what else is, and reports whether
// the channel is still there.
func (s *confirming) begin(pub *publication) bool {
	n := s.trials.of(pub)
	if n == s.trial && n.size == 0 {
		pub.trial = n
		return true
	}
	if !s.drain() {
		return false
	}
	s.trials.learn(s.trial)
	n = s.trials.of(pub)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trial, pub.trial = n, n
	return true
}

// drain waits until everything in flight is answered, or for the trialPatience, and
// reports whether the channel is still there. Whoever has all the room knows that
// nothing is in flight.
func (s *confirming) drain() bool {
	s.conn.Flush()
	timer := time.NewTimer(trialPatience)
	defer timer.Stop()
	taken := 1 // for what is to be written
	defer func() {
		for range taken - 1 {
			<-s.room
		}
	}()
	for ; taken < cap(s.room); taken++ {
		select {
		case s.room <- struct{}{}:
		case <-s.over:
			return false
		case <-timer.C:
			return true
		}
	}
	return true
}

// blame returns the error of a message that the broker has closed the channel for,
// or nil if it may be innocent. present is the trial that was under way; sole says
// that nothing else was in flight.
func blame(pub *publication, reason *amqp.Error, present trial, sole bool) error {
	if !reason.Server || !reason.Recover {
		return nil
	}
	if limit := sizeLimit(reason); limit > 0 {
		return tooLarge(pub, limit)
	}
	if !sole && (pub.trial != present || !present.explains(reason)) {
		return nil
	}
	if reason.Code == amqp.NotFound {
		return &UnroutableError{Exchange: pub.exchange, RoutingKey: pub.key, Code: reason.Code, Text: reason.Reason}
	}
	return &RefusedError{Exchange: pub.exchange, RoutingKey: pub.key, Code: reason.Code, Text: reason.Reason}
}

// explains reports whether the broker's words are about what was on trial. (Where
// they name a topic, other messages of the same trial may have been allowed.)
func (t trial) explains(reason *amqp.Error) bool {
	exchange := fmt.Sprintf("exchange '%s' in vhost", t.exchange)
	user := fmt.Sprintf("user_id property set to '%s' but", t.user)
	return t.exchange != "" && strings.Contains(reason.Reason, exchange) && !strings.Contains(reason.Reason, "topic '") ||
		t.user != "" && strings.Contains(reason.Reason, user)
}

var sizeRefused = regexp.MustCompile(`message size [0-9]+ is larger than configured max size ([0-9]+)`)

// sizeLimit is the largest body that the broker takes, if reason says so; else 0.
func sizeLimit(reason *amqp.Error) int {
	m := sizeRefused.FindStringSubmatch(reason.Reason)
	if m == nil {
		return 0
	}
	limit, err := strconv.Atoi(m[1])
	if err != nil {
		return 0
	}
	return limit
}

// tooLarge returns an error if pub is larger than limit, which is not known if it is 0.
func tooLarge(pub *publication, limit int) error {
	if size := len(pub.msg.Body); limit > 0 && size > limit {
		return &TooLargeError{Size: size, Limit: limit}
	}
	return nil
}
