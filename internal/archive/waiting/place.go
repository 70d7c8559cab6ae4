package waiting

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/topology"
)

// waitDesign is a design in which a wait queue may have been declared, with the declaration of this wait queue.
type waitDesign struct {
	strategy topology.Strategy
	wait     topology.Queue
	topology topology.Topology // the wait queue, and the path back to the work queue
	longer   string            // the reason why a message cannot be postponed; "" if it can
}

// designsOf returns the designs in which messages of p.queue wait in p.wait. Only these two names determine the
// designs, because reports are not trusted. proven then verifies the arguments of the wait queue.
func designsOf(p store.WaitingPlace) (all []waitDesign) {
	if rest, ok := strings.CutPrefix(p.Wait, p.Queue+".wait."); ok && !strings.Contains(rest, ".") && amqpvalue.IsWaitQueue(p.Wait) {
		all = appendDesign(all, p, topology.Strategy{}, "", func(q *topology.Queue) { q.Name = p.Wait }) // any Base and Growth
	}
	if rest, ok := strings.CutPrefix(p.Wait, p.Queue+".lane.wait."); ok && !strings.Contains(rest, ".") && amqpvalue.IsWaitQueue(p.Wait) {
		all = appendDesign(all, p, topology.Strategy{Route: topology.Lanes{Count: 1}}, "", func(q *topology.Queue) { q.Name = p.Wait })
	}
	const (
		mixed = "a longer delay would delay all messages behind them in the wait queue: park them, and replay them later"
		fixed = "their wait queue has one delay for all messages: park them, and replay them later"
		grows = "the next delay results from this one: park them, and replay them later"
	)
	// The Marks of GrowingTTL read the messages of MessageTTL, too.
	all = appendDesign(all, p, topology.Strategy{Route: topology.GrowingTTL{}}, mixed, nil)
	all = appendDesign(all, p, topology.Strategy{Route: topology.DeadLettering{}}, fixed, nil)
	for _, kind := range []string{"quorum", "classic"} {
		all = appendDesign(all, p, preset.Staking{Queues: []string{p.Queue}, QueueType: kind}.Strategy(), mixed, nil)
	}
	prefix, _ := strings.CutSuffix(p.Queue, preset.WorkRetryWorkQueue)
	kinds := []string{"", "quorum", "classic"}
	for _, kind := range kinds {
		all = appendDesign(all, p, preset.CoverArt{QueueType: kind}.Strategy(), fixed, nil)
		all = appendDesign(all, p, preset.WorkRetry{Prefix: prefix, QueueType: kind}.Strategy(), fixed, nil)
	}
	// Transient queues come last, because a broker can refuse them and close the connection.
	for _, x := range [][2]bool{{false, false}, {false, true}, {true, true}, {true, false}} {
		for _, kind := range kinds {
			for _, purge := range []preset.CDNPurge{{}, preset.CDNPurgePublished()} {
				purge.QueueType, purge.TransientQueues, purge.AutoDelete = kind, x[0], x[1]
				all = appendDesign(all, p, purge.Strategy(), grows, nil)
			}
		}
	}
	return all
}

// appendDesign adds a design if it makes messages of p.queue wait in p.wait. The function name, if not nil, changes the
// declaration of the wait queue.
func appendDesign(all []waitDesign, p store.WaitingPlace, s topology.Strategy, longer string, name func(*topology.Queue)) []waitDesign {
	s = s.WithDefaults()
	if s.Validate() != nil || s.ValidateQueue(p.Queue) != nil {
		return all
	}
	t := s.Route.Topology(p.Queue)
	keys := []string{p.Queue}
	for _, b := range t.Bindings {
		if b.Queue == p.Queue {
			keys = append(keys, b.RoutingKey)
		}
	}
	for _, key := range keys { // some designs have a separate wait queue for unknown routing keys
		d := topology.Delivery{Queue: p.Queue, RoutingKey: key}
		hop, err := s.Route.Wait(d, protocol.MinReportedRetry)
		if err != nil {
			continue
		}
		whole := t.Merge(hop.Topology)
		for _, q := range whole.Queues {
			if q.Name != s.WaitingIn(d, hop) {
				continue
			}
			if name != nil {
				name(&q)
			}
			if q.Name == p.Wait {
				return append(all, waitDesign{strategy: s, wait: q, topology: whole, longer: longer})
			}
		}
	}
	return all
}

