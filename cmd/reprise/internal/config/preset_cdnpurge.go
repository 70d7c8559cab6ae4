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

// cdnPurgeDesign says nothing of names, so that the work queue has the one
// that the file gives it.
var cdnPurgeDesign = design{
	name:     "cdn-purge",
	former:   "wait-exchange",
	example:  preset.CDNPurgeQueue,
	settings: cdnPurgeSettings,
	refused: []refusal{
		{"queue", "is named below queues: write queues: {" + preset.CDNPurgeQueue + ": {exec: [PROGRAM]}} beside preset:"},
		{"backoff", "means nothing with this preset, where each delay follows from the last: write first: 10s, factor: 3 and max: 1d beside preset:"},
	},
}

// maxFactor is the factor beyond which it is a slip.
const maxFactor = 100

type cdnPurge struct{ preset.CDNPurge }

func cdnPurgeSettings(f *fields) system {
	var p cdnPurge
	name := func(key, example string, into *string) {
		if x, ok := f.get(key); ok {
			*into, _ = x.ownName(example, len(".wait"))
		}
	}
	name("exchange", preset.CDNPurgeExchange, &p.Exchange)
	name("wait_exchange", preset.CDNPurgeWaitExchange, &p.WaitExchange)
	name("wait_queue", preset.CDNPurgeWaitQueue, &p.WaitQueue)
	name("failed_queue", "cdn-purge.failed", &p.FailedQueue)
	if x, ok := f.get("routing_keys"); ok {
		p.RoutingKeys = x.routingKeys()
	}
	f.kindOf("kind", &p.Kind)
	f.kindOf("wait_kind", &p.WaitKind)
	for key, into := range map[string]*bool{
		"transient_exchanges": &p.TransientExchanges, "transient_queues": &p.TransientQueues, "auto_delete": &p.AutoDelete,
	} {
		if x, ok := f.get(key); ok {
			*into, _ = x.boolean()
		}
	}
	f.growth(&p.CDNPurge)
	f.queueType(&p.QueueType)
	if x, ok := f.get("wait_args"); ok {
		p.WaitArgs = x.arguments("x-dead-letter-exchange", "x-dead-letter-routing-key")
	}
	return p
}

// growth reads how delays grow.
func (f *fields) growth(p *preset.CDNPurge) {
	f.waitInto("first", &p.First)
	if x, ok := f.get("factor"); ok {
		switch n, ok := x.number(); {
		case !ok:
		case !(n >= 1 && n <= maxFactor): // written so that NaN fails too
			x.fail("%s is %v: write 1 for delays that stay the same, or more, up to %d", x.name, n, maxFactor)
		default:
			p.Factor = n
		}
	}
	if x, ok := f.get("max"); ok {
		first := cmp.Or(p.First, preset.CDNPurgeFirst)
		if p.Max, ok = x.wait(); ok && p.Max < first {
			x.fail("%s (%s) is shorter than the first delay (%s): write more, or a shorter first:", x.name, FormatDuration(p.Max), FormatDuration(first))
		}
	}
	if x, ok := f.get("jitter"); ok {
		p.Jitter = x.part()
	}
}

// part reads how much of a delay is random, of which the design has two: more or
// less; negative for none.
func (v value) part() float64 {
	if v.none() {
		return -1
	}
	if v.kind() == "a text" {
		v.fail("%s is a text: write the part by which a delay is more or less, such as 0.1, or none", v.name)
		return 0
	}
	n, ok := v.number()
	switch {
	case !ok:
		return 0
	case !(n >= 0 && n < 1): // written so that NaN fails too
		v.fail("%s is %v: write the part by which a delay is more or less, such as 0.1, or none", v.name, n)
		return 0
	case n == 0:
		return -1
	}
	return n
}

func (p cdnPurge) worker(queue string) (reprise.WorkerConfig, error) {
	p.Queue = queue
	if err := p.distinct(); err != nil {
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

// distinct reports names that are given twice, in the words of the file.
func (p cdnPurge) distinct() error {
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
