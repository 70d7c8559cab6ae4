package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/mgmtapi"
)

// Verdict is the result of DeadLetterQueues for a queue.
type Verdict struct {
	Queue     string
	Candidate bool   // it may be a final dead-letter queue that no program consumes: its messages decide
	Why       string // evidence, or the reason to leave the queue; "": nothing indicates a dead-letter queue
	Messages  int64
}

// ReadQueues reads the queues and routes of a virtual host, which DeadLetterQueues needs.
func ReadQueues(ctx context.Context, api mgmtapi.API) (*Broker, error) {
	b := &Broker{own: api.VirtualHost(), has: map[string]bool{}}
	in := api.Within()
	var d definitions
	for path, into := range map[string]any{
		"queues" + in + "?columns=name,vhost,type,durable,auto_delete,exclusive,arguments,effective_policy_definition,consumers,messages,messages_ready,message_stats": &d.Queues,
		"exchanges" + in: &d.Exchanges, "bindings" + in: &d.Bindings, "policies" + in: &d.Policies,
	} {
		err := api.Get(ctx, path, into)
		status, ok := errors.AsType[*mgmtapi.StatusError](err)
		denied := ok && (status.Code == http.StatusUnauthorized || status.Code == http.StatusForbidden) && into == any(&d.Policies)
		if err != nil && !denied { // without the policies of exchanges, less evidence is found
			return nil, fmt.Errorf("cannot read %s: %w", strings.TrimSuffix(path, in), err)
		}
	}
	b.addTopology(d.Queues, d.Exchanges, d.Bindings)
	b.addPolicies(d.Policies, false)
	if b.compilePatterns() == nil {
		b.applyToExchanges()
	}
	return b, nil
}

// DeadLetterQueues decides which queues may be final dead-letter queues, so that their messages are worth a look. Nothing that the
// broker reports proves it: a work queue, or a queue of a program that repairs messages, looks the same while its consumer is
// away. So the caller must not move the messages of a candidate elsewhere before they themselves show that they have failed.
//
//   - Evidence is the name that a framework gives to its error queue, or that a work queue dead-letters to it. A wait queue also
//     dead-letters, to a work queue. A queue counts as a work queue if it has consumers or if its name shows the relation.
//   - Its messages must have no way out: no dead-letter exchange, no consumer, and no earlier consumer, unless the argument
//     archived reports that this was the archive. A TTL alone is no way back: dramatiq limits the age of dead letters.
//
// The result has the order of b.Queues.
func (b *Broker) DeadLetterQueues(archived func(queue string) bool) []Verdict {
	b.index()
	verdicts := make([]Verdict, len(b.Queues))
	for i := range b.Queues {
		q := &b.Queues[i]
		e := b.evidence(q)
		verdicts[i] = Verdict{Queue: q.Name, Candidate: e.found || e.text != "" && !e.dead, Why: e.text, Messages: q.Messages}
		if e.text == "" {
			continue
		}
		if no := b.unsuitable(q, e, archived); no != "" {
			verdicts[i].Candidate, verdicts[i].Why = false, no
		}
	}
	return verdicts
}

// evidence is what indicates that a queue is a dead-letter queue. If found is false, text is the reason for the doubt.
type evidence struct {
	found bool
	text  string
	sure  bool // the name alone is sufficient, because a framework reserves it
	dead  bool // the broker's dead letters are the evidence, or the reason for the doubt
}

// frameworkQueues are the names that frameworks reserve.
var frameworkQueues = map[string]string{
	"EasyNetQ_Default_Error_Queue": "the error queue of EasyNetQ",
	"wolverine-dead-letter-queue":  "the dead-letter queue of Wolverine",
}

// suffixes are names of dead-letter queues after the name of the work queue.
var suffixes = []struct {
	suffix, of string
	sure       bool
	exchange   bool // the framework also declares an exchange with the name of the dead-letter queue
}{
	{"_error", "MassTransit", true, true},
	{"_skipped", "MassTransit", true, true},
	{".XQ", "dramatiq", true, false},
}

var (
	deadWord = regexp.MustCompile(`(?i)(^|[^a-z])(dead|dlq|dlx|deadletters?|dead[-_.]?letters?|fail|failed|failures?|errors?|poison|poisoned|rejected|parking)([^a-z]|$)`)
	sureWord = regexp.MustCompile(`(?i)(^|[^a-z])(dead|dlq|dlx|deadletters?|poison|poisoned)([^a-z]|$)`)
	waitWord = regexp.MustCompile(`(?i)wait|retry|retries|delay|defer|backoff|later|schedul|postpon|\.level\.`)
)

