package management

import (
	"sync"
	"time"

	"github.com/reprisemq/reprise/broker/internal/stats"
)

const (
	// rateInterval is how far two looks lie apart, at the least, that a rate is made of. RabbitMQ samples as often.
	rateInterval = 5 * time.Second
	// rateMemory is how long something is remembered that nobody looks at.
	rateMemory = 10 * time.Minute
)

// details is a rate in messages, bytes or whatever a second.
type details struct {
	Rate float64 `json:"rate"`
}

// rates turns numbers into rates. It remembers what a number was when it was last looked at, by a name for the number.
type rates struct {
	mu    sync.Mutex
	seen  map[rateKey]sample
	swept time.Time
}

// rateKey is a number: of what, and which.
type rateKey struct {
	of    any
	which string
}

type sample struct {
	at    time.Time
	value uint64
	rate  float64
}

// of returns the rate of a number.
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
	if now.Sub(r.swept) < rateMemory {
		return
	}
	r.swept = now
	for key, s := range r.seen {
		if now.Sub(s.at) > rateMemory {
			delete(r.seen, key)
		}
	}
}

// messageStats is RabbitMQ's message_stats: what an object takes no part in is left out.
type messageStats struct {
	publishing
	consuming
}

type publishing struct {
	Publish         uint64  `json:"publish"`
	PublishDetails  details `json:"publish_details"`
	Confirm         uint64  `json:"confirm"`
	ConfirmDetails  details `json:"confirm_details"`
	Returned        uint64  `json:"return_unroutable"`
	ReturnedDetails details `json:"return_unroutable_details"`
	Dropped         uint64  `json:"drop_unroutable"`
	DroppedDetails  details `json:"drop_unroutable_details"`
}

type consuming struct {
	Get                 uint64  `json:"get"`
	GetDetails          details `json:"get_details"`
	GetNoAck            uint64  `json:"get_no_ack"`
	GetNoAckDetails     details `json:"get_no_ack_details"`
	GetEmpty            uint64  `json:"get_empty"`
	GetEmptyDetails     details `json:"get_empty_details"`
	Deliver             uint64  `json:"deliver"`
	DeliverDetails      details `json:"deliver_details"`
	DeliverNoAck        uint64  `json:"deliver_no_ack"`
	DeliverNoAckDetails details `json:"deliver_no_ack_details"`
	DeliverGet          uint64  `json:"deliver_get"`
	DeliverGetDetails   details `json:"deliver_get_details"`
	Redeliver           uint64  `json:"redeliver"`
	RedeliverDetails    details `json:"redeliver_details"`
	Ack                 uint64  `json:"ack"`
	AckDetails          details `json:"ack_details"`
}

// queueStats are the message_stats of a queue, which nobody publishes to in person.
type queueStats struct {
	Publish        uint64  `json:"publish"`
	PublishDetails details `json:"publish_details"`
	consuming
}

// messages returns the message_stats of something; nil, as long as nothing has happened to it.
func (r *rates) messages(of any, c stats.Counts) *messageStats {
	if c == (stats.Counts{}) {
		return nil
	}
	s := &messageStats{consuming: r.consuming(of, c)}
	s.Publish, s.PublishDetails = r.count(of, c, stats.Publish)
	s.Confirm, s.ConfirmDetails = r.count(of, c, stats.Confirm)
	s.Returned, s.ReturnedDetails = r.count(of, c, stats.Returned)
	s.Dropped, s.DroppedDetails = r.count(of, c, stats.Dropped)
	return s
}

func (r *rates) queue(of any, c stats.Counts) *queueStats {
	if c == (stats.Counts{}) {
		return nil
	}
	s := &queueStats{consuming: r.consuming(of, c)}
	s.Publish, s.PublishDetails = r.count(of, c, stats.Publish)
	return s
}

func (r *rates) consuming(of any, c stats.Counts) consuming {
	var s consuming
	s.Get, s.GetDetails = r.count(of, c, stats.Get)
	s.GetNoAck, s.GetNoAckDetails = r.count(of, c, stats.GetNoAck)
	s.GetEmpty, s.GetEmptyDetails = r.count(of, c, stats.GetEmpty)
	s.Deliver, s.DeliverDetails = r.count(of, c, stats.Deliver)
	s.DeliverNoAck, s.DeliverNoAckDetails = r.count(of, c, stats.DeliverNoAck)
	s.Redeliver, s.RedeliverDetails = r.count(of, c, stats.Redeliver)
	s.Ack, s.AckDetails = r.count(of, c, stats.Ack)
	s.DeliverGet = c.DeliverGet()
	s.DeliverGetDetails = r.of(of, "deliver_get", s.DeliverGet)
	return s
}

func (r *rates) count(of any, c stats.Counts, k stats.Kind) (uint64, details) {
	rate := r.of(of, kindNames[k], c.Of(k))
	rate.Rate = max(rate.Rate, 0) // another thing may have come under the same name, and begun at zero
	return c.Of(k), rate
}

var kindNames = map[stats.Kind]string{
	stats.Publish: "publish", stats.Confirm: "confirm", stats.Returned: "return", stats.Dropped: "drop",
	stats.Get: "get", stats.GetNoAck: "get_no_ack", stats.GetEmpty: "get_empty", stats.Deliver: "deliver",
	stats.DeliverNoAck: "deliver_no_ack", stats.Redeliver: "redeliver", stats.Ack: "ack",
}

// depth is how many messages there are, with their rates.
type depth struct {
	Messages        int     `json:"messages"`
	MessagesDetails details `json:"messages_details"`
	Ready           int     `json:"messages_ready"`
	ReadyDetails    details `json:"messages_ready_details"`
	Unacked         int     `json:"messages_unacknowledged"`
	UnackedDetails  details `json:"messages_unacknowledged_details"`
}

func (r *rates) depth(of any, ready, unacked int) depth {
	return depth{
		Messages: ready + unacked, MessagesDetails: r.of(of, "messages", uint64(ready+unacked)),
		Ready: ready, ReadyDetails: r.of(of, "ready", uint64(ready)),
		Unacked: unacked, UnackedDetails: r.of(of, "unacked", uint64(unacked)),
	}
}
