package doctor

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/protocol"
)

// Live stands for the counts of messages and consumers, which definitions do not contain.
const Live = "counts of messages"

var live = []string{Live}

// handlers stands for the handlers of a configuration.
const handlers = "a configuration of workers (-c)"

// patterns stands for the patterns of policies, which may use syntax that package pcre does not know.
const patterns = "patterns of policies"

// Rules are all rules.
var Rules = slices.Concat(deadLetterRules, queueRules, brokerRules)

// maxMessage is the default of max_message_size since RabbitMQ 4.0 (https://www.rabbitmq.com/docs/configure), in bytes.
const maxMessage = 16 << 20

var queueRules = []Rule{
	{
		Name: "expires-with-messages", Severity: Loss, needs: live,
		Why: "x-expires deletes an unused queue with all its messages. The messages are not dead-lettered.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			if ms, set := q.limit("expires"); set && q.Messages > 0 {
				found(fmt.Sprintf("x-expires is %d ms, and the queue has %d messages", ms, q.Messages), "declare the queue without x-expires, or remove expires from its policy")
			}
		}),
	},
	{
		Name: "overflow-drops", Severity: Loss,
		Why: "When the queue is full, the broker drops the oldest message for each new one. No dead-letter exchange keeps it.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			if _, _, _, dead := q.deadLetter(); dead || q.Kind == "stream" || q.Exclusive || strings.HasPrefix(q.text("overflow"), "reject") {
				return
			}
			if n, set := q.limit("max-length"); set && n == 1 {
				return // the queue keeps the last value
			}
			for _, key := range []string{"max-length", "max-length-bytes"} {
				if n, set := q.limit(key); set {
					found(fmt.Sprintf("%s is %d, overflow is drop-head, and there is no dead-letter exchange", key, n), settingFix(q, "overflow", "reject-publish"))
				}
			}
		}),
	},
	{
		Name: "ttl-drops", Severity: Loss,
		Why: "Messages that wait longer than the TTL disappear, also while consumers are stopped.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			if _, _, _, dead := q.deadLetter(); dead || q.Kind == "stream" {
				return
			}
			if ms, set := q.limit("message-ttl"); set {
				found(fmt.Sprintf("message-ttl is %d ms, and there is no dead-letter exchange", ms), settingFix(q, "dead-letter-exchange", "", "dead-letter-routing-key", "FAILED QUEUE"))
			}
		}),
	},
	{
		Name: "limited-partition", Severity: Loss,
		Why: "The queues of order_by contain the messages of keys that wait, and their order. When a limit refuses a copy, the worker parks its message before earlier ones are processed; when a limit removes a message, it is lost.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			if _, keyed := protocol.ReadKeyedQueue(q.Name); !keyed {
				return
			}
			for _, key := range []string{"message-ttl", "max-length", "max-length-bytes", "expires", "delivery-limit"} {
				if n, set := q.limit(key); set && (key != "delivery-limit" || !unlimited(n)) {
					found(fmt.Sprintf("%s is %d", key, n), settingFix(q))
				}
			}
		}),
	},
	{
		Name: "policy-against-argument", Severity: Advice,
		Why: "The policy changes nothing, or less than it says: the argument of the queue applies, or the lower of two limits.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			for _, key := range slices.Sorted(maps.Keys(q.Policy)) {
				argument, given := q.Args["x-"+key]
				if given && fmt.Sprint(argument) != fmt.Sprint(q.Policy[key]) {
					effective, _ := q.Get(key)
					found(fmt.Sprintf("x-%s is %v, %s sets %v: %v applies", key, argument, policyOf(q), q.Policy[key], effective), "declare the queue without x-"+key+", so that policies can change it")
				}
			}
		}),
	},
	{
		Name: "transient-queue", Severity: Upgrade,
		Why: "Queues that are neither durable nor exclusive lose their messages at each restart, and RabbitMQ 4.3 refuses to declare them.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			if !q.Durable && !q.Exclusive {
				found("durable is false, exclusive is false", "declare the queue as durable, or as exclusive")
			}
		}),
	},
	{
		Name: "classic-on-cluster", Severity: Loss, needs: []string{"nodes"},
		Why: "A classic queue is on one node. If that node is down, its messages are unavailable; if its disk is lost, they are lost.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			if b.Nodes > 1 && q.Kind == "classic" && q.Durable && !q.Exclusive {
				found(fmt.Sprintf("classic queue in a cluster of %d nodes", b.Nodes), "declare a quorum queue: x-queue-type quorum")
			}
		}),
	},
	{
		Name: "quorum-members", Severity: Loss, needs: live,
		Why: "The queue is unavailable as soon as the majority of its members is down.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			switch {
			case q.Members > 0 && q.Online < q.Members:
				found(fmt.Sprintf("%d of %d members are online", q.Online, q.Members), "start the missing nodes, or remove them: rabbitmq-queues shrink NODE")
			case b.Nodes >= 3 && q.Members > 0 && q.Members < 3:
				found(fmt.Sprintf("%d members in a cluster of %d nodes", q.Members, b.Nodes), "rabbitmq-queues grow NODE all")
			}
		}),
	},
	{
		Name: "default-delivery-limit", Severity: Loss,
		Why: "A quorum queue drops a message after 20 failed deliveries, unless it has a dead-letter exchange.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			_, _, _, dead := q.deadLetter()
			limit, set := q.limit("delivery-limit")
			if q.Kind != "quorum" || dead || set && unlimited(limit) || b.Version != "" && !b.atLeast("4.0") && !set {
				return
			}
			evidence := "no dead-letter exchange, and the default delivery limit of 20"
			if set {
				evidence = fmt.Sprintf("no dead-letter exchange, and a delivery limit of %d", limit)
			}
			found(evidence, settingFix(q, "dead-letter-exchange", "", "dead-letter-routing-key", "FAILED QUEUE"))
		}),
	},
	{
		Name: "nack-does-not-count", Severity: Advice,
		Why: "Since RabbitMQ 4.3, basic.nack with requeue does not count toward the delivery limit. A consumer that requeues a message with it receives the message for ever.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			if limit, set := q.limit("delivery-limit"); q.Kind == "quorum" && set && !unlimited(limit) && b.atLeast("4.3") {
				found(fmt.Sprintf("delivery limit of %d on RabbitMQ %s", limit, b.Version), "requeue failed messages with basic.reject, which counts")
			}
		}),
	},
	{
		Name: "many-priorities", Severity: Advice,
		Why: "A classic queue keeps a queue for each priority, which costs memory and processor time.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			if n, set := q.limit("max-priority"); set && n > 10 {
				found(fmt.Sprintf("x-max-priority is %d", n), "use at most 10 priorities")
			}
		}),
	},
	{
		Name: "single-active-priorities", Severity: Advice, needs: []string{"consumers"},
		Why: "In a classic queue with a single active consumer, priorities of consumers have no effect: the first consumer stays active.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			if single, _ := q.Get("single-active-consumer"); single != true || q.Kind != "classic" {
				return
			}
			for _, c := range b.Consumers {
				if c.VHost == q.VHost && c.Queue == q.Name && c.Priority != 0 {
					found(fmt.Sprintf("a consumer has x-priority %d", c.Priority), "use a quorum queue, which prefers the higher priority")
					return
				}
			}
		}),
	},
	{
		Name: "single-active-message-priorities", Severity: Advice,
		Why: "A single active consumer processes messages in order, but priorities change that order.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			single, _ := q.Get("single-active-consumer")
			if n, set := q.limit("max-priority"); single == true && set && n > 0 {
				found(fmt.Sprintf("x-single-active-consumer is true, and x-max-priority is %d", n), "declare the queue without one of them")
			}
		}),
	},
	{
		Name: "obsolete-argument", Severity: Upgrade,
		Why: "RabbitMQ 4 ignores or refuses arguments of earlier storage and mirroring.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			for _, name := range []string{"x-queue-mode", "x-queue-master-locator", "x-max-in-memory-length", "x-max-in-memory-bytes", "x-ha-policy"} {
				if v, given := q.Args[name]; given {
					found(fmt.Sprintf("%s is %v", name, v), "declare the queue without "+name)
				}
			}
			if n, given := mgmtapi.Integer(q.Args["x-queue-version"]); given && n == 1 {
				found("x-queue-version is 1", "declare the queue without x-queue-version")
			}
		}),
	},
	{
		Name: "messages-too-large", Severity: Upgrade, needs: live,
		Why: "RabbitMQ 4 refuses messages above 16 MiB by default (max_message_size) and closes the channel of their publisher.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			if q.Messages > 0 && q.Bytes/q.Messages > maxMessage {
				found(fmt.Sprintf("%d messages have %d MiB on average", q.Messages, q.Bytes/q.Messages>>20), "store large bodies elsewhere, or set max_message_size")
			}
		}),
	},
	{
		Name: "unread-queue", Severity: Stuck, needs: live,
		Why: "Nobody processes the messages of this queue.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			if q.Ready == 0 || q.Consumers > 0 || q.Kind == "stream" || len(b.indexed.feeding[q]) > 0 {
				return // unread-failed-queue reports a queue that receives dead letters
			}
			_, divided := readPart(q.Name)
			if _, _, _, dead := q.deadLetter(); !dead || divided {
				found(fmt.Sprintf("%d ready messages and no consumer", q.Ready), Consume(q.Name))
			}
		}),
	},
	{
		Name: "auto-delete-queue", Severity: Loss,
		Why: "The broker deletes a durable queue and its messages when the last consumer leaves, for example during a deployment.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			if q.AutoDelete && q.Durable && !q.Exclusive {
				found("auto_delete is true, durable is true", "declare the queue without auto-delete; let x-expires remove it when it is unused for long")
			}
		}),
	},
	{
		Name: "short-consumer-timeout", Severity: Stuck,
		Why: "A handler that takes longer loses its channel and all messages of it return to the queue, while the handler still runs.",
		check: eachQueue(func(b *Broker, q *Queue, found func(evidence, fix string)) {
			if ms, set := q.limit("consumer-timeout"); set && ms < 60_000 {
				found(fmt.Sprintf("consumer-timeout is %d ms", ms), "set consumer-timeout to more than the longest time of a handler")
			}
		}),
	},
}

