package demo

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/topology/preset"
)

// accounts are what the three parties say, by message id. Only ids that start
// with Prefix are this run's.
type accounts struct {
	prefix      string
	confirmed   []string        // producer: the broker took it
	unconfirmed []string        // producer: the broker did not say
	handled     map[string]int  // handlers: how often one returned nil
	debounced   map[string]bool // workers: another one of the same burst stood for it
	failed      []parked        // broker: the failed queue
	waiting     []string        // broker: all the other queues
}

// parked is a message in the failed queue.
type parked struct {
	id     string
	errors []string // of all its attempts, from mb-exceptions
}

// ledger is the balance of accounts. Every message counts once: one that was
// handled and is in a queue as well counts there, where somebody will meet it.
type ledger struct {
	in, done, failed, waiting int
	burst                     int      // of done: another one stood for them
	unconfirmed               int      // of in: arrived although the broker did not say so
	refused                   int      // not of in: neither confirmed nor arrived; the producer knows
	again                     int      // deliveries that were handled after the message was done
	missing                   []string // ids that nobody has
	reasons                   []reason
}

// reason is a last error and the messages that have it.
type reason struct {
	text     string
	messages int
	attempts int // of one message, the most
}

func (a accounts) balance() ledger {
	var l ledger
	where := map[string]*int{} // the later entry wins: done, then waiting, then failed
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

// balanced tells whether in = done + failed + waiting.
func (l ledger) balanced() bool {
	return len(l.missing) == 0 && l.in == l.done+l.failed+l.waiting
}

var mbid = regexp.MustCompile(`([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// shorten makes an error fit to be shown in a line.
func shorten(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	return mbid.ReplaceAllString(text, "$1…")
}

// reasonsOf groups parked messages by their last error, the most frequent first.
func reasonsOf(all []parked) []reason {
	groups := map[string]reason{}
	for _, p := range all {
		text := "(no error on it)"
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

// askBroker fills in what the broker knows. The workers must have stopped.
func (a *accounts) askBroker(p *probe) error {
	// The wait queue first: what expires out of it while it is read turns up
	// in a work queue, which is read after it.
	order := []string{
		preset.CoverArtRetryQueue, preset.CoverArtIndexQueue, preset.CoverArtDeleteQueue, preset.CoverArtMoveQueue,
		preset.CoverArtFailedQueue,
	}
	found, err := p.contents(order...)
	if err != nil {
		return err
	}
	for _, name := range order {
		for _, d := range found[name] {
			switch {
			case !strings.HasPrefix(d.MessageId, a.prefix): // an earlier run's, or somebody else's
			case name == preset.CoverArtFailedQueue:
				a.failed = append(a.failed, parked{id: d.MessageId, errors: exceptions(d)})
			default:
				a.waiting = append(a.waiting, d.MessageId)
			}
		}
	}
	return nil
}

func exceptions(d amqp.Delivery) []string {
	var texts []string
	list, _ := d.Headers[preset.CoverArtExceptionsHeader].([]any)
	for _, x := range list {
		if s, ok := x.(string); ok {
			texts = append(texts, s)
		}
	}
	return texts
}