// returns reports whether the broker returns a message of the wait queue to the given work queue. Several work queues
// can share a wait queue, and the routing key decides between them.
func (x waitDesign) returns(m *reprise.Delivery, queue string) bool {
	if _, divided := x.strategy.Route.(topology.Lanes); divided {
		return x.delivery(m, queue).Source != ""
	}
	exchange := x.exchange()
	others := func(b topology.Binding) bool { return b.Exchange == exchange && b.Queue != queue }
	return exchange == "" || !slices.ContainsFunc(x.topology.Bindings, others) || x.topology.Leads(exchange, m.RoutingKey, queue)
}

// exchange returns the exchange to which the wait queue dead-letters. "" is the default exchange, which routes only to
// the work queue.
func (x waitDesign) exchange() string {
	exchange, _ := x.wait.Args["x-dead-letter-exchange"].(string)
	return exchange
}

// waits reports whether the broker will dead-letter a message from the wait queue. A message without an expiration
// would wait forever, unless the queue has a delay.
func (x waitDesign) waits(m *reprise.Delivery) bool {
	return m.Expiration > 0 || x.wait.Args["x-message-ttl"] != nil
}

// delivery returns a waiting message as the worker would receive it.
func (x waitDesign) delivery(m *reprise.Delivery, queue string) topology.Delivery {
	d := topology.Delivery{Queue: queue, Exchange: m.Exchange, RoutingKey: m.RoutingKey, Headers: m.Headers}
	if m.RoutingKey != queue && amqpvalue.WorkQueue(m.RoutingKey) == queue {
		d.Source = m.RoutingKey
	}
	return d
}

// attempts returns the number of attempts in the headers of a waiting message, or 0 if it is unknown.
func (x waitDesign) attempts(m *reprise.Delivery, queue string) int {
	if _, broker := x.strategy.Marks.(topology.Deaths); broker {
		return x.strategy.Marks.Read(x.delivery(m, queue)).Attempts
	}
	return failed.HistoryOf(m.Headers).Attempts
}

// copiedHeaders returns the headers of a copy, without the headers that the broker writes.
func copiedHeaders(headers topology.Table) topology.Table {
	out := make(topology.Table, len(headers)+8)
	for name, value := range headers {
		if !amqpvalue.IsBrokerHeader(name) {
			out[name] = value
		}
	}
	return out
}

// parked returns the headers of a parked copy. A message that a worker copied into the wait queue already has the
// failed attempt in its headers. A message that the broker dead-lettered does not, so parked adds the attempt from
// the list.
func (x waitDesign) parked(m *reprise.Delivery, w store.Waiting, reason string) topology.Table {
	headers := copiedHeaders(m.Headers)
	delete(headers, topology.HeaderWaits)
	if _, broker := x.strategy.Marks.(topology.Deaths); !broker {
		headers[topology.HeaderReason] = reason
		return headers
	}
	d := x.delivery(m, string(w.Queue))
	f := topology.Failure{
		AttemptError: topology.AttemptError{Attempt: w.Attempt, Time: w.Failed, Error: string(w.Error), Host: string(w.Host)},
		History:      x.strategy.Marks.Read(d), Queue: string(w.Queue), Reason: reason,
	}
	f.Exchange, f.RoutingKey = f.History.OriginAt(d)
	return x.strategy.Marks.Park(headers, f)
}

// currentTTL matches RabbitMQ's refusal of a declaration with a different x-message-ttl.
var currentTTL = regexp.MustCompile(`inequivalent arg 'x-message-ttl' for queue .* but current is '([0-9]+)'`)

// proven returns the first design whose declaration matches the existing wait queue. The broker accepts a declaration
// only with the arguments of the existing queue. The delay of a design is configurable, so proven reads it from the
// error with which the broker refuses a wrong delay.
func proven(ctx context.Context, c *reprise.Client, designs []waitDesign) (waitDesign, error) {
	var refused error
	for _, x := range designs {
		err := c.Declare(ctx, topology.Topology{Queues: []topology.Queue{x.wait}})
		if ttl := currentTTL.FindStringSubmatch(fmt.Sprint(err)); ttl != nil && x.wait.Args["x-message-ttl"] != nil {
			ms, _ := strconv.ParseInt(ttl[1], 10, 64) // if ms is wrong, the broker refuses the next declaration
			x.wait.Args = x.wait.Args.Clone()
			x.wait.Args["x-message-ttl"] = ms
			err = c.Declare(ctx, topology.Topology{Queues: []topology.Queue{x.wait}})
		}
		if err == nil && x.exchange() != "" {
			err = c.CheckExchange(ctx, x.exchange()) // a missing exchange would drop the messages
			return x, err
		}
		if err == nil {
			return x, nil
		}
		if _, ok := errors.AsType[*reprise.DeclareError](err); !ok {
			return waitDesign{}, err
		}
		refused = cmp.Or(refused, err)
	}
	return waitDesign{}, refused
}
