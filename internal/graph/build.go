package graph

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/topology"
)

// New returns the graph of the workers' declarations.
func New(workers []Worker) *Graph {
	b := builder{Graph: &Graph{}, waits: map[string]span{}, rejects: map[string]string{}}
	var all topology.Topology
	for _, w := range workers {
		all = all.Merge(b.worker(w))
	}
	b.declared(all)
	b.kinds(all)
	for _, q := range all.Queues {
		b.deadLetters(q)
	}
	b.returns()
	return b.Graph
}

// builder builds a Graph.
type builder struct {
	*Graph
	hops    []hop
	waits   map[string]span   // waiting times, by the ID of the node to which messages go for a retry
	rejects map[string]string // edge labels, by work queue that dead-letters messages for a retry
}

// hop is a destination of copies, with the kind of queue that the copies reach.
type hop struct {
	exchange, key string
	kind          Kind // of the queues that receive the copies
}

// nodeID returns the ID of the node for an exchange and a routing key.
func nodeID(exchange, key string) string {
	if exchange == "" {
		return "queue/" + key
	}
	return "exchange/" + exchange
}

// worker adds the work queue of w and the edges of its failed messages, and returns the declarations of w.
func (b *builder) worker(w Worker) topology.Topology {
	s := w.Strategy.WithDefaults()
	work := "queue/" + w.Queue
	b.node(work, Work)
	declares := undivided(s.Route.Topology(w.Queue).Merge(w.Topology))

	d := published(w.Queue, declares)
	attempts := w.Attempts
	if left := s.Marks.Read(d).RetriesLeft; left != topology.Undecided {
		attempts = left + 1
	}
	retries := fmt.Sprintf("fails, up to %d retries", attempts-1)
	if attempts == 2 {
		retries = "fails, 1 retry"
	}
	for attempt := 1; attempt < min(attempts, maxExamined); attempt++ {
		low, high := backoff.Range(w.Backoff, attempt)
		for _, delay := range []time.Duration{low, high} {
			hop, err := s.Route.Wait(d, delay)
			if err != nil {
				continue // the message is parked
			}
			switch {
			case hop.Way == topology.Requeue, hop.Way == topology.Copy && hop.Exchange == "" && hop.RoutingKey == "": // reprise.Keyed has no wait queues
				b.waits[work] = b.waits[work].with(span{hop.Delay, hop.Delay})
			case hop.Way == topology.DeadLetter:
				b.rejects[w.Queue] = retries
			case hop.Way == topology.Copy:
				to, more := b.wait(w.Queue, hop)
				declares = declares.Merge(more)
				b.edge(work, to, Retried, retries)
				waits := max(hop.TTL, hop.Delay)
				b.waits[to] = b.waits[to].with(span{waits, waits})
			}
			d.Headers = d.Headers.Clone()
			// Some strategies compute a delay from the previous delay.
			maps.Copy(d.Headers, hop.Headers)
		}
		d.Redelivered = true
		d.Headers = d.Headers.Clone()
		d.Headers["x-delivery-count"] = int64(attempt) // for strategies that requeue messages
	}
	if inside, found := b.waits[work]; found { // the work queue itself delays requeued messages
		b.edge(work, work, Retried, retries)
		if inside.high > 0 {
			b.edge(work, work, Retried, "in the queue, after "+inside.String())
		}
	}
	parked := s.Route.Failed(published(w.Queue, declares))
	to := b.hop(parked, Failed)
	b.edge(work, to, Parked, fmt.Sprintf("parked after %s", plural(attempts, "attempt")))
	return declares.Merge(parked.Topology)
}

// undivided replaces the lanes and the partitions of a work queue by the work queue, because they have the same edges.
func undivided(t topology.Topology) topology.Topology {
	whole := t
	whole.Queues, whole.Bindings = nil, slices.Clone(t.Bindings)
	for _, q := range t.Queues {
		if q.Name = amqpvalue.WorkQueue(q.Name); !slices.ContainsFunc(whole.Queues, func(x topology.Queue) bool { return x.Name == q.Name }) {
			whole.Queues = append(whole.Queues, q)
		}
	}
	for i, b := range whole.Bindings {
		whole.Bindings[i].Queue = amqpvalue.WorkQueue(b.Queue)
	}
	return whole.Merge(topology.Topology{})
}

// published returns a message as publishers send it to a work queue: through an exchange to which the queue is bound or,
// without a binding, through the default exchange.
func published(queue string, t topology.Topology) topology.Delivery {
	for _, b := range t.Bindings {
		if b.Queue == queue {
			return topology.Delivery{Queue: queue, Exchange: b.Exchange, RoutingKey: b.RoutingKey}
		}
	}
	return topology.Delivery{Queue: queue, RoutingKey: queue}
}

// hop adds the node of a destination, and returns its ID.
func (b *builder) hop(h topology.Hop, kind Kind) string {
	b.hops = append(b.hops, hop{h.Exchange, h.RoutingKey, kind})
	id := nodeID(h.Exchange, h.RoutingKey)
	if h.Exchange != "" {
		kind = Exchange
	}
	b.node(id, kind)
	return id
}

// maxExamined limits the examined attempts. A growing backoff reaches its longest delay in fewer attempts.
const maxExamined = 100