func (b *Broker) evidence(q *Queue) evidence {
	if text, found := frameworkQueues[q.Name]; found {
		return evidence{found: true, text: text, sure: true}
	}
	if work, found := strings.CutSuffix(q.Name, ".failed"); found && work != "" {
		return evidence{found: true, text: "named like a failed queue of Reprise"}
	}
	for _, s := range suffixes {
		if work, found := strings.CutSuffix(q.Name, s.suffix); found && b.Queue(q.VHost, work) != nil {
			if s.exchange && !b.HasExchange(q.VHost, q.Name) {
				return evidence{text: fmt.Sprintf("only its name indicates an error queue of %s", s.of)}
			}
			return evidence{found: true, text: fmt.Sprintf("the error queue of %s for %s", s.of, work), sure: s.sure}
		}
	}
	if q.Name == "error" {
		return b.errorQueue(q)
	}
	if e := b.deadLettersOf(q); e.text != "" {
		return e
	}
	for i := range b.Queues {
		work := &b.Queues[i]
		if rest, found := strings.CutPrefix(q.Name, work.Name); found && work.VHost == q.VHost && work != q && deadWord.MatchString(rest) && strings.ContainsAny(rest[:1], "._-:/") {
			return evidence{found: true, text: "named after queue " + work.Name}
		}
	}
	if deadWord.MatchString(q.Name) {
		return evidence{text: "only its name indicates a dead-letter queue"}
	}
	return evidence{}
}

// errorQueue looks for other objects of the frameworks that use the name error.
func (b *Broker) errorQueue(q *Queue) evidence {
	for _, e := range b.Bindings {
		if e.VHost == q.VHost && e.Destination == q.Name && (e.Source == "error" || e.Source == "RebusDirect" || e.Source == "RebusTopics") {
			return evidence{found: true, text: "the error queue of NServiceBus or Rebus, because exchange " + e.Source + " leads to it"}
		}
	}
	for _, other := range b.Queues {
		if strings.HasPrefix(other.Name, "nsb.") {
			return evidence{found: true, text: "the error queue of NServiceBus, because queue " + other.Name + " exists"}
		}
	}
	return evidence{text: "only its name indicates an error queue of NServiceBus or Rebus"}
}

// deadLettersOf looks for queues whose dead letters q receives.
func (b *Broker) deadLettersOf(q *Queue) evidence {
	from := b.indexed.feeding[q]
	if len(from) == 0 {
		return evidence{}
	}
	for _, source := range from {
		// A work queue may have a TTL, too.
		if source.Consumers == 0 && source.waits() || waitWord.MatchString(source.Name) || amqpvalue.IsWaitQueue(source.Name) {
			return evidence{dead: true, text: fmt.Sprintf("messages return to it after they have waited in %s", source.Name)}
		}
	}
	e := evidence{found: true, dead: true, text: "receives the dead letters of " + names(from)}
	named := slices.ContainsFunc(from, func(source *Queue) bool {
		return strings.Contains(q.Name, source.Name) && deadWord.MatchString(strings.Replace(q.Name, source.Name, "", 1))
	})
	returns := slices.ContainsFunc(from, func(source *Queue) bool { return strings.Contains(source.Name, q.Name) })
	consumed := slices.ContainsFunc(from, func(source *Queue) bool { return source.Consumers > 0 })
	excess := slices.ContainsFunc(from, func(source *Queue) bool { return source.evicts() })
	switch {
	case returns:
		e.found, e.text = false, e.text+", which are named after it, so they may return to it after a retry"
	case excess && !named && !sureWord.MatchString(q.Name):
		e.found, e.text = false, e.text+", which are not only failed messages, because of a TTL or a maximum length"
	case !consumed && !named && !sureWord.MatchString(q.Name):
		e.found, e.text = false, e.text+", without consumers now, so it may be a work queue whose retries wait there"
	}
	return e
}

// evicts reports whether a queue dead-letters messages that no consumer has seen, such as an excess that another program processes.
func (q *Queue) evicts() bool {
	return slices.ContainsFunc([]string{"message-ttl", "max-length", "max-length-bytes"}, func(key string) bool {
		_, set := q.limit(key)
		return set
	})
}

