package consume

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/topology"
)

// With Config.Lanes, a session has a consumer for each lane, all with the same prefetch, so that many messages in one lane do not
// delay the messages of the other lanes. The lanes share the slots fairly: see lanes.

// queues returns the queues that the consumer consumes.
func (c *Consumer) queues() []string {
	if len(c.Lanes) > 0 {
		return c.Lanes
	}
	return []string{c.Queue}
}

// lanes decides which lane starts the next attempt: the lane with the fewest running attempts, so that long attempts in one lane do
// not occupy all slots while others wait. Lanes with the same number take turns.
type lanes struct {
	running []atomic.Int32 // attempts, by lane; nil without Lanes
	turn    int            // the lane that is preferred; only the dispatcher uses it
}

func newLanes(names []string) lanes { return lanes{running: make([]atomic.Int32, len(names))} }

// next returns the lane that starts the next attempt, and the index of its delivery, or -1.
func (l *lanes) next(pending [][]*Delivery, startable func([]*Delivery) int) (lane, index int) {
	if len(l.running) == 0 {
		return 0, startable(pending[0])
	}
	lane, index, fewest := 0, -1, int32(0)
	for k := range pending {
		candidate := (l.turn + k) % len(pending)
		n := l.running[candidate].Load()
		if len(pending[candidate]) == 0 || index >= 0 && n >= fewest {
			continue
		}
		if i := startable(pending[candidate]); i >= 0 {
			lane, index, fewest = candidate, i, n
		}
	}
	return lane, index
}

// begin counts an attempt that starts.
func (l *lanes) begin(d *Delivery) {
	if len(l.running) > 0 {
		l.running[d.lane].Add(1)
		l.turn = (int(d.lane) + 1) % len(l.running)
	}
}

// end counts an attempt that has ended.
func (l *lanes) end(d *Delivery) {
	if len(l.running) > 0 {
		l.running[d.lane].Add(-1)
	}
}

// pending contains the deliveries that wait for an attempt, in order of arrival in each lane. Without Lanes, there is one lane.
type pending struct {
	lanes [][]*Delivery
	n     int
}

func (p *pending) add(all ...*Delivery) {
	for _, d := range all {
		p.lanes[d.lane] = append(p.lanes[d.lane], d)
	}
	p.n += len(all)
}

// remove removes d, which has index i in its lane.
func (p *pending) remove(d *Delivery, i int) {
	p.n--
	lane := &p.lanes[d.lane]
	switch {
	case len(*lane) == 1:
		(*lane)[0] = nil
		*lane = (*lane)[:0] // keeps the capacity
	case i == 0:
		(*lane)[0] = nil
		*lane = (*lane)[1:]
	default:
		*lane = slices.Delete(*lane, i, i+1)
	}
}

// deleteFunc removes the deliveries for which del returns true, and returns their number.
func (p *pending) deleteFunc(del func(*Delivery) bool) int {
	before := p.n
	p.n = 0
	for i := range p.lanes {
		p.lanes[i] = slices.DeleteFunc(p.lanes[i], del)
		p.n += len(p.lanes[i])
	}
	return before - p.n
}

// index returns the index of d in its lane, or -1.
func (p *pending) index(d *Delivery) int {
	if d == nil {
		return -1
	}
	return slices.Index(p.lanes[d.lane], d)
}

// find returns a delivery for which f returns true, or nil.
func (p *pending) find(f func(*Delivery) bool) *Delivery {
	for _, lane := range p.lanes {
		if i := slices.IndexFunc(lane, f); i >= 0 {
			return lane[i]
		}
	}
	return nil
}

// take removes all deliveries, and returns them.
func (p *pending) take() (all []*Delivery) {
	for i := range p.lanes {
		all = append(all, p.lanes[i]...)
		p.lanes[i] = nil
	}
	p.n = 0
	return all
}

// first returns the pending delivery whose attempt starts next, and its index in its lane, or nil.
func (s *session) first() (*Delivery, int) {
	if s.subscription.searches {
		return s.chosen, s.pending.index(s.chosen)
	}
	lane, i := s.consumer.lanes.next(s.pending.lanes, s.consumer.startable)
	if i < 0 {
		return nil, i
	}
	return s.pending.lanes[lane][i], i
}

// consumeLanes starts the consumers of sub. After an error, none of them exists, or the session must end.
func (s *session) consumeLanes(alive context.Context, sub *subscription, tag string, args topology.Table) error {
	c := s.consumer
	var all []amqpconn.Deliveries
	var err error
	for i, lane := range c.Lanes {
		laneTag := fmt.Sprintf("%s.%d", tag, i)
		var deliveries amqpconn.Deliveries
		deliveries, err = s.ch.Consume(alive, lane, laneTag, sub.prefetch, args, func(late amqpconn.Deliveries) { s.cancelLate(laneTag, late) })
		if err != nil {
			break
		}
		sub.tags, all = append(sub.tags, laneTag), append(all, deliveries)
	}
	failed := s.merge(sub, all)
	if err != nil {
		_ = s.unsubscribe(*sub) // after its error, the session ends, too
		return err
	}
	return failed
}

// laneOf returns the index of the lane that a tag of consumeLanes names.
func laneOf(tag string) int {
	n, _ := strconv.Atoi(tag[strings.LastIndexByte(tag, '.')+1:])
	return n
}

// merge sets the deliveries of sub to those of all consumers.
func (s *session) merge(sub *subscription, all []amqpconn.Deliveries) error {
	merged, ended := make(chan amqpconn.Incoming), make(chan struct{})
	sub.deliveries, sub.ended = merged, ended
	end := sync.OnceFunc(func() { close(ended) })
	var forwarding sync.WaitGroup
	for _, deliveries := range all {
		forwarding.Add(1)
		err := s.consumer.Tasks.Go(func() {
			defer forwarding.Done()
			defer end()
			for in := range deliveries {
				select {
				case merged <- in:
				case <-s.ctx.Done():
					return
				}
			}
		})
		if err != nil {
			forwarding.Done()
			return err
		}
	}
	return s.consumer.Tasks.Go(func() {
		forwarding.Wait()
		close(merged)
	})
}

// search gets messages, one lane after the other, until it finds a message that must be handled alone. When it has searched all
// lanes, it returns errWiden. With a consumer for each lane, a crash would count as a delivery of the first message of each lane.
//
// In each lane, search stops at the first message that need not be alone. This message is pending during the search; after two
// crashes, it is handled alone, too. If another subscription has received a suspected message, the first message of its lane is
// handled alone in any case, because the suspected message may be behind it.
func (s *session) search(alive context.Context) error {
	for s.pending.index(s.chosen) < 0 {
		if s.chosen = s.pending.find((*Delivery).isSuspect); s.chosen != nil {
			break
		}
		if s.searched == len(s.consumer.Lanes) {
			return errWiden
		}
		lane := (s.searchFrom + s.searched) % len(s.consumer.Lanes)
		in, found, err := s.ch.Get(alive, s.consumer.Lanes[lane])
		if alive.Err() != nil {
			s.chosen = nil
			return nil // dispatch ends, and closing the channel requeues a late message
		}
		if err != nil {
			return err
		}
		if !found {
			s.searched++
			continue
		}
		d := s.received(s.subscription, in, time.Now())
		d.lane, d.Source = int32(lane), s.consumer.Lanes[lane]
		switch s.receive(d); {
		case d.isSuspect(): // the next one may be suspect, too
		case s.suspected:
			s.chosen = d
		default:
			s.searched++
		}
	}
	return nil
}
