package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reprisemq/reprise/bench/internal/profiles"
)

// job is what a contender has to do. It has a process of its own for it.
type job struct {
	contender contender

	url         string
	queue       string // where the messages are, or go to
	messages    int    // how many
	prefetch    int    // 0: no limit
	concurrency int    // handlers, or publishers, at once
	batch       int    // how many messages a loop by hand acks at once

	meter    meter
	profiles profiles.Files
}

// contender does a job in its own way. It tells the meter of each message that was
// handled, and of the end, when the broker has been told of all of them.
type contender func(context.Context, *job) error

var contenders = map[string]contender{
	"consume-no-ack":     consumeWithoutAcks,
	"consume-each":       consumeAckEach,
	"consume-batch":      consumeAckBatch,
	"consume-reprise":    consumeReprise,
	"retry-one-by-one":   retryOneByOne,
	"retry-pipelined":    retryPipelined,
	"retry-trail":        retryPipelinedTrail,
	"retry-reprise":      retryReprise,
	"retry-announced":    retryAnnounced,
	"publish-one-by-one": publishOneByOne,
	"publish-pipelined":  publishPipelined,
	"publish-reprise":    publishReprise,
}

// tick is how often a loop by hand acks what does not fill a batch.
const tick = 10 * time.Millisecond

func parseJob(args []string) (*job, error) {
	j := new(job)
	f := flag.NewFlagSet(contending, flag.ContinueOnError)
	f.Func("name", "who it is", func(name string) error {
		if j.contender = contenders[name]; j.contender == nil {
			return fmt.Errorf("there are %q", slices.Sorted(maps.Keys(contenders)))
		}
		return nil
	})
	f.StringVar(&j.url, "url", "", "the broker")
	f.StringVar(&j.queue, "queue", "", "the work queue")
	f.IntVar(&j.messages, "messages", 0, "how many")
	f.IntVar(&j.prefetch, "prefetch", 0, "of the consumer")
	f.IntVar(&j.concurrency, "concurrency", 1, "handlers, or publishers, at once")
	f.IntVar(&j.batch, "batch", 1, "messages acked at once")
	f.IntVar(&j.meter.broker, "broker", 0, "the broker's process")
	j.profiles.Flags(f)
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	j.meter.begin(j.messages)
	return j, nil
}