// readPart reads the name of a lane, of a partition or of its held queue.
func readPart(queue string) (amqpvalue.Part, bool) {
	return amqpvalue.ReadPart(strings.TrimSuffix(queue, ".held"))
}

// Consume describes how the messages of a queue without a consumer are processed. A lane or partition remains if workers with another
// number replace its workers.
func Consume(queue string) string {
	switch p, ok := readPart(queue); {
	case !ok:
		return "start a consumer, or delete the queue and its bindings"
	case p.Kind == "part": // another consumer would change the order of the keys
		return fmt.Sprintf("run workers of %s with order_by and partitions: %s until its partitions are empty", brief.Quoted(p.Queue), p.Count)
	default:
		return fmt.Sprintf("run workers of %s with lanes: %s until its lanes are empty, or move the messages to a current lane: reprise redrive --from %s --to LANE", brief.Quoted(p.Queue), p.Count, brief.Shell(queue))
	}
}

// defaultConsumerTimeout is the default of RabbitMQ (https://www.rabbitmq.com/docs/consumers#acknowledgement-timeout).
const defaultConsumerTimeout = 30 * time.Minute

// unlimited reports whether a delivery limit is none in practice, such as the highest number, which failed queues of Reprise have.
func unlimited(limit int64) bool { return limit < 0 || limit >= 1_000_000 }

