package config

import (
	"cmp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/topology/preset"
)

// coverArtDesign calls the work queues by their routing keys.
var coverArtDesign = design{
	name:     "cover-art",
	queues:   []string{"index", "delete", "move"},
	settings: coverArtSettings,
	refused: []refusal{
		{"attempts", "is counted on the messages of this preset: write retries: 4 beside preset:"},
		{"rules", "means nothing with this preset, where each message has its retries on it: write retries: 4 beside preset:"},
		{"give_up_after", "cannot be kept with this preset, nothing tells when a message first failed: write retries: 4 beside preset:"},
		{"backoff", "means nothing with this preset, where every retry waits retry_delay: write retry_delay: 4h beside preset:"},
	},
}

var coverArtQueues = map[string]string{
	"index":  preset.CoverArtIndexQueue,
	"delete": preset.CoverArtDeleteQueue,
	"move":   preset.CoverArtMoveQueue,
}

type coverArt struct{ preset.CoverArt }

func coverArtSettings(f *fields) system {
	var p coverArt
	if x, ok := f.get("retries"); ok {
		p.Retries, _ = x.integer(1, MaxAttempts)
	}
	f.waitInto("retry_delay", &p.RetryDelay)
	f.queueType(&p.QueueType)
	return p
}

func (p coverArt) worker(key string) (reprise.WorkerConfig, error) {
	return reprise.WorkerConfig{
		Queue:    coverArtQueues[key],
		Strategy: p.Strategy(),
		Policy:   reprise.Policy{Backoff: backoff.Fixed(cmp.Or(p.RetryDelay, preset.CoverArtRetryDelay))},
	}, p.Validate()
}
