package cli

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/internal/graph"
	"github.com/reprisemq/reprise/topology"
	"github.com/reprisemq/reprise/topology/preset"
)

// queueSource specifies the failed queues, or how to find them.
type queueSource struct {
	named []string

	// management is the URL of the management API that is polled for queues with the suffix .failed; "": none.
	management, vhost string
}

// finding is the polling interval.
const finding = 5 * time.Second

// each calls the function found with the named queues, and with other queues when they appear, until ctx is canceled.
func (q queueSource) each(ctx context.Context, log *slog.Logger, found func([]string)) error {
	known := slices.Clone(q.named)
	if len(known) > 0 {
		found(slices.Clone(known))
	}
	wrong := "" // last error, to log each error once
	for q.management != "" {
		counts, err := queueCounts(ctx, q.management, q.vhost)
		if err != nil && ctx.Err() == nil && err.Error() != wrong {
			wrong = err.Error()
			log.Warn("cannot list the failed queues", "error", err, "next_try", finding)
		}
		if err == nil {
			wrong = ""
		}
		var more []string
		for name := range counts {
			if strings.HasSuffix(name, topology.FailedQueue("")) && !slices.Contains(known, name) {
				more = append(more, name)
			}
		}
		if len(more) > 0 {
			slices.Sort(more)
			known = append(known, more...)
			found(more)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(finding):
		}
	}
	<-ctx.Done()
	return nil
}

// failedQueuesOf returns the failed queues of workers, in order and without duplicates.
func failedQueuesOf(workers []graph.Worker) []string {
	var queues []string
	for _, n := range graph.New(workers).Nodes {
		if n.Kind == graph.Failed {
			queues = append(queues, n.Name)
		}
	}
	return queues
}

// originOf returns a function that returns the work queue of a message in a failed queue, or "" if the work queue is
// unknown. If only one worker parks messages in the failed queue, the function returns the queue of that worker. If
// several do, it returns the queue that the header of the message names or, without the header, the queue that
// receives messages with the routing key. If none of these workers consumes the queue that the header names, the
// function returns the name of the failed queue.
func originOf(workers []config.Worker) func(*reprise.Message) string {
	type origin struct {
		queue string
		keys  []string
	}
	parks := map[string][]origin{} // by name of the failed queue
	for _, w := range workers {
		o := origin{queue: w.Queue, keys: []string{w.Queue}} // published directly to the queue
		declares := w.Strategy.WithDefaults().Route.Topology(w.Queue).Merge(w.Topology)
		for _, b := range declares.Bindings {
			if b.Queue == w.Queue {
				o.keys = append(o.keys, b.RoutingKey)
			}
		}
		for _, queue := range failedQueuesOf(graphWorkers([]config.Worker{w})) {
			parks[queue] = append(parks[queue], o)
		}
	}
	return func(m *reprise.Message) string {
		candidates := slices.Clone(parks[m.Queue])
		if len(candidates) > 1 {
			named, written := m.Headers[topology.HeaderQueue].(string)
			candidates = slices.DeleteFunc(candidates, func(o origin) bool {
				return written && o.queue != named || !written && !slices.Contains(o.keys, m.RoutingKey)
			})
			if written && len(candidates) == 0 {
				return m.Queue
			}
		}
		if len(candidates) != 1 {
			return ""
		}
		return candidates[0].queue
	}
}

// guessed is like originOf, for the workers of published designs, which park messages without a header. Commands use
// it if they have no configuration of these queues. For a message with the header, the returned function returns "".
func guessed() func(*reprise.Message) string {
	known := originOf(guessedWorkers())
	return func(m *reprise.Message) string {
		if _, written := m.Headers[topology.HeaderQueue]; written {
			return ""
		}
		return known(m)
	}
}

// guessedWorkers returns the workers of published designs with distinctive names.
func guessedWorkers() []config.Worker {
	var workers []config.Worker
	for _, queue := range []string{preset.CoverArtIndexQueue, preset.CoverArtDeleteQueue, preset.CoverArtMoveQueue} {
		workers = append(workers, config.Worker{WorkerConfig: reprise.WorkerConfig{Queue: queue, Strategy: preset.CoverArt{}.Strategy()}})
	}
	return workers
}

// marksOf returns the marks of the workers: the headers in which they record attempts.
func marksOf(workers []config.Worker) []topology.Marks {
	var marks []topology.Marks
	for _, w := range workers {
		marks = append(marks, w.Strategy.WithDefaults().Marks)
	}
	return marks
}
