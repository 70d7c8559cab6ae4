package config

import (
	"cmp"
	"fmt"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/topology"
	"github.com/reprisemq/reprise/topology/preset"
)

// retryDelay is a refusal of backoff.
func retryDelay(example string) refusal {
	return refusal{"backoff", "means nothing with this preset, where every retry waits retry_delay: write retry_delay: " + example + " beside preset:"}
}

// fixedDelay is the policy of a design with one wait queue.
func fixedDelay(delay, byDefault time.Duration) reprise.Policy {
	return reprise.Policy{Backoff: backoff.Fixed(cmp.Or(delay, byDefault))}
}

// coverArt names the work queues by their routing keys.
var coverArt = design{
	name:   "cover-art",
	queues: []string{"index", "delete", "move"},
	settings: func(f *fields) workerOf {
		var p preset.CoverArt
		f.integerInto("retries", &p.Retries, 1, MaxAttempts)
		f.waitInto("retry_delay", &p.RetryDelay)
		f.queueType(&p.QueueType)
		queues := map[string]string{"index": preset.CoverArtIndexQueue, "delete": preset.CoverArtDeleteQueue, "move": preset.CoverArtMoveQueue}
		return func(key string) (reprise.WorkerConfig, error) {
			return reprise.WorkerConfig{
				Queue: queues[key], Strategy: p.Strategy(), Policy: fixedDelay(p.RetryDelay, preset.CoverArtRetryDelay),
			}, p.Validate()
		}
	},
	refused: []refusal{
		{"attempts", "is counted on the messages of this preset: write retries: 4 beside preset:"},
		{"rules", "means nothing with this preset, where each message has its retries on it: write retries: 4 beside preset:"},
		{"give_up_after", "cannot be kept with this preset, nothing tells when a message first failed: write retries: 4 beside preset:"},
		retryDelay("4h"),
	},
}

var staking = design{
	name: "staking",
	queues: []string{
		preset.StakingActiveQueue, preset.StakingUnbondingQueue, preset.StakingWithdrawQueue, preset.StakingExpiredQueue,
		preset.StakingStatsQueue, preset.StakingBtcInfoQueue, preset.StakingConfirmedInfoQueue,
	},
	settings: func(f *fields) workerOf {
		var p preset.Staking
		f.waitInto("retry_delay", &p.RetryDelay)
		f.queueType(&p.QueueType)
		return func(queue string) (reprise.WorkerConfig, error) {
			return reprise.WorkerConfig{
				Queue: queue, Strategy: p.Strategy(), Policy: fixedDelay(p.RetryDelay, preset.StakingRetryDelay),
			}, p.Validate()
		}
	},
	refused: []refusal{retryDelay("5s")},
}

// workRetry names its queue without the prefix.
var workRetry = design{
	name:   "work-retry",
	queues: []string{preset.WorkRetryWorkQueue},
	settings: func(f *fields) workerOf {
		var p preset.WorkRetry
		f.waitInto("retry_delay", &p.RetryDelay)
		f.kindOf("kind", &p.Kind)
		f.read("key", func(x value) { p.Key, _ = x.routingKey() })
		f.booleanInto("transient_exchanges", &p.TransientExchanges)
		f.queueType(&p.QueueType)
		longest := len(preset.WorkRetryFailedQueue)
		f.read("prefix", func(x value) { p.Prefix, _ = x.ownName("billing.", longest) })
		return func(string) (reprise.WorkerConfig, error) {
			return reprise.WorkerConfig{
				Queue: p.Queue(), Strategy: p.Strategy(), Policy: fixedDelay(p.RetryDelay, preset.WorkRetryRetryDelay),
			}, p.Validate()
		}
	},
	refused: []refusal{retryDelay("5m")},
}

