package demo

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/preset"
)

// accounts contains the reports of the producer, the workers and the broker, by message ID.
// IDs of this run start with prefix.
type accounts struct {
	prefix      string
	confirmed   []string        // producer: the broker confirmed the message
	unconfirmed []string        // producer: the outcome of the publish is unknown
	handled     map[string]int  // handlers: number of times that a handler returned nil
	debounced   map[string]bool // workers: an equal message replaced the message
	failed      []parkedMessage // broker: the failed queue
	waiting     []string        // broker: the other queues
}

// parkedMessage is a message in the failed queue.
type parkedMessage struct {
	id     string
	errors []string // of its attempts, from the exceptions header
}

// ledger is the balance of accounts. Each message counts once. A message that was handled but is still in a queue
// counts as failed or waiting, not as done.
type ledger struct {
	in, done, failed, waiting int

	burst       int      // part of done: debounced
	unconfirmed int      // part of in: no confirm
	refused     int      // no confirm and no delivery
	again       int      // repeated successes of handlers for the same message
	missing     []string // message IDs
	reasons     []reason
}

// reason is the last error of failed messages.
type reason struct {
	text     string
	messages int
	attempts int // maximum of all messages
}

func (a accounts) balance() ledger {
	var l ledger
	where := map[string]*int{} // waiting takes precedence over done, and failed over both
	for id := range a.debounced {
		where[id] = &l.done
	}
	for id := range a.handled {
		where[id] = &l.done
	}
	for _, id := range a.waiting {
		where[id] = &l.waiting
	}
	for _, p := range a.failed {
		where[p.id] = &l.failed
	}
	for _, id := range a.confirmed {
		l.in++
		if column := where[id]; column != nil {
			*column++
		} else {
			l.missing = append(l.missing, id)
		}
	}
	for _, id := range a.unconfirmed {
		if column := where[id]; column != nil {
			*column++
			l.in++
			l.unconfirmed++
		} else {
			l.refused++
		}
	}
	for id := range a.debounced {
		if a.handled[id] == 0 && where[id] == &l.done && strings.HasPrefix(id, a.prefix) {
			l.burst++
		}
	}
	for id, times := range a.handled {
		if strings.HasPrefix(id, a.prefix) {
			l.again += times - 1
		}
	}
	slices.Sort(l.missing)
	l.reasons = reasonsOf(a.failed)
	return l
}

// balanced reports whether in = done + failed + waiting.
func (l ledger) balanced() bool {
	return len(l.missing) == 0 && l.in == l.done+l.failed+l.waiting
}