// eachQueue returns a check that calls check for each queue.
func eachQueue(check func(b *Broker, q *Queue, found func(evidence, fix string))) func(*Broker, func(Finding)) {
	return func(b *Broker, found func(Finding)) {
		for i := range b.Queues {
			q := &b.Queues[i]
			if k, keyed := protocol.ReadKeyedQueue(q.Name); protocol.IsControlQueue(q.Name) || keyed && k.Partition == "" {
				continue // its statuses and reports may be dropped, or it has no messages
			}
			check(b, q, func(evidence, fix string) {
				found(Finding{VHost: q.VHost, Object: q.String(), Evidence: evidence, Fix: fix})
			})
		}
	}
}

// settingFix returns the command that changes settings of one queue: keys, each followed by its value. This is a policy, unless an
// argument of the queue overrides it. Only one policy applies, so the fix names the one that applies now. The queues of order_by need
// their arguments, and no limits.
func settingFix(q *Queue, settings ...string) string {
	if k, keyed := protocol.ReadKeyedQueue(q.Name); keyed {
		return fmt.Sprintf("change the pattern of %s, so that it does not match the partitions and held queues of %s", policyOf(q), k.Queue)
	}
	var policy, arguments []string
	overrides := ""
	for pair := range slices.Chunk(settings, 2) {
		policy = append(policy, fmt.Sprintf("%q:%q", pair[0], pair[1]))
		arguments = append(arguments, " --set "+brief.Shell("x-"+pair[0]+"="+pair[1]))
		if _, given := q.Args["x-"+pair[0]]; given {
			overrides = "x-" + pair[0]
		}
	}
	if overrides != "" {
		return "reprise migrate " + brief.Shell(q.Name) + strings.Join(arguments, "") + " (a policy cannot change the argument " + overrides + ")"
	}
	fix := fmt.Sprintf("rabbitmqctl set_policy -p %s --apply-to queues NAME %s '{%s}'", brief.Shell(q.VHost), brief.Shell("^"+regexp.QuoteMeta(q.Name)+"$"), strings.Join(policy, ","))
	if q.PolicyName != "" {
		fix += " (policy " + q.PolicyName + " applies now: add its settings)"
	}
	return fix
}

