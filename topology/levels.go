package topology

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"
)

// MaxSchedule is the longest delay of Levels: 2²⁸ seconds, or 8.5 years.
const MaxSchedule = (1 << topLevel) * time.Second

const topLevel = 28

// HeaderLevel is the prefix of the headers that route a message through Levels: x-reprise-level-01 to
// -28. Each is a bool that reports whether the message waits in the level. The headers have no meaning
// after the wait.
const HeaderLevel = "x-reprise-level-"

// Levels is the Route for long delays with a resolution of one second. It supports any delay up to MaxSchedule. A
// message is never early, and does not wait for messages that are due later. Levels needs more declarations than
// Buckets, and more hops.
//
// A delay is one second plus a sum of powers of two. Each power has a queue in which all messages wait equally long,
// so the first message in a queue is the first that is due. Level n delays a message by 2ⁿ⁻¹ seconds, and level 0 by
// the additional second. A message passes the levels from the highest down. It waits in the levels whose powers are in
// the sum, and always in level 0. For 7 s = 4 s + 2 s + 1 s:
//
//	exchange 3 ─► queue 3 ─► exchange 2 ─► queue 2 ─► exchange 1 ───────► exchange 0 ─► queue 0 ─► target
//	                4 s                      2 s         (not queue 1)                    1 s
//
// Each level above 0 has a headers exchange. Depending on one header, the exchange routes the message either into the
// queue of the level or to the next lower level. The routing key therefore does not change, and the broker routes the
// message to the target like a new message. (Bits in the routing key would need fewer exchanges, but would replace the
// routing key.)
//
// Levels rounds delays up to whole seconds. Each hop adds a few milliseconds.
//
// A message waits in each level at most once, so n levels provide at most 2ⁿ delays. With fewer levels, the resolution
// would therefore be coarser, or MaxSchedule shorter.
//
// Targets do not share levels. Each work queue, and each exchange that is a target of Schedule, has its own levels, up to
// the highest level that a delay has needed. An hour needs 13 queues and 13 exchanges, 30 days need 23, and a year needs
// 26. If 32 dead letters of a queue cannot be delivered because the target is full or deleted, RabbitMQ pauses
// dead-lettering from the queue, and retries every three minutes
// (https://www.rabbitmq.com/docs/quorum-queues#dead-lettering).
type Levels struct{}

// ValidateQueue reports a work queue whose levels or failed queue would have invalid names.
func (Levels) ValidateQueue(queue string) error {
	return errors.Join(validateTarget("", queue), validateNames(queue, FailedQueue(queue)))
}

// validateTarget reports a target whose levels would have invalid names.
func validateTarget(exchange, queue string) error {
	name := levelsTo(exchange, queue).name(topLevel)
	if exchange != "" {
		if over := len(name) - maxName; over > 0 {
			return fmt.Errorf("topology: exchange %.40q… must have a name of at most %d bytes: got %d (the names of its levels are longer; AMQP permits 255 bytes)", exchange, len(exchange)-over, len(exchange))
		}
		return nil
	}
	if strings.HasPrefix(queue, reserved) {
		return fmt.Errorf("topology: queue %q must not begin with %q (the names of its levels would be reserved for the broker)", queue, reserved)
	}
	return validateNames(queue, name)
}

// Topology returns the work queue, which is declared only if it does not exist, and its failed queue, like Buckets.
func (Levels) Topology(queue string) Topology { return workAndFailed(queue, FailedQueue(queue)) }

// Wait returns the hop into the highest level that the delay needs. A delay beyond MaxSchedule counts as MaxSchedule. The
// handler can then request another delay.
func (l Levels) Wait(d Delivery, delay time.Duration) (Hop, error) {
	return l.Schedule("", d.Queue, min(delay, MaxSchedule))
}

// Failed returns the hop into the failed queue of d.Queue, through the default
// exchange.
func (Levels) Failed(d Delivery) Hop { return failed(d.Queue) }