// cdnPurge leaves the name of the work queue to the file.
var cdnPurge = design{
	name:    "cdn-purge",
	example: preset.CDNPurgeQueue,
	settings: func(f *fields) workerOf {
		var p preset.CDNPurge
		name := func(key, example string, into *string) {
			f.read(key, func(x value) { *into, _ = x.ownName(example, len(".wait")) })
		}
		name("exchange", preset.CDNPurgeExchange, &p.Exchange)
		name("wait_exchange", preset.CDNPurgeWaitExchange, &p.WaitExchange)
		name("wait_queue", preset.CDNPurgeWaitQueue, &p.WaitQueue)
		name("failed_queue", "cdn-purge.failed", &p.FailedQueue)
		f.read("routing_keys", func(x value) { p.RoutingKeys = x.routingKeys() })
		f.kindOf("kind", &p.Kind)
		f.kindOf("wait_kind", &p.WaitKind)
		f.booleanInto("transient_exchanges", &p.TransientExchanges)
		f.booleanInto("transient_queues", &p.TransientQueues)
		f.booleanInto("auto_delete", &p.AutoDelete)
		f.growth(&p)
		f.queueType(&p.QueueType)
		f.read("wait_args", func(x value) { p.WaitArgs = x.arguments("x-dead-letter-exchange", "x-dead-letter-routing-key") })
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
		{"queue", "is named below queues: write queues: {" + preset.CDNPurgeQueue + ": {exec: [PROGRAM]}} beside preset:"},
		{"backoff", "means nothing with this preset, where each delay follows from the last: write first: 10s, factor: 3 and max: 1d beside preset:"},
	},
}

// maxFactor is an upper bound for factors that are no mistake.
const maxFactor = 100

// growth reads how delays grow.
func (f *fields) growth(p *preset.CDNPurge) {
	f.waitInto("first", &p.First)
	f.read("factor", func(x value) {
		switch n, ok := x.number(); {
		case !ok:
		case !(n >= 1 && n <= maxFactor): // written so that NaN fails too
			x.fail("%s is %v: write 1 for delays that stay the same, or more, up to %d", x.name, n, maxFactor)
		default:
			p.Factor = n
		}
	})
	f.read("max", func(x value) {
		var ok bool
		first := cmp.Or(p.First, preset.CDNPurgeFirst)
		if p.Max, ok = x.wait(); ok && p.Max < first {
			x.fail("%s (%s) is shorter than the first delay (%s): write more, or a shorter first:", x.name, FormatDuration(p.Max), FormatDuration(first))
		}
	})
	f.read("jitter", func(x value) { p.Jitter = x.part() })
}

// part reads how much of a delay is random, of which the design has two: more or
// less; negative for none.
func (v value) part() float64 {
	const advice = "write the part by which a delay is more or less, such as 0.1, or none"
	if v.kind() == "a text" {
		if !v.none() {
			v.fail("%s is a text: %s", v.name, advice)
		}
		return -1
	}
	n, ok := v.number()
	switch {
	case !ok:
		return 0
	case !(n >= 0 && n < 1): // written so that NaN fails too
		v.fail("%s is %v: %s", v.name, n, advice)
		return 0
	case n == 0:
		return -1
	}
	return n
}

// distinct reports names that are given twice, in the words of the file.
func distinct(p preset.CDNPurge) error {
	exchange := cmp.Or(p.Exchange, preset.CDNPurgeExchange)
	if p.WaitExchange == exchange {
		return fmt.Errorf("wait_exchange and exchange are both %s, what waits would reach the work queue at once: name another", quoted(exchange))
	}
	taken := map[string]string{p.Queue: "the work queue"}
	for _, q := range [][2]string{
		{"wait_queue", cmp.Or(p.WaitQueue, p.Queue+".wait")},
		{"failed_queue", cmp.Or(p.FailedQueue, topology.FailedQueue(p.Queue))},
	} {
		if other, found := taken[q[1]]; found {
			return fmt.Errorf("%s and %s are both %s: name two queues", q[0], other, quoted(q[1]))
		}
		taken[q[1]] = q[0]
	}
	return nil
}
