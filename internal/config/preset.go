package config

import (
	"github.com/reprisemq/reprise/topology/preset"
)

// coverArt is the name of the one preset there is.
const coverArt = "cover-art"

// coverArtQueues are the work queues of the preset, by what the file calls
// them: their routing keys.
var coverArtQueues = []struct{ key, queue string }{
	{"index", preset.CoverArtIndexQueue},
	{"delete", preset.CoverArtDeleteQueue},
	{"move", preset.CoverArtMoveQueue},
}

// preset reads a worker item that stands for the queues of a published design.
func (f *fields) preset() []located {
	name, _ := f.get("preset")
	f.owner = "a preset"
	if s, ok := name.oneOf(coverArt); !ok || s != coverArt {
		f.asked = nil
		for _, p := range f.pairs {
			f.asked = append(f.asked, p.key) // unknown of what?
		}
		return nil
	}
	f.owner = "preset " + coverArt
	var p preset.CoverArt
	if x, ok := f.get("retries"); ok {
		p.Retries, _ = x.integer(1, MaxAttempts)
	}
	if x, ok := f.get("retry_delay"); ok {
		p.RetryDelay, _ = x.wait()
	}
	f.refuse("is counted on the messages of this preset: write retries: 4", "attempts")
	f.refuse("is the same for all queues of this preset: write retry_delay: 4h", "backoff")
	f.refuse("is set by the preset: remove it", "queue", "bind", "route")
	f.refuse("belongs to one queue of the preset: move it into queues: {index: …}", "http", "exec", "settle", "concurrency", "prefetch", "drain",
		"immediate", "rate", "breaker", "debounce", "duplicates", "crash_limit", "consumer_timeout")

	queues, ok := f.get("queues")
	if !ok {
		f.missing("a preset has no queues: add queues: {index: {exec: [PROGRAM]}, delete: …, move: …}", "queues")
		return nil
	}
	return queues.coverArt(p)
}

// coverArt reads the handlers of the preset's queues. Any of the three may be
// missing: somebody else consumes it.
func (v value) coverArt(p preset.CoverArt) []located {
	f, ok := v.fields("preset " + coverArt + "'s queues")
	if !ok {
		return nil
	}
	defer f.finish()
	var all []located
	for _, q := range coverArtQueues {
		x, ok := f.get(q.key)
		if !ok {
			continue
		}
		w := located{at: f.keyAt(q.key)}
		w.Queue = q.queue
		w.Strategy = p.Strategy()
		if g, ok := x.fields("queue " + q.key); ok {
			g.handler(&w.Worker)
			g.settle(&w.Worker)
			g.pace(&w.Worker)
			g.limits(&w.Worker)
			g.refuse("is decided by the preset: write retries and retry_delay there", "attempts", "backoff", "route")
			g.refuse("is set by the preset: remove it", "queue", "bind")
			g.finish()
		}
		all = append(all, w)
	}
	if len(f.pairs) == 0 {
		f.fail("a preset without a queue does nothing: write queues: {index: {exec: [PROGRAM]}}")
	}
	return all
}
