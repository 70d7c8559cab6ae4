package upcmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/doctor"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/topology"
)

// unconsumed describes the messages that earlier workers of a queue have left, because they had another number of lanes or partitions, or
// none. A queue with a consumer is omitted: during a deployment, workers of both numbers run.
func unconsumed(queues []mgmtapi.Queue, w *reprise.WorkerConfig) (all []string) {
	consumes := []string{w.Queue}
	if w.Lanes > 0 {
		consumes = topology.Lanes{Count: w.Lanes}.Queues(w.Queue)
	} else if w.OrderBy != nil {
		consumes = nil
		for _, q := range w.OrderBy.Route().Topology(w.Queue).Queues {
			consumes = append(consumes, q.Name)
		}
	}
	for _, q := range queues {
		if amqpvalue.WorkQueue(q.Name) != w.Queue || slices.Contains(consumes, q.Name) || q.Ready.Value == 0 || q.Consumers.Value > 0 {
			continue
		}
		all = append(all, fmt.Sprintf("queue %s has %s and no consumer: %s", terminal.OneLine(q.Name), terminal.Plural(int(q.Ready.Value), "message"), doctor.Consume(q.Name)))
	}
	return all
}

// unconsumed describes messages of all workers. Without the management API, it finds none.
func (p *parts) unconsumed(ctx context.Context) (all []string, err error) {
	queues, err := p.archive.Queues(ctx)
	for _, w := range p.workers {
		all = append(all, unconsumed(queues, &w.conf)...)
	}
	return all, err
}
