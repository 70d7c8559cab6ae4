package demo

import (
	"fmt"
	"strings"

	"github.com/reprisemq/reprise/topology/preset"
)

// maxNamed is how many lost messages are named.
const maxNamed = 10

// ledgerLines show the balance, the reasons of what failed, and where to look next.
func ledgerLines(l ledger, o Options, width int) []line {
	var lines []line
	row := func(s style, name string, n int, what string) {
		lines = append(lines, line{}.add(s, "  "+name).to(12).add(s, fmt.Sprintf("%6d", n)).to(21).add(dim, what))
	}
	lines = append(lines, line{}.add(bold, "ledger").to(21).add(dim, "counted when the workers had stopped, message by message"))
	row(normal, "in", l.in, "published, says the producer: the broker confirmed them")
	row(green, "done", l.done, "handled, say the handlers: they returned no error")
	if l.burst > 0 {
		row(normal, "of a burst", l.burst, "of done: equal to a later one, which stands for them")
	}
	row(red, "failed", l.failed, "in "+preset.CoverArtFailedQueue+", says the broker")
	row(yellow, "waiting", l.waiting, "in the other queues, says the broker")
	if l.again > 0 {
		row(normal, "again", l.again, "deliveries of what was done already; not counted above")
	}
	if l.unconfirmed > 0 {
		row(normal, "arrived", l.unconfirmed, "of in: only the broker's confirm was lost")
	}
	if l.refused > 0 {
		row(normal, "not in", l.refused, "neither confirmed nor arrived, as the producer knows")
	}
	if len(l.missing) > 0 {
		row(red, "missing", len(l.missing), "nobody has them")
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
		lines = append(lines, line{}, line{}.add(bold, "why they failed").to(21).add(dim, "read from the messages themselves, header "+preset.CoverArtExceptionsHeader))
	}
	for _, r := range l.reasons {
		s := "s"
		if r.attempts == 1 {
			s = ""
		}
		head := line{}.add(red, fmt.Sprintf("%4d ×", r.messages)).add(dim, fmt.Sprintf("  %d attempt%s", r.attempts, s)).to(21)
		for _, t := range wrap(r.text, max(20, width-21)) {
			lines = append(lines, head.add(normal, t))
			head = line{}.to(21)
		}
	}
	return append(append(lines, line{}), nextLines(o)...)
}

func nextLines(o Options) []line {
	where := func(name, what string) line { return line{}.add(cyan, "  "+name).to(29).add(dim, what) }
	lines := []line{line{}.add(bold, "where to look next")}
	lines = append(lines,
		where("examples/coverart", "what just ran: three handlers, no retry in them"),
		where("topology/preset", "the queues it ran on, as they are deployed"),
	)
	if o.BrokerURL == "" {
		lines = append(lines, where("reprise demo --url URL", "the same on a RabbitMQ; the messages stay there"))
	} else {
		lines = append(lines, where("your broker", "its "+preset.CoverArtFailedQueue+" has what failed"))
	}
	lines = append(lines, where(fmt.Sprintf("reprise demo --seed %d", o.Seed), "the same events again"))
	if o.Once {
		lines = append(lines, where("reprise demo", "events without end, until Ctrl-C"))
	}
	return append(lines, where("reprise --help", "run workers of your own"))
}
