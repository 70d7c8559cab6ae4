package config

import (
	"cmp"
	"fmt"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/topology"
)

// retryDelay returns the refusal of the backoff key for a preset with retry_delay.
func retryDelay(example string) refusal {
	return refusal{"backoff", "does not apply to this preset, whose delay is retry_delay; write retry_delay: " + example + " next to preset:"}
}

// presetDesign is implemented by the designs in package preset.
type presetDesign interface {
	Strategy() topology.Strategy
	Validate() error
}

// fixedDelay returns a worker of a design in which all retries have the same delay.
func fixedDelay(queue string, p presetDesign, delay time.Duration) (reprise.WorkerConfig, error) {
	return reprise.WorkerConfig{Queue: queue, Strategy: p.Strategy(), Policy: reprise.Policy{Backoff: backoff.Fixed(delay)}}, p.Validate()
}

// coverArt identifies the work queues by their routing keys.
var coverArt = design{
	name:   "cover-art",
	queues: []string{"index", "delete", "move"},
	settings: func(f *fields) workerOf {
		var p preset.CoverArt
		read(f, "retries", &p.Retries, integer(1, MaxAttempts))
		read(f, "retry_delay", &p.RetryDelay, value.wait)
		read(f, "queue_type", &p.QueueType, queueType)
		queues := map[string]string{"index": preset.CoverArtIndexQueue, "delete": preset.CoverArtDeleteQueue, "move": preset.CoverArtMoveQueue}
		return func(key string) (reprise.WorkerConfig, error) {
			return fixedDelay(queues[key], p, cmp.Or(p.RetryDelay, preset.CoverArtRetryDelay))
		}
	},
	refused: []refusal{
		{"attempts", "does not apply to this preset, whose messages contain the number of retries; write retries: 4 next to preset:"},
		{"rules", "does not apply to this preset, whose messages contain the number of retries; write retries: 4 next to preset:"},
		{"give_up_after", "does not apply to this preset, whose messages do not contain the time of the first failure; write retries: 4 next to preset:"},
		retryDelay("4h"),
	},
}

var staking = design{
	name:   "staking",
	others: true,
	queues: []string{
		preset.StakingActiveQueue, preset.StakingUnbondingQueue, preset.StakingWithdrawQueue, preset.StakingExpiredQueue,
		preset.StakingStatsQueue, preset.StakingBtcInfoQueue, preset.StakingConfirmedInfoQueue,
	},
	settings: func(f *fields) workerOf {
		var p preset.Staking
		read(f, "retry_delay", &p.RetryDelay, value.wait)
		read(f, "delay_ttl", &p.DelayTTL, value.wait)
		read(f, "queue_type", &p.QueueType, queueType)
		return func(queue string) (reprise.WorkerConfig, error) {
			return fixedDelay(queue, p, cmp.Or(p.RetryDelay, preset.StakingRetryDelay))
		}
	},
	refused: []refusal{retryDelay("5s")},
}

// workRetry identifies its queue without the prefix.
var workRetry = design{
	name:   "work-retry",
	queues: []string{preset.WorkRetryWorkQueue},
	settings: func(f *fields) workerOf {
		var p preset.WorkRetry
		read(f, "retry_delay", &p.RetryDelay, value.wait)
		read(f, "kind", &p.Kind, exchangeKind)
		read(f, "key", &p.Key, value.routingKey)
		read(f, "transient_exchanges", &p.TransientExchanges, value.boolean)
		read(f, "queue_type", &p.QueueType, queueType)
		read(f, "prefix", &p.Prefix, ownName("billing.", len(preset.WorkRetryFailedQueue)))
		return func(string) (reprise.WorkerConfig, error) {
			return fixedDelay(p.Queue(), p, cmp.Or(p.RetryDelay, preset.WorkRetryRetryDelay))
		}
	},
	refused: []refusal{retryDelay("5m")},
}