// unsuitable returns the reason to leave a queue in spite of the evidence, or "".
func (b *Broker) unsuitable(q *Queue, e evidence, archived func(string) bool) string {
	exchange, _, _, dead := q.deadLetter()
	_, expires := q.Get("expires")
	switch {
	case q.Kind == "stream":
		return "it is a stream"
	case q.Exclusive || q.AutoDelete || expires:
		return "it is deleted with its consumers"
	case strings.HasPrefix(q.Name, "reprise.") || strings.HasPrefix(q.Name, "amq."):
		return "it belongs to Reprise or to the broker"
	case amqpvalue.IsWaitQueue(q.Name) || waitWord.MatchString(q.Name) && !e.sure:
		return "it has the name of a wait queue"
	case dead:
		return fmt.Sprintf("its messages go on to exchange %q, so they wait for something", exchange)
	case !q.Counted:
		return "the broker does not report its consumers"
	case q.Consumers > 0:
		return fmt.Sprintf("it has consumers: %d", q.Consumers)
	case q.Taken > 0 && !e.sure && !archived(q.Name):
		return fmt.Sprintf("another program has taken %d messages from it", q.Taken)
	case e.dead || !e.sure:
		return b.alsoReceives(q)
	}
	return ""
}

// Others returns the sign that other programs use a queue that this program empties, or "": an exchange that leads to it, or a
// dead-letter exchange. Compare it with the result when the program began. DeadLetterQueues must
// have been called.
func (b *Broker) Others(name string) string {
	q := b.find(name)
	if q == nil {
		return ""
	}
	if exchange, _, _, dead := q.deadLetter(); dead {
		return fmt.Sprintf("its messages go on to exchange %q", exchange)
	}
	return b.alsoReceives(q)
}

// Consuming returns the number of consumers of a queue. DeadLetterQueues must have been called.
func (b *Broker) Consuming(name string) int64 {
	if q := b.find(name); q != nil {
		return q.Consumers
	}
	return 0
}

// Counting reports whether each look at the queue could lose a message on brokers that count a look as a failed delivery,
// because the queue has a delivery limit or, from RabbitMQ 4.0 on, the default.
func (b *Broker) Counting(name, version string) bool {
	q := b.find(name)
	if q == nil || q.Kind != "quorum" {
		return false
	}
	_, limited := q.limit("delivery-limit")
	return limited || !strings.HasPrefix(version, "3.")
}

// alsoReceives returns a reason if an exchange leads to the queue that is not a dead-letter exchange.
func (b *Broker) alsoReceives(q *Queue) string {
	for _, e := range b.Bindings {
		if e.VHost != q.VHost || e.Kind != "queue" || e.Destination != q.Name || e.Source == "" || e.Source == q.Name || deadWord.MatchString(e.Source) {
			continue
		}
		if !slices.ContainsFunc(b.Queues, func(source Queue) bool {
			exchange, _, _, dead := source.deadLetter()
			return dead && exchange == e.Source
		}) {
			return fmt.Sprintf("it also receives messages of exchange %s, which are not dead letters", e.Source)
		}
	}
	return ""
}

// Exists reports whether a queue of the only virtual host exists. DeadLetterQueues must have been called.
func (b *Broker) Exists(name string) bool { return b.find(name) != nil }

func (b *Broker) find(name string) *Queue {
	i := slices.IndexFunc(b.Queues, func(q Queue) bool { return q.Name == name })
	if i < 0 {
		return nil
	}
	return &b.Queues[i]
}

// Empty reports whether a queue, all queues whose messages return to it after a delay, and the queues that receive its dead letters
// contain neither ready nor unacked messages.
// It returns false for a missing queue. DeadLetterQueues must have been called.
func (b *Broker) Empty(name string) bool {
	q := b.find(name)
	if q == nil {
		return false
	}
	seen := []*Queue{q}
	for _, dead := range b.deadLettering(q) {
		if dead.Messages > 0 {
			return false
		}
	}
	for i := range b.Queues { // delays that lead to many queues by patterns
		if other := &b.Queues[i]; strings.HasPrefix(other.Name, "nsb.v2.delay-level-") || strings.HasPrefix(other.Name, "celery_delayed_") || other.Name == name+".DQ" {
			seen = append(seen, other)
		}
	}
	for i := 0; i < len(seen); i++ {
		if !seen[i].Counted || seen[i].Messages > 0 {
			return false
		}
		for _, source := range b.indexed.feeding[seen[i]] {
			if !slices.Contains(seen, source) {
				seen = append(seen, source)
			}
		}
	}
	return true
}
