package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/brief"
)

var deadLetterRules = []Rule{
	{
		Name: "missing-dead-letter-exchange", Severity: Loss,
		Why: "The broker drops rejected, expired and excess messages of the queue, because their exchange does not exist.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			exchange, _, _, dead := q.deadLetter()
			if dead && !b.HasExchange(q.VHost, exchange) {
				found("dead-letter exchange "+exchange+" does not exist", "declare exchange "+exchange+" and bind a queue to it")
			}
		}),
	},
	{
		Name: "unroutable-dead-letters", Severity: Loss,
		Why: "The broker drops dead letters that no queue receives.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			exchange, key, keyed, dead := q.deadLetter()
			targets, known := b.indexed.targets[q]
			if !dead || !known || slices.ContainsFunc(targets, func(name string) bool { return b.Queue(q.VHost, name) != nil }) {
				return
			}
			with := "with their own routing keys"
			if keyed {
				with = fmt.Sprintf("with the key %q", key)
			}
			found(fmt.Sprintf("no queue receives dead letters from exchange %q %s", exchange, with), "bind the failed queue to the exchange with this key, or correct x-dead-letter-routing-key")
		}),
	},
	{
		Name: "unlimited-retry-loop", Severity: Stuck,
		Why: "A rejected message waits, returns and is rejected again for ever, unless the consumer counts its attempts (x-death) and parks the message.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			if q.waits() {
				return
			}
			for _, wait := range b.deadLettering(q) {
				if !wait.waits() {
					continue
				}
				if slices.Contains(b.indexed.targets[wait], q.Name) {
					found(fmt.Sprintf("%s ─► %s ─► %s", q.Name, wait.Name, q.Name), "count attempts in the consumer, or let Reprise do it: see https://github.com/reprisemq/reprise/blob/main/docs/how-to/use-existing-queues.md")
				}
			}
		}),
	},
	{
		Name: "expiry-cycle", Severity: Loss,
		Why: "A message that expires in each queue of a cycle, without a rejection, returns to the first one, and the broker drops it there.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			if path := b.expiryPath(q, q, map[*Queue]bool{}); path != nil {
				found("expired messages go "+strings.Join(path, " ─► "), "let one queue of the cycle have no TTL: the work queue, whose consumer rejects failed messages")
			}
		}),
	},
	{
		Name: "retry-reaches-others", Severity: Stuck,
		Why: "When the delay of one queue's message is over, other queues receive the message too, and process it once more for each retry.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			if targets := b.indexed.targets[q]; q.waits() && len(b.indexed.feeding[q]) > 0 && len(targets) > 1 {
				found("expired messages go to "+strings.Join(targets, ", "), "let each work queue have its own wait queue, with the default exchange and the queue's name as x-dead-letter-routing-key")
			}
		}),
	},
	{
		Name: "wait-queue-with-consumers", Severity: Stuck, needs: live,
		Why: "The consumer takes messages before their delay is over.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			if q.waits() && q.Consumers > 0 && len(b.indexed.feeding[q]) > 0 {
				found(fmt.Sprintf("%d consumers of a wait queue", q.Consumers), "consume from the work queue instead")
			}
		}),
	},
	{
		Name: "head-blocks", Severity: Stuck, needs: live,
		Why: "Only the message at the head of a queue expires. A message with a short TTL waits behind one with a long TTL.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			if _, ttl := q.limit("message-ttl"); ttl || q.Consumers > 0 || q.Ready == 0 || amqpvalue.IsWaitQueue(q.Name) {
				return // the TTLs in a wait queue of Reprise differ little
			}
			// Its messages return to a queue with consumers. Dead letters of a work queue go to a queue without.
			for _, to := range b.deadLettering(q) {
				if to.Consumers > 0 {
					found(fmt.Sprintf("%d messages wait for their own TTL, and then go to %s: no message-ttl and no consumers", q.Ready, to.Name), "use one queue with x-message-ttl for each delay")
					return
				}
			}
		}),
	},
	{
		Name: "at-most-once-dead-letters", Severity: Loss,
		Why: "A quorum queue publishes dead letters without waiting for a confirm. They are lost if the target is unavailable at that moment.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			if _, _, _, dead := q.deadLetter(); dead && q.Kind == "quorum" && q.text("dead-letter-strategy") != "at-least-once" {
				found("x-dead-letter-strategy is not at-least-once", settingFix(q, "dead-letter-strategy", "at-least-once", "overflow", "reject-publish"))
			}
		}),
	},
	{
		Name: "at-least-once-without-reject", Severity: Loss,
		Why: "At-least-once dead-lettering needs the overflow reject-publish. Without it, RabbitMQ uses at-most-once.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			if q.Kind == "quorum" && q.text("dead-letter-strategy") == "at-least-once" && q.text("overflow") != "reject-publish" {
				found(fmt.Sprintf("x-dead-letter-strategy is at-least-once, and overflow is %q", q.text("overflow")), settingFix(q, "overflow", "reject-publish"))
			}
		}),
	},
	{
		Name: "unread-failed-queue", Severity: Stuck, needs: live,
		Why: "Failed messages collect here, and nobody sees them.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			if _, _, _, dead := q.deadLetter(); dead || q.Ready == 0 || q.Consumers > 0 {
				return
			}
			if from := b.indexed.feeding[q]; len(from) > 0 {
				found(fmt.Sprintf("%d ready messages from %s, and no consumer", q.Ready, names(from)), "reprise console --url URL --queue "+brief.Shell(q.Name))
			}
		}),
	},
	{
		Name: "dead-letter-key-without-exchange", Severity: Loss,
		Why: "Without a dead-letter exchange, the routing key for dead letters has no effect, and rejected messages are dropped.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			if _, _, keyed, dead := q.deadLetter(); keyed && !dead {
				found("a dead-letter routing key and no dead-letter exchange", settingFix(q, "dead-letter-exchange", ""))
			}
		}),
	},
}

// deadLettering returns the queues that receive dead letters of q.
func (b *Broker) deadLettering(q *Queue) (to []*Queue) {
	for _, name := range b.indexed.targets[q] {
		if target := b.Queue(q.VHost, name); target != nil {
			to = append(to, target)
		}
	}
	return to
}

func names(all []*Queue) string {
	var s []string
	for _, q := range all {
		s = append(s, q.Name)
	}
	return strings.Join(s, ", ")
}

// expiryPath returns the names of queues in which a message expires one after the other until it is in the queue end, or nil.
func (b *Broker) expiryPath(from, end *Queue, seen map[*Queue]bool) []string {
	if from == nil || !from.waits() || seen[from] {
		return nil
	}
	seen[from] = true
	for _, name := range b.indexed.targets[from] {
		if name == end.Name {
			return []string{from.Name, name}
		}
		if rest := b.expiryPath(b.Queue(from.VHost, name), end, seen); rest != nil {
			return append([]string{from.Name}, rest...)
		}
	}
	return nil
}
