package config

import (
	"cmp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/topology/preset"
)

// workRetryDesign calls its queue by its name without the prefix.
var workRetryDesign = design{
	name:     "work-retry",
	queues:   []string{preset.WorkRetryWorkQueue},
	settings: workRetrySettings,
	refused: []refusal{
		{"backoff", "means nothing with this preset, where every retry waits retry_delay: write retry_delay: 5m beside preset:"},
	},
}

type workRetry struct{ preset.WorkRetry }

func workRetrySettings(f *fields) system {
	var p workRetry
	f.waitInto("retry_delay", &p.RetryDelay)
	f.kindOf("kind", &p.Kind)
	if x, ok := f.get("key"); ok {
		p.Key, _ = x.routingKey()
	}
	if x, ok := f.get("transient_exchanges"); ok {
		p.TransientExchanges, _ = x.boolean()
	}
	f.queueType(&p.QueueType)
	if x, ok := f.get("prefix"); ok {
		p.Prefix, _ = x.ownName("billing.", len(preset.WorkRetryFailedQueue)) // the longest of the names
	}
	return p
}

func (p workRetry) worker(string) (reprise.WorkerConfig, error) {
	return reprise.WorkerConfig{
		Queue:    p.Queue(),
		Strategy: p.Strategy(),
		Policy:   reprise.Policy{Backoff: backoff.Fixed(cmp.Or(p.RetryDelay, preset.WorkRetryRetryDelay))},
	}, p.Validate()
}