// wait adds the node to which a copy is published, and returns its ID and further declarations. With Buckets or Levels,
// all wait queues of a work queue share a node, because there are many of them.
func (b *builder) wait(queue string, hop topology.Hop) (string, topology.Topology) {
	id := nodeID(hop.Exchange, hop.RoutingKey)
	_, name, _ := strings.Cut(id, "/")
	if !amqpvalue.IsWaitQueue(name) {
		return b.hop(hop, Wait), hop.Topology
	}
	suffix, note := ".wait.*", "a queue for each delay"
	if strings.Contains(name, ".lane.wait.") {
		suffix = ".lane.wait.*"
	} else if hop.Exchange != "" {
		suffix, note = ".level.*", "a queue for each power of two"
	}
	id = "queue/" + queue + suffix
	b.node(id, Wait).Note = note
	b.edge(id, "queue/"+queue, Returns, "")
	return id, topology.Topology{}
}

// declared adds exchanges, queues and bindings.
func (b *builder) declared(t topology.Topology) {
	for _, x := range t.Exchanges {
		n := b.node("exchange/"+x.Name, Exchange)
		n.Kind, n.Note = Exchange, x.Kind
	}
	for _, q := range t.Queues {
		b.node("queue/"+q.Name, Other)
	}
	for _, x := range t.Bindings {
		from, to := "exchange/"+x.Exchange, "queue/"+x.Queue
		b.node(from, Exchange).Kind = Exchange
		if x.ToExchange != "" {
			to = "exchange/" + x.ToExchange
			b.node(to, Exchange).Kind = Exchange
		} else {
			b.node(to, Other)
		}
		b.edge(from, to, Bound, x.RoutingKey)
	}
}

// deadLetters adds the edge for the messages that a queue dead-letters.
func (b *builder) deadLetters(q topology.Queue) {
	exchange, found := q.Args["x-dead-letter-exchange"].(string)
	if !found {
		return
	}
	key, _ := q.Args["x-dead-letter-routing-key"].(string)
	if exchange == "" && key == "" {
		return // the target differs between messages
	}
	from, to := "queue/"+q.Name, nodeID(exchange, key)
	kind := Other
	if exchange != "" {
		kind = Exchange
	}
	b.node(to, kind)
	if b.node(from, Other).Kind == Work {
		limit, limited := amqpvalue.Integer(q.Args["x-delivery-limit"])
		parks := slices.ContainsFunc(b.reached(to), func(id string) bool { return b.node(id, Other).Kind == Failed })
		switch label, rejected := b.rejects[q.Name]; {
		case rejected:
			b.edge(from, to, Retried, label)
			b.setKind(b.reached(to), Wait)
		case parks && limited && limit < 1000:
			b.edge(from, to, Parked, fmt.Sprintf("or %d deliveries without an answer", limit))
		case parks:
			b.edge(from, to, Parked, "")
		default:
			b.edge(from, to, Retried, "rejected")
		}
		return
	}
	label := ""
	if ttl, ok := amqpvalue.Integer(q.Args["x-message-ttl"]); ok {
		label = "after " + Duration(time.Duration(ttl)*time.Millisecond)
	}
	b.edge(from, to, Returns, label)
}

// kinds sets the kind of each queue according to the hops that lead to it. Kind Failed takes precedence over Wait.
func (b *builder) kinds(t topology.Topology) {
	for _, kind := range []Kind{Failed, Wait} {
		for _, h := range b.hops {
			if h.kind == kind {
				queues, _ := t.Reach(h.exchange, h.key) // no queues if the routing key does not determine them
				for i, q := range queues {
					queues[i] = nodeID("", q)
				}
				b.setKind(queues, kind)
			}
		}
	}
}

// setKind sets the kind of each given queue whose kind is still Other.
func (b *builder) setKind(ids []string, kind Kind) {
	for _, id := range ids {
		if n := b.node(id, Other); n.Kind == Other {
			n.Kind = kind
		}
	}
}

// returns adds the waiting time as a label to the edges on which messages with a per-message TTL return.
func (b *builder) returns() {
	for i := range b.Edges {
		e := &b.Edges[i]
		if e.Way != Returns || len(e.Labels) > 0 {
			continue
		}
		for _, n := range b.Nodes { // in the order of the nodes, because the map waits has no order
			s, found := b.waits[n.ID]
			if !found || !slices.Contains(b.reached(n.ID), e.From) {
				continue
			}
			if label := "after " + s.String(); !slices.Contains(e.Labels, label) {
				e.Labels = append(e.Labels, label)
			}
		}
	}
}

// reached returns a node and, for an exchange, the nodes to which its bindings lead.
func (b *builder) reached(id string) []string {
	if b.node(id, Other).Kind != Exchange {
		return []string{id}
	}
	return append(b.Beyond(id), id)
}

func plural(n int, what string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Duration formats a duration with at most its two largest units, for example 1h30m.
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		d = d.Round(time.Second)
	case d < 2*day:
		d = d.Round(time.Minute)
	default:
		d = d.Round(time.Hour)
		if d%day == 0 {
			return fmt.Sprintf("%dd", d/day)
		}
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	}
	return brief.Duration(d)
}
