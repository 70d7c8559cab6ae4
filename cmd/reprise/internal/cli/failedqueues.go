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

// queueSource tells which failed queues there are.
type queueSource struct {
	named []string

	// management is asked for all that end with .failed, again and again; "": no.
	management, vhost string
}

// finding is how often it is asked.
const finding = 5 * time.Second

// each calls found with the queues that are named, and with those that are found as
// they appear, until ctx ends.
func (q queueSource) each(ctx context.Context, log *slog.Logger, found func([]string)) error {
	known := slices.Clone(q.named)
	if len(known) > 0 {
		found(slices.Clone(known))
	}
	wrong := "" // what was wrong last, which is logged once
	for q.management != "" {
		counts, err := queueCounts(ctx, q.management, q.vhost)
		if err != nil && ctx.Err() == nil && err.Error() != wrong {
			wrong = err.Error()
			log.Warn("failed queues cannot be looked for", "error", err, "next_try", finding)
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

// failedQueuesOf are the failed queues of workers, in their order, each once.
func failedQueuesOf(workers []graph.Worker) []string {
	var queues []string
	for _, n := range graph.New(workers).Nodes {
		if n.Kind == graph.Failed {
			queues = append(queues, n.Name)
		}
	}
	return queues
}

// originOf names the work queue of a message in a failed queue of workers: the only one
// that parks there. Of several, it is the one that stands on the message, or gets
// messages with its key where none does. What stands there and is none of them is
// not believed: then nobody knows it, which the name of the failed queue says.
func originOf(workers []config.Worker) func(*reprise.Message) string {
	type origin struct {
		queue string
		keys  []string
	}
	parks := map[string][]origin{} // by failed queue
	for _, w := range workers {
		o := origin{queue: w.Queue, keys: []string{w.Queue}} // by name
		declares := w.Strategy.WithDefaults().Route.Topology(w.Queue).Merge(w.Topology)
		for _, b := range declares.Bindings {
			if b.Queue == w.Queue {
				o.keys = append(o.keys, b.RoutingKey)
			}
		}
		for _, queue := range failedQueuesOf(drawn([]config.Worker{w})) {
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

// guessed names the work queue of a message that workers of published designs have
// parked without a word about it: for whoever has no configuration that names them.
func guessed() func(*reprise.Message) string {
	known := originOf(guessedWorkers())
	return func(m *reprise.Message) string {
		if _, written := m.Headers[topology.HeaderQueue]; written {
			return ""
		}
		return known(m)
	}
}

// guessedWorkers are those of published designs whose names are like no other.
func guessedWorkers() []config.Worker {
	var workers []config.Worker
	for _, queue := range []string{preset.CoverArtIndexQueue, preset.CoverArtDeleteQueue, preset.CoverArtMoveQueue} {
		workers = append(workers, config.Worker{WorkerConfig: reprise.WorkerConfig{Queue: queue, Strategy: preset.CoverArt{}.Strategy()}})
	}
	return workers
}

// marksOf are what the attempts of workers write on messages.
func marksOf(workers []config.Worker) []topology.Marks {
	var marks []topology.Marks
	for _, w := range workers {
		marks = append(marks, w.Strategy.WithDefaults().Marks)
	}
	return marks
}