func policyOf(q *Queue) string {
	if q.PolicyName == "" {
		return "an operator policy"
	}
	return "policy " + q.PolicyName
}

var brokerRules = []Rule{
	{
		Name: "slow-handler", Severity: Stuck, needs: []string{handlers},
		Why: "If a handler takes longer than the consumer timeout, the broker closes its channel and redelivers all messages of it, while the handler still runs.",
		check: func(b *Broker, found func(Finding)) {
			for _, h := range b.Handlers {
				limit := defaultConsumerTimeout
				if q := b.Queue(h.VHost, h.Queue); q != nil {
					if ms, set := q.limit("consumer-timeout"); set {
						limit = time.Duration(ms) * time.Millisecond
					}
				}
				may := "has no timeout"
				if h.Timeout > 0 {
					may = "may take " + h.Timeout.String()
				}
				if h.Timeout == 0 || h.Timeout >= limit {
					found(Finding{VHost: h.VHost, Object: "queue " + h.Queue, Evidence: fmt.Sprintf("its handler %s, and the consumer timeout is %v", may, limit), Fix: "set a timeout of the handler below the consumer timeout, or set consumer-timeout of a quorum queue by a policy"})
				}
			}
		},
	},
	{
		Name: "missing-alternate-exchange", Severity: Loss, needs: []string{patterns},
		Why: "The exchange drops unroutable messages, although an alternate exchange should receive them.",
		check: eachExchange(func(b *Broker, x *Exchange, found func(evidence, fix string)) {
			if x.Alternate != "" && !b.HasExchange(x.VHost, x.Alternate) {
				found("alternate exchange "+x.Alternate+" does not exist", "declare exchange "+x.Alternate)
			}
		}),
	},
	{
		Name: "exchange-without-bindings", Severity: Advice, needs: []string{patterns},
		Why: "The broker drops all messages to this exchange, and confirms them unless they are mandatory. That is intended only if nobody subscribes now.",
		check: eachExchange(func(b *Broker, x *Exchange, found func(evidence, fix string)) {
			if x.Name == "" || strings.HasPrefix(x.Name, "amq.") || x.Alternate != "" {
				return
			}
			if strings.HasPrefix(x.Name, "reprise.") {
				return // events of Reprise, which nobody needs to receive
			}
			if !slices.ContainsFunc(b.Bindings, func(e Binding) bool { return e.VHost == x.VHost && e.Source == x.Name }) {
				found("no bindings and no alternate exchange", "bind a queue, or delete the exchange")
			}
		}),
	},
	{
		Name: "delayed-message-plugin", Severity: Upgrade,
		Why: "The plugin rabbitmq_delayed_message_exchange is archived. Messages that wait in it are on one node, and are lost with it.",
		check: eachExchange(func(b *Broker, x *Exchange, found func(evidence, fix string)) {
			if x.Kind == "x-delayed-message" {
				found("exchange type x-delayed-message", "let the messages wait in queues: see https://github.com/reprisemq/reprise/blob/main/docs/delays.md")
			}
		}),
	},
	{
		Name: "mirrored-policy", Severity: Upgrade,
		Why: "RabbitMQ 4 has no mirrored classic queues. It refuses a policy with keys that begin with ha-.",
		check: func(b *Broker, found func(Finding)) {
			for i := range b.Policies {
				p := &b.Policies[i]
				for _, key := range slices.Sorted(maps.Keys(p.Definition)) {
					if strings.HasPrefix(key, "ha-") {
						found(Finding{VHost: p.VHost, Object: p.String(), Evidence: fmt.Sprintf("%s is %v", key, p.Definition[key]), Fix: "declare quorum queues, and remove the key"})
					}
				}
			}
		},
	},
	{
		Name: "unused-policy", Severity: Advice, needs: []string{patterns},
		Why: "The policy has no effect: no queue and no exchange matches it, or another policy with a higher priority applies to them.",
		check: func(b *Broker, found func(Finding)) {
			for i := range b.Policies {
				if p := &b.Policies[i]; !p.Operator && !b.applies(p) {
					found(Finding{VHost: p.VHost, Object: p.String(), Evidence: fmt.Sprintf("pattern %q, priority %v, apply-to %s", p.Pattern, p.Priority, p.ApplyTo), Fix: fmt.Sprintf("rabbitmqctl clear_policy -p %s %s", brief.Shell(p.VHost), brief.Shell(p.Name))})
				}
			}
		},
	},
	{
		Name: "global-prefetch", Severity: Upgrade, needs: []string{"channels"},
		Why: "A prefetch for the whole channel (basic.qos with global) is deprecated. Quorum queues ignore it, and RabbitMQ 4.3 refuses it.",
		check: func(b *Broker, found func(Finding)) {
			for _, c := range b.Channels {
				if c.GlobalPrefetch > 0 {
					found(Finding{VHost: c.VHost, Object: "channel " + c.Name, Evidence: fmt.Sprintf("global prefetch of %d, user %s", c.GlobalPrefetch, c.User), Fix: "call basic.qos with global=false"})
				}
			}
		},
	},
	{
		Name: "unlimited-prefetch", Severity: Advice, needs: []string{"consumers"},
		Why: "The broker sends all messages to the first consumer. Others get none, and after a crash all of them return at once.",
		check: func(b *Broker, found func(Finding)) {
			for _, c := range b.Consumers {
				if c.Ack && c.Prefetch == 0 {
					found(Finding{VHost: c.VHost, Object: "queue " + c.Queue, Evidence: "a consumer with acknowledgements has prefetch 0", Fix: "call basic.qos before basic.consume, for example with 100"})
				}
			}
		},
	},
	{
		Name: "consumer-without-ack", Severity: Loss, needs: []string{"consumers"},
		Why: "A message counts as processed as soon as it is sent. If the consumer fails, the message is lost.",
		check: func(b *Broker, found func(Finding)) {
			for _, c := range b.Consumers {
				if q := b.Queue(c.VHost, c.Queue); !c.Ack && q != nil && q.Durable && !q.Exclusive {
					found(Finding{VHost: c.VHost, Object: "queue " + c.Queue, Evidence: "a consumer of a durable queue has automatic acknowledgements", Fix: "consume with no_ack=false, and acknowledge after processing"})
				}
			}
		},
	},
	{
		Name: "guest-over-network", Severity: Advice, needs: []string{"connections"},
		Why: "Everybody knows the password of guest, unless it was changed.",
		check: func(b *Broker, found func(Finding)) {
			for _, c := range b.Connections {
				if address, err := netip.ParseAddr(c.Host); c.User == "guest" && err == nil && !address.Unmap().IsLoopback() {
					found(Finding{Object: "connection " + c.Name, Evidence: "user guest from " + c.Host, Fix: "create a user: rabbitmqctl add_user NAME, rabbitmqctl set_permissions NAME ..., and rabbitmqctl delete_user guest"})
				}
			}
		},
	},
	{
		Name: "blocked-connection", Severity: Stuck, needs: []string{"connections"},
		Why: "The broker does not read from publishers while memory or disk is low.",
		check: func(b *Broker, found func(Finding)) {
			for _, c := range b.Connections {
				if c.State == "blocked" || c.State == "blocking" {
					found(Finding{Object: "connection " + c.Name, Evidence: "state " + c.State + ", user " + c.User, Fix: "free memory or disk: see the alarms with rabbitmq-diagnostics alarms"})
				}
			}
		},
	},
	{
		Name: "alarm", Severity: Stuck, needs: []string{"nodes"},
		Why: "While an alarm is in effect, the broker accepts no messages from any publisher of the cluster.",
		check: func(b *Broker, found func(Finding)) {
			for _, alarm := range b.Alarms {
				found(Finding{Object: "alarm " + alarm, Evidence: "in effect", Fix: "consume messages, or add memory or disk"})
			}
		},
	},
	{
		Name: "deprecated-feature", Severity: Upgrade, needs: []string{"deprecated-features/used"},
		Why: "A later version of RabbitMQ refuses what this broker is used for.",
		check: func(b *Broker, found func(Finding)) {
			for _, name := range b.Deprecated {
				found(Finding{Object: "feature " + name, Evidence: "in use", Fix: "see rabbitmqctl list_deprecated_features --used"})
			}
		},
	},
}

// eachExchange returns a check that calls check for each exchange.
func eachExchange(check func(b *Broker, x *Exchange, found func(evidence, fix string))) func(*Broker, func(Finding)) {
	return func(b *Broker, found func(Finding)) {
		for i := range b.Exchanges {
			x := &b.Exchanges[i]
			check(b, x, func(evidence, fix string) {
				found(Finding{VHost: x.VHost, Object: x.String(), Evidence: evidence, Fix: fix})
			})
		}
	}
}

// applies reports whether a policy applies to a queue or an exchange.
func (b *Broker) applies(p *Policy) bool {
	for _, q := range b.Queues {
		if q.VHost == p.VHost && q.PolicyName == p.Name {
			return true
		}
	}
	for _, x := range b.Exchanges {
		if x.VHost == p.VHost && x.PolicyName == p.Name {
			return true
		}
	}
	return false
}
