package conformance

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/internal/testkit/flags"
)

// script is a sequence of operations. The test plays a script on the embedded broker and on RabbitMQ 4.3, one operation
// after another. It compares the observable states after each operation, and the messages in the queues at the end.
//
// RabbitMQ is mostly asynchronous, so the test polls both brokers until their states are equal. The states can become
// equal before the brokers have completed the operation, and the next operation can then overtake it. If a script
// fails, the test therefore plays the script again, with pauses between the operations, and reports only a difference
// in the second run.
type script []operation

func (s script) String() string {
	var b strings.Builder
	for i, o := range s {
		fmt.Fprintf(&b, "%3d  %v\n", i+1, o)
	}
	return b.String()
}

// queues and exchanges return the names of the queues and exchanges that the script declares.
func (s script) queues() []string    { return s.declared('q') }
func (s script) exchanges() []string { return s.declared('x') }

func (s script) declared(kind byte) []string {
	var names []string
	for _, o := range s {
		if o, ok := o.(method); ok {
			switch m := o.m.(type) {
			case *amqpwire.QueueDeclare:
				names = append(names, m.Queue)
			case *amqpwire.ExchangeDeclare:
				names = append(names, m.Exchange)
			}
		}
	}
	names = slices.DeleteFunc(names, func(n string) bool { return n[0] != kind })
	slices.Sort(names)
	return slices.Compact(names)
}

// pair contains the two brokers, and the pauses and timeouts of the comparison.
type pair struct {
	ours, theirs *player
	rest         time.Duration // pause after each operation
	within       time.Duration // maximum time until the states are equal
}

func brokers(t *testing.T) pair {
	t.Helper()
	for _, b := range testkit.RabbitMQs() {
		if b.Version == "4.3" {
			b.Require(t)
			return pair{ours: &player{t: t, broker: testkit.Embedded(t)}, theirs: &player{t: t, broker: b}}
		}
	}
	panic("no RabbitMQ 4.3 is known")
}

// differ plays a script, if necessary twice, and returns the difference between the brokers, or "".
func (b pair) differ(s script) string {
	b.rest, b.within = 0, time.Second
	if b.play(s) == "" {
		return ""
	}
	b.rest, b.within = 60*time.Millisecond, 30*time.Second
	return b.play(s)
}

func (b pair) play(s script) string {
	var random [4]byte
	_, _ = rand.Read(random[:])
	prefix := "differential." + hex.EncodeToString(random[:]) + "."
	for _, p := range []*player{b.ours, b.theirs} {
		p.begin(s, prefix)
		defer p.clean(s)
	}
	for i, o := range s {
		if d := b.same(o.do); d != "" {
			return fmt.Sprintf("after line %d, %v:\n%s", i+1, o, d)
		}
	}
	for c := range clientIndex(2) {
		if d := b.same(func(p *player) string { return p.close(c) }); d != "" {
			return fmt.Sprintf("after %v closed its channel at the end:\n%s", c, d)
		}
	}
	for _, q := range b.ours.queues {
		// The removal of messages from another queue may have led to dead letters in this queue.
		if d := b.same(func(*player) string { return "" }); d != "" {
			return fmt.Sprintf("before %s was drained:\n%s", q, d)
		}
		if d := compare(b.ours.drain(q), b.theirs.drain(q)); d != "" {
			return fmt.Sprintf("in %s at the end:\n%s", q, d)
		}
	}
	return ""
}

// same performs an operation on both brokers and returns the difference between their states, or "".
func (b pair) same(do func(*player) string) string {
	b.ours.advance()
	b.theirs.advance()
	our, their := do(b.ours), do(b.theirs)
	time.Sleep(b.rest)
	deadline := time.Now().Add(b.within)
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		d := compare(our+"\n"+b.ours.look(), their+"\n"+b.theirs.look())
		if d == "" || time.Now().After(deadline) {
			return d
		}
		time.Sleep(pause)
	}
}

func compare(ours, theirs string) string {
	if ours == theirs {
		return ""
	}
	o, t := strings.Split(ours, "\n"), strings.Split(theirs, "\n")
	var b strings.Builder
	for _, l := range o {
		if !slices.Contains(t, l) {
			fmt.Fprintf(&b, "  only embedded:  %s\n", l)
		}
	}
	for _, l := range t {
		if !slices.Contains(o, l) {
			fmt.Fprintf(&b, "  only RabbitMQ:  %s\n", l)
		}
	}
	if b.Len() == 0 {
		fmt.Fprintf(&b, "embedded:\n%s\nRabbitMQ:\n%s\n", ours, theirs)
	}
	return b.String()
}

// A normal run plays a few fixed scripts, so that it is short and failures are reproducible. The following command plays
// more scripts:
//
//	go test ./conformance -run TestDifferential -timeout 0 -rapid.checks=10000 -rapid.seed=$RANDOM
const (
	checks = "50"
	seed   = "1"
)

func TestDifferential(t *testing.T) {
	b := brokers(t)
	flags.Default(t, "rapid.checks", checks)
	flags.Default(t, "rapid.seed", seed)
	flags.Default(t, "rapid.nofailfile", "true") // the test prints the script
	flags.Default(t, "rapid.shrinktime", "0s")   // the test has its own shrink
	var differs script
	var how string
	defer func() {
		if differs != nil {
			small, how := b.shrink(differs, how)
			t.Logf("smallest failing script:\n%s%s", small, how)
		}
	}()
	rapid.Check(t, func(t *rapid.T) {
		s := scripts.Draw(t, "script")
		if s.String() != differs.String() || differs == nil { // rapid repeats a failed script that differ has already verified
			how = b.differ(s)
		}
		if how != "" {
			differs = s
			t.Fatalf("brokers differ:\n%s%s", s, how)
		}
	})
}