var mbid = regexp.MustCompile(`([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// shorten returns the first line of an error, with short release ids.
func shorten(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	return mbid.ReplaceAllString(text, "$1…")
}

// reasonsOf groups parked messages by their last error, the most frequent first.
func reasonsOf(all []parkedMessage) []reason {
	groups := map[string]reason{}
	for _, p := range all {
		text := "(no recorded error)"
		if len(p.errors) > 0 {
			text = shorten(p.errors[len(p.errors)-1])
		}
		g := groups[text]
		groups[text] = reason{text: text, messages: g.messages + 1, attempts: max(g.attempts, len(p.errors))}
	}
	return slices.SortedFunc(maps.Values(groups), func(a, b reason) int {
		return cmp.Or(b.messages-a.messages, cmp.Compare(a.text, b.text))
	})
}

// printLedger prints the balance.
func (r *run) printLedger() error {
	a := accounts{
		prefix: r.producer.prefix, confirmed: r.producer.confirmed, unconfirmed: r.producer.unconfirmed,
		handled: r.indexer.successes(), debounced: r.tracker.duplicates(),
	}
	if err := a.askBroker(r.client); err != nil {
		return err
	}
	l := a.balance()
	r.screen.print(append([]line{{}}, ledgerLines(l, r.o, r.screen.width)...)...)
	if !l.balanced() {
		return ErrUnbalanced
	}
	return nil
}

// askBroker reads the queues after the workers have stopped. It reads the wait queue first. A message that expires
// after that is in a work queue, which is read later.
func (a *accounts) askBroker(c *reprise.Client) error {
	for _, queue := range []string{
		preset.CoverArtRetryQueue, preset.CoverArtIndexQueue, preset.CoverArtDeleteQueue, preset.CoverArtMoveQueue,
		preset.CoverArtFailedQueue,
	} {
		err := c.Peek(context.Background(), queue, math.MaxInt, func(m *reprise.Delivery) {
			switch {
			case !strings.HasPrefix(m.MessageID, a.prefix): // message of an earlier run or of another program
			case queue == preset.CoverArtFailedQueue:
				a.failed = append(a.failed, parkedMessage{id: m.MessageID, errors: exceptions(m)})
			default:
				a.waiting = append(a.waiting, m.MessageID)
			}
		})
		if err != nil {
			return fmt.Errorf("demo: cannot read queue %s: %w", queue, err)
		}
	}
	return nil
}

func exceptions(m *reprise.Delivery) (texts []string) {
	list, _ := m.Headers[preset.CoverArtExceptionsHeader].([]any)
	for _, x := range list {
		if s, ok := x.(string); ok {
			texts = append(texts, s)
		}
	}
	return texts
}

// maxNamed is the number of missing messages that are listed.
const maxNamed = 10

// ledgerLines returns the balance, the reasons for failures, and the next steps.
func ledgerLines(l ledger, o Options, width int) []line {
	lines := []line{line{}.add(bold, "ledger").to(21).add(dim, "compared by message ID, after the workers stopped")}
	for _, row := range []struct {
		style  style
		name   string
		n      int
		always bool // shown even if n is 0
		what   string
	}{
		{normal, "in", l.in, true, "producer: published, and confirmed by the broker"},
		{green, "done", l.done, true, "workers: handled without an error"},
		{normal, "debounced", l.burst, false, "part of done: replaced by a later equal event"},
		{red, "failed", l.failed, true, "broker: in " + preset.CoverArtFailedQueue},
		{yellow, "waiting", l.waiting, true, "broker: in the other queues"},
		{normal, "repeated", l.again, false, "deliveries of messages that were done; not counted above"},
		{normal, "arrived", l.unconfirmed, false, "part of in: arrived without a publisher confirm"},
		{normal, "refused", l.refused, false, "neither confirmed nor delivered; not counted above"},
		{red, "missing", len(l.missing), false, "in no queue, and not done"},
	} {
		if row.always || row.n > 0 {
			lines = append(lines, line{}.add(row.style, "  "+row.name).to(12).add(row.style, fmt.Sprintf("%6d", row.n)).to(21).add(dim, row.what))
		}
	}
	lines = append(lines, line{})
	sum := fmt.Sprintf("%d = %d + %d + %d", l.in, l.done, l.failed, l.waiting)
	if l.balanced() {
		lines = append(lines, line{}.add(green, "✓ ").add(bold, sum).add(normal, "   every message is accounted for, none was lost"))
	} else {
		lines = append(lines, line{}.add(red, "✗ ").add(bold, strings.Replace(sum, "=", "≠", 1)).add(red, "   messages are missing"))
		for i, id := range l.missing {
			if i == maxNamed {
				lines = append(lines, line{}.add(normal, fmt.Sprintf("    and %d more", len(l.missing)-i)))
				break
			}
			lines = append(lines, line{}.add(normal, "    "+id))
		}
	}
	if len(l.reasons) > 0 {
		lines = append(lines, line{}, line{}.add(bold, "errors").to(21).add(dim, "of the failed messages, from the header "+preset.CoverArtExceptionsHeader))
	}
	for _, r := range l.reasons {
		head := line{}.add(red, fmt.Sprintf("%4d ×", r.messages)).add(dim, "  "+terminal.Plural(r.attempts, "attempt")).to(21)
		lines = append(lines, wrapped(head, normal, r.text, width)...)
	}
	return append(append(lines, line{}), nextLines(o)...)
}

func nextLines(o Options) []line {
	where := func(name, what string) line { return line{}.add(cyan, "  "+name).to(29).add(dim, what) }
	lines := []line{line{}.add(bold, "next steps")}
	lines = append(lines,
		where("examples/coverart", "the complete indexer, with PostgreSQL and S3"),
		where("internal/preset", "the exchanges and queues of the real system"),
	)
	if o.BrokerURL == "" {
		lines = append(lines, where("reprise demo --url URL", "the demo on RabbitMQ; failed messages stay there"))
	} else {
		lines = append(lines, where("your broker", "the failed messages in "+preset.CoverArtFailedQueue))
	}
	lines = append(lines, where(fmt.Sprintf("reprise demo --seed %d", o.Seed), "a demo with the same events"))
	if o.Once {
		lines = append(lines, where("reprise demo", "a demo that runs until Ctrl-C"))
	}
	return append(lines, where("reprise --help", "how to run your own workers"))
}
