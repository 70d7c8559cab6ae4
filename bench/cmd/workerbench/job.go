package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reprisemq/reprise/bench/internal/profiles"
	"github.com/reprisemq/reprise/limit"
)

// job is the task of a contender. Each contender runs in a separate process.
type job struct {
	contender contender

	url         string
	queue       string // source or destination of the messages
	messages    int    // number of messages
	prefetch    int    // 0: no limit
	concurrency int    // number of concurrent handlers or publishers
	batch       int    // number of messages per ack of a loop by hand, or of a Batch
	partitions  int    // 0: any order

	delay time.Duration // of retries
	limit *limit.Config // of a Worker; nil: none

	reprise string // path of the command

	meter    meter
	profiles profiles.Files
}

// contender performs a job. It calls meter.handled for each message, and meter.end when the broker has received all
// acks (for publishers: confirmed all messages).
type contender func(context.Context, *job) error

var contenders = map[string]contender{
	"consume-no-ack":             consumeWithoutAcks,
	"consume-each":               consumeAckEach,
	"consume-batch":              consumeAckBatch,
	"consume-reprise":            consumeReprise,
	"consume-shared-rate":        consumeSharedRate,
	"consume-shared-concurrency": consumeSharedConcurrency,
	"consume-mux":                consumeMux,
	"consume-limited":            consumeLimited,
	"consume-collected":          consumeCollected,
	"fail-some":                  failSome,
	"consume-json":               consumeJSON,
	"consume-encrypted":          consumeEncrypted,
	"consume-stored":             consumeStored,
	"retry-one-by-one":           retryOneByOne,
	"retry-pipelined":            retryPipelined,
	"retry-trail":                retryPipelinedTrail,
	"retry-reprise":              retryReprise,
	"retry-announced":            retryAnnounced,
	"publish-one-by-one":         publishOneByOne,
	"publish-pipelined":          publishPipelined,
	"publish-reprise":            publishReprise,
	"up-exec-python":             up("exec", "python3", "handler.py"),
	"up-http-python":             up("http", "python3", "handler.py"),
	"up-unix-python":             up("unix", "python3", "handler.py"),
	"up-process-python":          up("process", "python3", "handler.py"),
	"up-exec-node":               up("exec", "node", "handler.js"),
	"up-http-node":               up("http", "node", "handler.js"),
	"up-unix-node":               up("unix", "node", "handler.js"),
	"up-process-node":            up("process", "node", "handler.js"),
}

// tick is the interval after which a loop by hand acks an incomplete batch.
const tick = 10 * time.Millisecond

func parseJob(args []string) (*job, error) {
	j := &job{delay: delay}
	f := flag.NewFlagSet(contending, flag.ContinueOnError)
	f.Func("name", "name of the contender", func(name string) error {
		if j.contender = contenders[name]; j.contender == nil {
			return fmt.Errorf("contender %q not found (use one of %q)", name, slices.Sorted(maps.Keys(contenders)))
		}
		return nil
	})
	f.StringVar(&j.url, "url", "", "URL of the broker")
	f.StringVar(&j.queue, "queue", "", "the work queue")
	f.IntVar(&j.messages, "messages", 0, "number of messages")
	f.IntVar(&j.prefetch, "prefetch", 0, "prefetch of the consumer")
	f.IntVar(&j.concurrency, "concurrency", 1, "number of concurrent handlers or publishers")
	f.IntVar(&j.batch, "batch", 1, "number of messages per ack")
	f.IntVar(&j.partitions, "partitions", 0, "number of partitions")
	f.IntVar(&j.meter.broker, "broker", 0, "process ID of the broker")
	f.StringVar(&j.reprise, "reprise", "", "path of the command reprise")
	j.profiles.Flags(f)
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	j.meter.begin(j.messages)
	return j, nil
}
