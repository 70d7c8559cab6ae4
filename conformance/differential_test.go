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

// A script is played on the embedded broker and on RabbitMQ 4.3 at the same time, and whatever can be seen of the two is
// compared after each operation, and at the end what is in the queues.
//
// Most of RabbitMQ is asynchronous, so the two are looked at until they show the same. They may do so before they are done,
// and be overtaken by the next operation; so a script that fails is played again, with time between the operations to come
// to rest, and only what differs then is a difference.
type script []operation

func (s script) String() string {
	var b strings.Builder
	for i, o := range s {
		fmt.Fprintf(&b, "%3d  %v\n", i+1, o)
	}
	return b.String()
}

// queues are those that the script names, exchanges likewise.
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

// pair is the two brokers, and how patient to be with the one that is not ours.
type pair struct {
	ours, theirs *player
	rest         time.Duration // after each operation
	within       time.Duration // is the same to be seen
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

// differ plays a script and returns how the brokers differ; empty: they do not.
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
	for c := range on(2) {
		if d := b.same(func(p *player) string { return p.close(c) }); d != "" {
			return fmt.Sprintf("after %v closed its channel at the end:\n%s", c, d)
		}
	}
	for _, q := range b.ours.queues {
		// What another queue gave up when it was drained may be on its way to this one.
		if d := b.same(func(*player) string { return "" }); d != "" {
			return fmt.Sprintf("before %s was drained:\n%s", q, d)
		}
		if d := compare(b.ours.drain(q), b.theirs.drain(q)); d != "" {
			return fmt.Sprintf("in %s at the end:\n%s", q, d)
		}
	}
	return ""
}

// same does something to both and returns how they differ.
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

// A run has few scripts, always the same ones, so that it takes little time and what fails fails again.
// For others, and more of them:
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
	flags.Default(t, "rapid.nofailfile", "true") // the script itself is printed
	flags.Default(t, "rapid.shrinktime", "0s")   // see shrink
	var differs script
	var how string
	defer func() {
		if differs != nil {
			small, how := b.shrink(differs, how)
			t.Logf("as small as it gets:\n%s%s", small, how)
		}
	}()
	rapid.Check(t, func(t *rapid.T) {
		s := scripts.Draw(t, "script")
		if s.String() != differs.String() || differs == nil { // a script that failed is run again to be sure
			how = b.differ(s)
		}
		if how != "" {
			differs = s
			t.Fatalf("the brokers differ:\n%s%s", s, how)
		}
	})
}