// Schedule returns the hop for a message that must not reach exchange before delay has elapsed. key is the routing key
// of the message. If exchange is empty, key is the name of a queue. If delay is not positive, the hop leads directly to
// the target. The exchange or the queue must exist when the message is due.
//
// The message must not have an expiration, because an expiration that is shorter than a wait would end that wait early. It
// must not have a header x-death, because RabbitMQ before 4.0 trusts this header, and could drop the message as a cycle.
// The broker uses the routing keys in the header CC if the target is an exchange, and ignores them if the target is a
// queue.
//
// If the exchange does not route a due message to any queue, the broker keeps the message and retries, as for a full queue.
// See Levels for the effect on other messages.
func (Levels) Schedule(exchange, key string, delay time.Duration) (Hop, error) {
	switch {
	case exchange == "" && key == "":
		return Hop{}, errors.New("topology: exchange and key must not both be empty (without an exchange, the key is the name of a queue)")
	case len(key) > maxName:
		return Hop{}, fmt.Errorf("topology: routing key %.40q… must have at most %d bytes: got %d", key, maxName, len(key))
	case delay > MaxSchedule:
		return Hop{}, fmt.Errorf("topology: delay must be at most %s (8.5 years): got %s", MaxSchedule, delay)
	case delay <= 0:
		return Hop{Exchange: exchange, RoutingKey: key}, nil
	}
	if err := validateTarget(exchange, key); err != nil {
		return Hop{}, err
	}
	target := levelsTo(exchange, key)
	seconds := int64((delay + time.Second - 1) / time.Second)
	rest := uint64(seconds - 1) // level 0 adds the last second
	highest := bits.Len64(rest)
	headers := Table{}
	for n := 1; n <= highest; n++ {
		headers[levelHeader(n)] = rest>>(n-1)&1 == 1
	}
	return Hop{
		Exchange:   target.name(highest),
		RoutingKey: key,
		Delay:      time.Duration(seconds) * time.Second,
		Headers:    headers,
		Stations:   bits.OnesCount64(rest) + 1,
		Topology:   target.topology(highest),
	}, nil
}

// reserved is the prefix of names that are reserved for the broker.
const reserved = "amq."

func levelHeader(n int) string { return fmt.Sprintf("%s%02d", HeaderLevel, n) }

// levels describes the levels of a target, which is a queue or an exchange. The name formats for queues and exchanges
// never result in the same name. They also permit a predeclared exchange of the broker, such as amq.topic, as a target.
type levels struct {
	format   string // format of the names, with the target and the number of the level
	exchange string
	key      string // "" keeps the routing key of the message
}

func levelsTo(exchange, key string) levels {
	if exchange == "" {
		return levels{format: "%s.level.%d", key: key}
	}
	return levels{format: "exchange.%s.level-%d", exchange: exchange}
}

// name returns the name that the queue of level n and the exchange in front of it share.
func (l levels) name(n int) string { return fmt.Sprintf(l.format, l.exchange+l.key, n) }

// topology returns the levels from 0 to highest.
func (l levels) topology(highest int) Topology {
	t := Topology{
		Exchanges: []Exchange{{Name: l.name(0), Kind: Fanout}},
		Queues:    []Queue{level(l.name(0), time.Second, l.exchange, l.key)},
		Bindings:  []Binding{{Exchange: l.name(0), Queue: l.name(0)}},
	}
	for n := 1; n <= highest; n++ {
		here, below := l.name(n), l.name(n-1)
		// The exchange ignores headers that begin with x-, unless x-match ends with -with-x.
		when := func(bit bool) Table { return Table{"x-match": "all-with-x", levelHeader(n): bit} }
		t.Exchanges = append(t.Exchanges, Exchange{Name: here, Kind: Headers})
		t.Queues = append(t.Queues, level(here, time.Second<<(n-1), below, ""))
		t.Bindings = append(t.Bindings,
			Binding{Exchange: here, Queue: here, Args: when(true)},
			Binding{Exchange: here, ToExchange: below, Args: when(false)})
	}
	return t
}

// level returns a wait queue whose messages all wait equally long.
func level(name string, ttl time.Duration, exchange, key string) Queue {
	q := waitQueue(name, exchange, key)
	q.Args["x-message-ttl"] = ttl.Milliseconds()
	return q
}
