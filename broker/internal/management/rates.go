package management

import (
	"sync"
	"time"

	"github.com/reprisemq/reprise/broker/internal/stats"
)

const (
	// rateInterval is the minimum time between the two requests that determine a rate. It equals RabbitMQ's sampling
	// interval.
	rateInterval = 5 * time.Second
	// rateMemory is the time after which an entry is removed if no client has requested it.
	rateMemory = 10 * time.Minute
	// shortMemory replaces rateMemory while the number of entries grows quickly because clients create and delete many
	// objects.
	shortMemory = 3 * rateInterval
	// fewNumbers is the number of entries up to which rateMemory always applies.
	fewNumbers = 10_000
)

// details is a rate per second, for example of messages or bytes.
type details struct {
	Rate float64 `json:"rate"`
}

// rates computes the rates at which numbers change. It remembers an earlier value of each number.
type rates struct {
	mu    sync.Mutex
	seen  map[rateKey]sample
	swept time.Time
	left  int // number of entries after the last sweep
}

// rateKey identifies a number by its object and its name.
type rateKey struct {
	of    any
	which string
}

type sample struct {
	at    time.Time
	value uint64
	rate  float64
}

// of returns the rate at which a number changes. The argument value is the number's current value.
func (r *rates) of(of any, which string, value uint64) details {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.sweep(now)
	key := rateKey{of, which}
	last, known := r.seen[key]
	switch passed := now.Sub(last.at); {
	case !known:
		last = sample{at: now, value: value}
	case passed < rateInterval:
		return details{last.rate}
	default:
		last = sample{now, value, (float64(value) - float64(last.value)) / passed.Seconds()}
	}
	r.seen[key] = last
	return details{last.rate}
}

func (r *rates) sweep(now time.Time) {
	if r.seen == nil {
		r.seen = make(map[rateKey]sample)
	}
	memory := rateMemory
	if len(r.seen) > fewNumbers+2*r.left {
		memory = shortMemory
	} else if now.Sub(r.swept) < rateMemory {
		return
	}
	for key, s := range r.seen {
		if now.Sub(s.at) > memory {
			delete(r.seen, key)
		}
	}
	r.swept, r.left = now, len(r.seen)
}

// counted returns the fields of a number and its rate.
func (r *rates) counted(of any, name string, value uint64) fields {
	return fields{name: value, name + "_details": r.of(of, name, value)}
}

// depth returns the fields for the numbers of ready, unacked and all messages, and their rates.
func (r *rates) depth(of any, ready, unacked int) fields {
	return r.counted(of, "messages", uint64(ready+unacked)).
		with(r.counted(of, "messages_ready", uint64(ready))).
		with(r.counted(of, "messages_unacknowledged", uint64(unacked)))
}

// counter is a field of message_stats.
type counter struct {
	name string
	of   func(*stats.Counts) uint64
}

var (
	// queueCounters are the counters of a queue. They do not include confirms and unroutable messages, because clients
	// publish to exchanges and not to queues.
	queueCounters = []counter{
		{"publish", only(stats.Publish)},
		{"get", only(stats.Get)},
		{"get_no_ack", only(stats.GetNoAck)},
		{"get_empty", only(stats.GetEmpty)},
		{"deliver", only(stats.Deliver)},
		{"deliver_no_ack", only(stats.DeliverNoAck)},
		{"deliver_get", (*stats.Counts).DeliverGet},
		{"redeliver", only(stats.Redeliver)},
		{"ack", only(stats.Ack)},
	}
	// clientCounters are the counters of a channel, and of objects that contain channels.
	clientCounters = append([]counter{
		{"confirm", only(stats.Confirm)},
		{"return_unroutable", only(stats.Returned)},
		{"drop_unroutable", only(stats.Dropped)},
	}, queueCounters...)
)

// messageStats returns message_stats, or nil if all counters are zero.
func (r *rates) messageStats(of any, counted stats.Counts, counters []counter) fields {
	if counted == (stats.Counts{}) {
		return nil
	}
	all := make(fields, 2*len(counters))
	for _, c := range counters {
		value := c.of(&counted)
		rate := r.of(of, c.name, value)
		rate.Rate = max(rate.Rate, 0) // the counters restart at 0 if an object with the same name is created
		all[c.name], all[c.name+"_details"] = value, rate
	}
	return fields{"message_stats": all}
}
