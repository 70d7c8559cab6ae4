package topology

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"
)

// MaxSchedule is the longest that Levels keep a message waiting: 2²⁸ seconds, 8
// years and a half.
const MaxSchedule = (1 << topLevel) * time.Second

const topLevel = 28

// HeaderLevel begins the names of the headers that lead a message through
// Levels: x-reprise-level-01 (bool: it waits there) to -28. They are of no use
// to anyone afterwards.
const HeaderLevel = "x-reprise-level-"

// Levels is the Route for long waits, exact to the second: any delay up to
// MaxSchedule, never early, and never behind another message. It takes longer to
// set up than Buckets and more hops, one for each bit of the delay.
//
// A delay is a sum of powers of two, and each has a queue whose messages all
// wait that long: first in is first due, so that nothing waits for anything but
// its own time. Level n holds a message for 2ⁿ⁻¹ seconds, level 0 for one second
// more; a message takes the levels that its delay has bits for, from the highest
// down, and always the last. For 7 s = 4 s + 2 s + 1 s:
//
//	exchange 3 ─► queue 3 ─► exchange 2 ─► queue 2 ─► exchange 1 ───────► exchange 0 ─► queue 0 ─► target
//	                4 s                      2 s         (not queue 1)                    1 s
//
// At each level stands a headers exchange, which looks at one header, and sends
// the message into the queue or past it. So its routing key is its own on the
// whole way, and the target is reached as if it had been published to just then.
// (Bits in the routing key would do with fewer exchanges, and lose it.)
//
// Delays are rounded up to whole seconds. Each hop adds its milliseconds.
//
// A message waits in each level once or not at all, so n levels make at most 2ⁿ
// delays, and delays that are exact to the second cannot do with fewer.
//
// Nothing is shared between targets: each work queue, and each exchange that is
// scheduled to, has levels of its own, up to the highest that a delay has asked
// for. An hour takes 13 queues and as many exchanges, 30 days 23, a year 26. RabbitMQ
// dead-letters nothing more from a queue while 32 of its messages find no place,
// be it that the target is full or that it is gone; it tries again every three
// minutes (https://www.rabbitmq.com/docs/quorum-queues#dead-lettering).
type Levels struct{}

// ValidateQueue reports a work queue whose levels or failed queue would have
// names that no broker accepts.
func (Levels) ValidateQueue(queue string) error {
	return errors.Join(validateTarget("", queue), validateNames(queue, FailedQueue(queue)))
}

// validateTarget reports a target whose levels would have such names.
func validateTarget(exchange, queue string) error {
	name := levelsTo(exchange, queue).name(topLevel)
	if exchange != "" {
		if over := len(name) - maxName; over > 0 {
			return fmt.Errorf("topology: the exchange's name %.40q… has %d bytes: use at most %d, since its levels have longer names, and 255 are possible",
				exchange, len(exchange), len(exchange)-over)
		}
		return nil
	}
	if strings.HasPrefix(queue, reserved) {
		return fmt.Errorf("topology: the levels of the queue %q would have names that begin with %q too, which are the broker's own: "+
			"use a queue with a name of yours", queue, reserved)
	}
	return validateNames(queue, name)
}

// Topology returns the work queue, declared only if it does not exist, and its
// failed queue, as that of Buckets.
func (Levels) Topology(queue string) Topology { return workAndFailed(queue, FailedQueue(queue)) }

// Wait returns the hop into the highest level that the delay needs. A delay
// beyond MaxSchedule counts as MaxSchedule: the message comes back then, and the
// handler can ask again.
func (l Levels) Wait(d Delivery, delay time.Duration) (Hop, error) {
	return l.Schedule("", d.Queue, min(delay, MaxSchedule))
}

// Failed returns the hop into the failed queue of d.Queue, through the default
// exchange.
func (Levels) Failed(d Delivery) Hop { return failed(d.Queue) }

// Schedule returns the hop of a message that is to reach exchange after delay,
// with the routing key key and never earlier. Without an exchange, key is the
// name of a queue. Without a delay, that is the hop. The exchange, or the queue,
// must exist when the message is due.
//
// The message must have no expiration of its own, which would end its wait, and
// no header x-death, which RabbitMQ before 4.0 takes for its own account and
// could drop the message for, as one that goes in circles. Keys in its header CC
// are used where an exchange is the target, and are not where a queue is.
//
// When a message is due and its exchange has no queue for it, it is kept and
// tried again, as one for a queue that is full: see Levels for what that holds
// up.
func (Levels) Schedule(exchange, key string, delay time.Duration) (Hop, error) {
	switch {
	case exchange == "" && key == "":
		return Hop{}, errors.New("topology: neither an exchange nor a queue to schedule a message to: name one of them")
	case len(key) > maxName:
		return Hop{}, fmt.Errorf("topology: the routing key %.40q… has %d bytes: at most %d are possible", key, len(key), maxName)
	case delay > MaxSchedule:
		return Hop{}, fmt.Errorf("topology: a delay of %s: at most %s (8.5 years) is possible", delay, MaxSchedule)
	case delay <= 0:
		return Hop{Exchange: exchange, RoutingKey: key}, nil
	}
	if err := validateTarget(exchange, key); err != nil {
		return Hop{}, err
	}
	target := levelsTo(exchange, key)
	seconds := int64((delay + time.Second - 1) / time.Second)
	rest := uint64(seconds - 1) // the last second is level 0
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

// reserved begins the names that only the broker may give.
const reserved = "amq."

func levelHeader(n int) string { return fmt.Sprintf("%s%02d", HeaderLevel, n) }

// levels lead to a queue, or to an exchange. Both kinds of names are made so that
// those of an exchange are never those of a queue, whatever they are called, and
// that an exchange of the broker's, such as amq.topic, can be one.
type levels struct {
	format   string // of the names, by number
	exchange string
	key      string // "" leaves a message its own
}

func levelsTo(exchange, key string) levels {
	if exchange == "" {
		return levels{format: "%s.level.%d", key: key}
	}
	return levels{format: "exchange.%s.level-%d", exchange: exchange}
}

// name is that of a level's queue, and of the exchange in front of it.
func (l levels) name(n int) string { return fmt.Sprintf(l.format, l.exchange+l.key, n) }

// topology is that of the levels up to the highest.
func (l levels) topology(highest int) Topology {
	t := Topology{
		Exchanges: []Exchange{{Name: l.name(0), Kind: Fanout}},
		Queues:    []Queue{level(l.name(0), time.Second, l.exchange, l.key)},
		Bindings:  []Binding{{Exchange: l.name(0), Queue: l.name(0)}},
	}
	for n := 1; n <= highest; n++ {
		here, below := l.name(n), l.name(n-1)
		// Without -with-x, names that begin with x- would not be looked at.
		when := func(bit bool) Table { return Table{"x-match": "all-with-x", levelHeader(n): bit} }
		t.Exchanges = append(t.Exchanges, Exchange{Name: here, Kind: Headers})
		t.Queues = append(t.Queues, level(here, time.Second<<(n-1), below, ""))
		t.Bindings = append(t.Bindings,
			Binding{Exchange: here, Queue: here, Args: when(true)},
			Binding{Exchange: here, ToExchange: below, Args: when(false)})
	}
	return t
}

// level is a wait queue whose messages all wait equally long.
func level(name string, ttl time.Duration, exchange, key string) Queue {
	q := waitQueue(name, exchange, key)
	q.Args["x-message-ttl"] = ttl.Milliseconds()
	return q
}
