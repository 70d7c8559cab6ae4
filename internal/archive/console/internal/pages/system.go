package pages

import (
	"cmp"
	"context"
	"errors"
	"html/template"
	"maps"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/figures"
	"github.com/reprisemq/reprise/internal/archive/console/internal/flow"
	"github.com/reprisemq/reprise/internal/archive/console/internal/show"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/graph"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/topology"
)

// system is the current state of the queues, from the archive, the broker and this program.
type system struct {
	graph    *graph.Graph
	figures  map[string]mgmtapi.Queue
	archived map[string]store.QueueSummary
	done     []ledger.Rate
	problem  error // error of the management API; figures.ErrNoFigures if none is configured
}

// system reads the current state. It fails only if the archive returns an error.
func (p *Pages) system(c *web.Call) (*system, error) {
	ctx := c.R.Context()
	summaries, err := c.Archive.Queues(ctx)
	if err != nil {
		return nil, err
	}
	s := &system{archived: map[string]store.QueueSummary{}}
	workers := p.Workers()
	works := make([]string, 0, len(summaries)+len(workers))
	for _, q := range summaries {
		s.archived[string(q.Queue)] = q
		works = append(works, string(q.Queue))
	}
	for _, w := range workers {
		works = append(works, w.Queue)
	}
	s.figures, s.problem = p.Broker.Queues(ctx)
	s.figures = foldKeyed(s.figures)
	s.done = p.Done.Get(ctx)
	counts := make(map[string]graph.Count, len(s.figures))
	for name, q := range s.figures {
		if q.Depth().Known {
			counts[name] = graph.Count{Ready: q.Ready.Value, Unacked: q.Unacked.Value}
		}
	}
	s.graph = flow.NewGraph(p.everything(ctx, p.Topology), works, flow.Policies(workers), counts)
	return s, nil
}

// signs is the number of messages in a held queue that are not messages of users: the marker and the proof of its owner.
const signs = 2

// foldKeyed replaces the queues of workers with order_by by their work queue and by the queue flow.HeldQueues.
func foldKeyed(all map[string]mgmtapi.Queue) map[string]mgmtapi.Queue {
	folded := make(map[string]mgmtapi.Queue, len(all))
	add := func(to *mgmtapi.Field[int64], n mgmtapi.Field[int64]) {
		*to = mgmtapi.Field[int64]{Value: to.Value + n.Value, Known: n.Known}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		q := all[name]
		k, ok := protocol.ReadKeyedQueue(name)
		if !ok {
			folded[name] = q
			continue
		}
		name = k.Queue
		if k.Held {
			name = flow.HeldQueues(k.Queue)
			q.Unacked.Value -= min(signs, q.Unacked.Value)
		}
		sum := folded[name]
		switch sum.Name = name; {
		case k.Partition == "":
			sum.Consumers = q.Consumers
		default:
			add(&sum.Ready, q.Ready)
			add(&sum.Unacked, q.Unacked)
			if k.Held {
				break // its publications are copies
			}
			sum.Stats.PublishRate.Value += q.Stats.PublishRate.Value
			sum.Stats.PublishRate.Known = q.Stats.PublishRate.Known
		}
		folded[name] = sum
	}
	return folded
}

// noFigures returns the reason why expected figures of the broker are missing.
func (s *system) noFigures() string {
	if s.problem == nil || errors.Is(s.problem, figures.ErrNoFigures) {
		return ""
	}
	return sentence(s.problem.Error())
}

// everything merges the configured topologies with the topology on the broker. For an object in both, the topology on
// the broker takes precedence.
func (p *Pages) everything(ctx context.Context, configured []topology.Topology) topology.Topology {
	found, _ := p.Broker.Topology(ctx)
	known := map[string]bool{}
	for _, q := range found.Queues {
		known["queue "+q.Name] = true
	}
	for _, e := range found.Exchanges {
		known["exchange "+e.Name] = true
	}
	for _, t := range configured {
		t.Queues = slices.DeleteFunc(slices.Clone(t.Queues), func(q topology.Queue) bool { return known["queue "+q.Name] })
		t.Exchanges = slices.DeleteFunc(slices.Clone(t.Exchanges), func(e topology.Exchange) bool { return known["exchange "+e.Name] })
		found = found.Merge(t)
	}
	return found
}

// queueRow is a work queue on the overview.
type queueRow struct {
	Name      string
	Known     bool // whether the broker has the queue
	Live      mgmtapi.Queue
	Done      float64 // per second
	DoneKnown bool
	Retrying  int64 // messages in its wait queues
	Parked    int64 // messages in its failed queue, not yet in the archive
	Archived  store.QueueSummary
	Workers   int    // consumers according to the broker, or workers of this program
	Paused    bool   // whether a worker does not consume because an operator has paused it
	Stopped   string // reason why a worker of this program is not consuming; "": all are
	Here      bool   // whether this program has a worker for the queue
	Breaker   string
	HasOldest bool
	Trend     show.ChartView // failures of the last 24 hours
	PastHref  template.URL
}

// rows returns the work queues: queues with archived messages, queues with a worker in this program, and queues of the
// broker that are neither wait queues nor failed queues. The workers announced come from all programs.
func (s *system) rows(workers []flow.Worker, announced []api.Worker) []queueRow {
	byName := map[string]*queueRow{}
	row := func(name string) *queueRow {
		if byName[name] == nil {
			byName[name] = &queueRow{Name: name}
		}
		return byName[name]
	}
	for name, q := range s.archived {
		r := row(name)
		r.Archived, r.HasOldest = q, !q.Oldest.IsZero()
	}
	for _, w := range workers {
		r := row(w.Queue)
		r.Here = true
		r.Workers++
		if err := w.State(); err != nil && r.Stopped == "" {
			r.Stopped = err.Error()
		}
		if w.Breaker != nil {
			r.Breaker = w.Breaker()
		}
	}
	for _, n := range s.graph.Nodes {
		name, isQueue := strings.CutPrefix(n.ID, "queue/")
		q, known := s.figures[name]
		if !isQueue || n.Kind != graph.Work || !known {
			continue
		}
		r := row(name)
		r.Known, r.Live = true, q
		if q.Consumers.Known {
			r.Workers = int(q.Consumers.Value)
		}
		r.Retrying = s.reach(n.ID, graph.Wait)
		r.Parked = s.reach(n.ID, graph.Failed)
	}
	for _, rate := range s.done {
		if r := byName[rate.Work[0]]; r != nil && len(rate.Work) == 1 {
			r.Done, r.DoneKnown = rate.Done, true
		}
	}
	for _, w := range announced {
		if r := byName[w.Queue]; r != nil && w.State == protocol.WorkerPaused {
			r.Paused = true
		}
	}
	rows := make([]queueRow, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		rows = append(rows, *byName[name])
	}
	slices.SortStableFunc(rows, func(x, y queueRow) int {
		return cmp.Compare(y.Archived.Counts.Failed, x.Archived.Counts.Failed)
	})
	return rows
}

// reach counts the messages in the queues of the given kind that can be reached from a node, directly or through
// exchanges.
func (s *system) reach(from string, kind graph.Kind) (total int64) {
	beyond := s.graph.Beyond(from)
	for _, n := range s.graph.Nodes {
		if n.Kind == kind && n.Count != nil && slices.Contains(beyond, n.ID) {
			total += n.Count.Ready + n.Count.Unacked
		}
	}
	return total
}
