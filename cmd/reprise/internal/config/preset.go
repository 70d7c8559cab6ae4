package config

import (
	"slices"
	"strings"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/topology"
)

// A worker item with the key preset represents the work queues of a published design:
//
//	- preset: NAME
//	  retry_delay: 5m              # settings of the design
//	  queues:
//	    QUEUE: {exec: [PROGRAM]}   # keys of other workers, except those that the design sets

// design describes the form of a preset in the file.
type design struct {
	name string

	// queues contains the names that the file uses for the work queues. If it is empty, the design has one queue with an
	// arbitrary name.
	queues []string

	// others permits queues with names that are not in queues, as the programs of the design do.
	others bool

	// example is a queue name for problems if queues is empty.
	example string

	// settings reads the keys of the design. It returns a function that maps the name of a queue in the file to the part
	// of the worker that the design determines. The function returns an error if the keys conflict.
	settings func(*fields) workerOf

	// refused contains the keys that have no effect with this design, at any level. Each reason states the replacement
	// at the level of the preset.
	refused []refusal
}

type workerOf func(queue string) (reprise.WorkerConfig, error)

type refusal struct {
	key, reason string
}

var designs = []*design{&coverArt, &staking, &workRetry, &cdnPurge}

func presets() []string {
	var names []string
	for _, d := range designs {
		names = append(names, d.name)
	}
	return names
}

// preset reads a worker item that represents the queues of a published design.
func (f *fields) preset() []locatedWorker {
	name, _ := f.get("preset")
	f.owner = "a preset"
	found, _ := oneOf(presets()...)(name.value)
	i := slices.Index(presets(), found)
	if i < 0 {
		for _, p := range f.pairs {
			f.asked = append(f.asked, p.key) // report only the unknown preset, not its keys
		}
		return nil
	}
	p := &presetItem{design: designs[i]}
	f.owner = "preset " + p.name
	before := len(f.problems)
	f.asked = nil
	p.worker = p.design.settings(f)
	p.settings = slices.Clone(f.asked)
	p.refuse(f)
	f.refuse("belongs to one queue of the preset; move it into queues: {"+p.first()+": …}", "http", "exec", "process", "settle",
		"attempts", "give_up_after", "rules", "concurrency", "prefetch", "priority", "drain",
		"immediate", "rate", "shared_limit", "breaker", "debounce", "duplicates", "results", "crash_limit", "consumer_timeout")
	if !slices.Contains(p.settings, "retries") {
		f.refuse("is for preset "+coverArt.name+", which counts retries; write attempts: 5 in a queue for 4 retries", "retries")
	}
	p.sound = len(f.problems) == before
	f.asked = append(f.asked, "preset")

	queues, ok := f.get("queues")
	if !ok {
		f.missing("a preset needs queues: add queues: {"+p.first()+": {exec: [PROGRAM]}}", "queues")
		return nil
	}
	return p.workers(queues.value)
}

// presetItem is a design with the settings of an item in the file.
type presetItem struct {
	*design
	worker   workerOf
	settings []string // keys that were read
	sound    bool     // the settings have no problems
}

// workers reads the workers of the preset's queues. The file may omit queues that other programs consume.
func (p *presetItem) workers(v value) []locatedWorker {
	f, ok := v.fields("preset " + p.name + "'s queues")
	if !ok {
		return nil
	}
	if len(f.pairs) == 0 {
		f.fail("a preset needs a queue; write queues: {%s: {exec: [PROGRAM]}}", p.first())
	}
	var all []locatedWorker
	for _, x := range f.pairs {
		if p.known(x, len(all)) {
			all = append(all, p.work(x))
		}
	}
	return all
}

// known reports whether a key is a work queue of the design. The parameter before is the number of preceding work
// queues.
func (p *presetItem) known(x field, before int) bool {
	switch {
	case p.queues == nil && before > 0:
		return x.failAt(x.keyAt, "preset %s has only one work queue; to add a second queue, write another - preset: %s for it, with another exchange", p.name, p.name)
	case p.queues == nil:
		return x.namesQueue()
	case slices.Contains(p.queues, x.key):
		return true
	}
	advice := "its work queues are " + these(p.queues)
	near, ok := closest(x.key, p.queues)
	if p.others && !ok {
		return x.namesQueue()
	}
	if ok {
		advice = "did you mean " + near + "?"
	} else if len(p.queues) == 1 {
		advice = "write " + p.first() + ", which is the only one"
	}
	return x.failAt(x.keyAt, "preset %s has no work queue %s: %s", p.name, brief.Quoted(shownKey(x.key)), advice)
}

// work reads the worker of one queue.
func (p *presetItem) work(x field) locatedWorker {
	w := locatedWorker{at: x.keyAt}
	before := len(x.problems)
	cfg, err := p.worker(x.key)
	w.WorkerConfig = cfg
	if f, ok := x.fields("queue " + shownKey(x.key)); ok {
		f.handler(&w.Worker)
		f.policy(&w.Worker, p.refuse)
		f.pace(&w.Worker)
		f.limits(&w.Worker)
		f.refuse("is a setting of the whole preset; move it next to preset:", p.settings...)
		f.finish()
	}
	if p.sound && len(x.problems) == before {
		if err == nil {
			err = w.validate()
		}
		if err != nil {
			x.failAt(x.keyAt, "%s", strings.TrimPrefix(err.Error(), "preset: "))
		}
	}
	return w
}

// first returns a queue name for problems.
func (d *design) first() string {
	if d.queues != nil {
		return d.queues[0]
	}
	return d.example
}

// refuse reports keys that have no effect with the design: in the preset, in one of its queues or in a rule.
func (d *design) refuse(f *fields) {
	for _, r := range d.refused {
		f.refuse(r.reason, r.key)
	}
	f.refuse("is set by the preset: remove it", "queue", "bind", "route")
	f.refuse("does not apply to a preset, which sets the queues; write a worker with queue: NAME instead",
		"order_by", "partitions", "key_rate", "on_full", "lanes", "lease")
}

// Readers of the types of queues and exchanges.
var (
	queueType    = oneOf("classic", "quorum")
	exchangeKind = oneOf(topology.Direct, topology.Fanout, topology.Topic)
)