// cdnPurge takes the name of the work queue from the file.
var cdnPurge = design{
	name:    "cdn-purge",
	example: preset.CDNPurgeQueue,
	settings: func(f *fields) workerOf {
		var p preset.CDNPurge
		room := len(".wait")
		published := false
		if read(f, "published", &published, value.boolean); published {
			p = preset.CDNPurgePublished()
		}
		read(f, "exchange", &p.Exchange, ownName(preset.CDNPurgeExchange, room))
		read(f, "wait_exchange", &p.WaitExchange, ownName(preset.CDNPurgeWaitExchange, room))
		read(f, "wait_queue", &p.WaitQueue, ownName(preset.CDNPurgeWaitQueue, room))
		read(f, "failed_queue", &p.FailedQueue, ownName("cdn-purge.failed", room))
		read(f, "routing_keys", &p.RoutingKeys, list("a list of all routing keys that lead to the work queue, such as [url, tag]", value.routingKey))
		read(f, "kind", &p.Kind, exchangeKind)
		read(f, "wait_kind", &p.WaitKind, exchangeKind)
		read(f, "transient_exchanges", &p.TransientExchanges, value.boolean)
		read(f, "transient_queues", &p.TransientQueues, value.boolean)
		read(f, "auto_delete", &p.AutoDelete, value.boolean)
		f.growth(&p)
		read(f, "queue_type", &p.QueueType, queueType)
		read(f, "wait_args", &p.WaitArgs, arguments("x-dead-letter-exchange", "x-dead-letter-routing-key"))
		return func(queue string) (reprise.WorkerConfig, error) {
			p := p
			p.Queue = queue
			if err := distinct(p); err != nil {
				return reprise.WorkerConfig{Queue: queue}, err
			}
			return reprise.WorkerConfig{
				Queue:    queue,
				Strategy: p.Strategy(),
				Policy: reprise.Policy{Backoff: backoff.Exponential{
					Initial: cmp.Or(p.First, preset.CDNPurgeFirst),
					Factor:  cmp.Or(p.Factor, preset.CDNPurgeFactor),
					Max:     cmp.Or(p.Max, topology.MaxDelay.Truncate(time.Millisecond)),
				}},
			}, p.Validate()
		}
	},
	refused: []refusal{
		{"queue", "belongs below queues; write queues: {" + preset.CDNPurgeQueue + ": {exec: [PROGRAM]}} next to preset:"},
		{"backoff", "does not apply to this preset, which computes each delay from the previous delay; write first: 10s, factor: 3 and max: 1d next to preset:"},
	},
}

// maxFactor is the maximum factor. A larger factor is probably a mistake.
const maxFactor = 100

// growth reads the settings of growing delays.
func (f *fields) growth(p *preset.CDNPurge) {
	read(f, "first", &p.First, value.wait)
	read(f, "factor", &p.Factor, func(x value) (float64, bool) {
		n, ok := number("a number")(x)
		if ok && !(n >= 1 && n <= maxFactor) { // this form also rejects NaN
			return 0, x.fail("%s must be 1 (constant delays) to %[3]d: got %[2]v", x.name, n, maxFactor)
		}
		return n, ok
	})
	read(f, "max", &p.Max, func(x value) (time.Duration, bool) {
		d, ok := x.wait()
		if first := cmp.Or(p.First, preset.CDNPurgeFirst); ok && d < first {
			return 0, x.fail("%s (%s) is shorter than the first delay (%s); set a longer time, or a shorter first:", x.name, FormatDuration(d), FormatDuration(first))
		}
		return d, ok
	})
	read(f, "jitter", &p.Jitter, orNone(part, -1))
}

// part reads the random fraction of a delay. For 0, it returns a negative number, which means no randomness in the design.
func part(v value) (float64, bool) {
	const wanted = "the random part of a delay, such as 0.1"
	n, ok := number(wanted)(v)
	switch {
	case ok && !(n >= 0 && n < 1): // this form also rejects NaN
		return 0, v.fail("%s must be %s%s: got %v", v.name, wanted, v.also, n)
	case n == 0:
		return -1, ok
	}
	return n, ok
}

// distinct returns an error for duplicate names. The error names the settings by their keys in the file.
func distinct(p preset.CDNPurge) error {
	exchange := cmp.Or(p.Exchange, preset.CDNPurgeExchange)
	if p.WaitExchange == exchange {
		return fmt.Errorf("wait_exchange must differ from exchange: got %s twice (waiting messages would be delivered immediately)", brief.Quoted(exchange))
	}
	taken := map[string]string{p.Queue: "the work queue"}
	for _, q := range [][2]string{
		{"wait_queue", cmp.Or(p.WaitQueue, p.Queue+".wait")},
		{"failed_queue", cmp.Or(p.FailedQueue, topology.FailedQueue(p.Queue))},
	} {
		if other, found := taken[q[1]]; found {
			return fmt.Errorf("%s and %s must be different: got %s twice", q[0], other, brief.Quoted(q[1]))
		}
		taken[q[1]] = q[0]
	}
	return nil
}
