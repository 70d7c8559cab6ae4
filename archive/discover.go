package archive

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/console"
	"github.com/reprisemq/reprise/internal/archive/framework"
	"github.com/reprisemq/reprise/internal/archive/ingest"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/internal/doctor"
	"github.com/reprisemq/reprise/internal/inner"
)

// discovery finds the dead-letter queues of other programs, and sees which replays their consumers have processed. It takes a queue
// only if its first message records a failure, and stops at the first sign of another user.
type discovery struct {
	*link
	start func(run func(context.Context) error)

	named   []string           // queues that the configuration names
	taken   map[string]*taking // queues that this discovery empties
	stopped map[string]string  // queues that it no longer empties, and the reasons
	looks   map[string]look    // at candidates
	logged  map[string]string  // queues that it leaves alone, and the reasons
	idle    map[string]idle    // work queues without messages
	first   bool               // no look has succeeded yet
	refused chan refusal
}

// taking is a queue that a discovery empties.
type taking struct {
	stop   context.CancelFunc
	others string // see doctor.Broker.Others
}

// refusal is a message without a trace of a failure, at which the archiving of a queue has ended.
type refusal struct{ queue, why string }

// look is what the first message of a candidate showed.
type look struct {
	by       string // the framework that recorded its failure; "": none
	why      string // the reason to leave the queue
	messages int64
	times    int
	again    bool // the candidate was one in the previous look, too
}

// idle is the time since when a work queue had no messages in all looks, and their number.
type idle struct {
	since time.Time
	looks int
}

// discover empties dead-letter queues when they appear, until ctx is canceled.
func (l *link) discover(ctx context.Context, named []string, start func(run func(context.Context) error)) {
	d := &discovery{
		link: l, start: start, named: named, taken: map[string]*taking{}, looks: map[string]look{}, logged: map[string]string{},
		idle: map[string]idle{}, first: true, refused: make(chan refusal, 1),
	}
	l.watch(ctx, "cannot look for dead-letter queues", func() error { return d.look(ctx) })
}

func (d *discovery) look(ctx context.Context) error {
	if d.stopped == nil {
		var err error
		if d.stopped, err = d.store.StoppedQueues(ctx); err != nil {
			return err
		}
	}
	b, err := doctor.ReadQueues(ctx, d.a.cfg.api())
	if err != nil {
		return err
	}
	archived, err := d.store.IngestedQueues(ctx)
	if err != nil {
		return err
	}
	verdicts := b.DeadLetterQueues(func(queue string) bool { return slices.Contains(archived, queue) })
	if err := d.contest(ctx, b); err != nil {
		return err
	}
	var doubtful []console.DoubtfulQueue
	var others []string
	for _, v := range verdicts {
		switch why, stopped := d.stopped[v.Queue]; {
		case slices.Contains(d.named, v.Queue) || d.taken[v.Queue] != nil:
		case stopped:
			doubtful = append(doubtful, console.DoubtfulQueue{Queue: v.Queue, Why: why, Stopped: true})
		case v.Candidate:
			if why := d.consider(ctx, b, v); why != "" && v.Messages > 0 {
				doubtful = append(doubtful, console.DoubtfulQueue{Queue: v.Queue, Why: v.Why + ", but " + why})
			}
		default:
			delete(d.looks, v.Queue)
			if d.leave(v.Queue, v.Why); v.Why == "" {
				others = append(others, v.Queue)
			}
		}
	}
	if d.first && len(others) > 0 {
		d.a.cfg.Logger.Info("queues left alone", "queues", list(others), "reason", "nothing indicates that they are dead-letter queues")
	}
	d.first = false
	d.a.mu.Lock()
	d.a.doubtful = doubtful
	d.a.mu.Unlock()
	return d.settle(ctx, b)
}

// consider takes a candidate if its first message records a failure, in the second of two looks in succession: the figures of the
// broker are a few seconds old, and a program that restarts has no consumers for a moment. Otherwise it returns the reason to
// leave the queue.
func (d *discovery) consider(ctx context.Context, b *doctor.Broker, v doctor.Verdict) (why string) {
	l := d.peek(ctx, b, v)
	switch {
	case l.by == "":
		d.leave(v.Queue, l.why)
	case l.again:
		evidence := v.Why + ", and " + l.by + " has recorded the failure of its first message"
		d.a.cfg.Logger.Info("dead-letter queue found", "queue", v.Queue, "evidence", evidence)
		d.take(ctx, b, v.Queue)
		return ""
	}
	l.again = true
	d.looks[v.Queue] = l
	return l.why
}

// maxLooks limits the number of times that a discovery reads the first message of a queue.
const maxLooks = 10

// peek reads the first message of a candidate, unless it is known or the look could harm it.
func (d *discovery) peek(ctx context.Context, b *doctor.Broker, v doctor.Verdict) look {
	l := d.looks[v.Queue]
	head := l.times > 0 && v.Messages >= l.messages // the first message is the same
	switch {
	case l.by != "" || head || l.times == maxLooks:
		return l
	case v.Messages == 0:
		l.why, l.messages = "it has no messages", 0
		return l
	}
	conn, err := inner.Of(d.client).Consuming.Get(ctx)
	if err == nil && consume.CountsNacks(conn.Version()) && b.Counting(v.Queue, conn.Version()) {
		l.why = "before RabbitMQ 4.3, each look at a message counts as a failed delivery"
		return l
	}
	if err == nil {
		l.why = "its messages are in delivery"
		err = d.client.Peek(ctx, v.Queue, 1, func(m *reprise.Delivery) {
			l.messages = v.Messages
			l.times++
			l.by, l.why = framework.SignedBy(m), ""
			if l.by == "" {
				l.why = "no framework has recorded a failure in its first message"
			}
		})
	}
	if err != nil {
		l.why = "its first message cannot be read: " + err.Error()
	}
	return l
}

// take begins to empty a queue.
func (d *discovery) take(ctx context.Context, b *doctor.Broker, queue string) {
	ctx, stop := context.WithCancel(ctx)
	d.taken[queue] = &taking{stop, b.Others(queue)}
	delete(d.logged, queue)
	d.start(func(context.Context) error {
		err := d.ingest(ctx, ingest.Config{Queues: []string{queue}, Accept: accept})
		if r, ok := errors.AsType[*ingest.RefusedError](err); ok {
			select {
			case d.refused <- refusal{queue, r.Err.Error()}:
			case <-ctx.Done():
			}
			return nil
		}
		return err
	})
}

// accept returns an error for a message that nobody has failed, so that another program has published it.
func accept(m *reprise.Delivery) error {
	if framework.Failed(m) {
		return nil
	}
	return errors.New("it received a message without any trace of a failure")
}

// contest stops the archiving of queues that other programs use.
func (d *discovery) contest(ctx context.Context, b *doctor.Broker) error {
	for {
		select {
		case r := <-d.refused:
			if err := d.stop(ctx, r.queue, r.why); err != nil {
				return err
			}
			continue
		default:
		}
		break
	}
	for queue, t := range d.taken {
		why := ""
		if now := b.Others(queue); now != t.others {
			why = now
		}
		if why == "" && b.Consuming(queue) > 1 {
			others, err := d.otherConsumers(ctx, queue)
			if err != nil {
				return err
			}
			if others > 0 {
				why = fmt.Sprintf("it has consumers of other programs: %d", others)
			}
		}
		if why != "" {
			if err := d.stop(ctx, queue, why); err != nil {
				return err
			}
		}
	}
	return nil
}

// otherConsumers returns the number of consumers of a queue whose tags are not from this program. A consumer of a lost connection
// remains for a while.
func (d *discovery) otherConsumers(ctx context.Context, queue string) (n int, err error) {
	var q struct {
		Consumers []struct {
			Tag string `json:"consumer_tag"`
		} `json:"consumer_details"`
	}
	api := d.a.cfg.api()
	err = api.Get(ctx, "queues"+api.Within()+"/"+url.PathEscape(queue), &q)
	for _, c := range q.Consumers {
		if !strings.HasPrefix(c.Tag, inner.Of(d.client).Name+"-") {
			n++
		}
	}
	return n, err
}

// stop ends the archiving of a queue for good: a program that consumes from it once a day is not there most of the time.
func (d *discovery) stop(ctx context.Context, queue, why string) error {
	if t := d.taken[queue]; t != nil {
		t.stop()
		delete(d.taken, queue)
	}
	d.stopped[queue] = why
	d.a.cfg.Logger.Warn("archiving stopped: another program uses the queue", "queue", queue, "reason", why, "continue_with", "--queue "+brief.Shell(queue))
	return d.store.StopQueue(ctx, queue, why, "policy:discovery")
}

// leave logs the reason for which a queue is left alone, unless it is the same as before.
func (d *discovery) leave(queue, why string) {
	if why != "" && d.logged[queue] != why {
		d.a.cfg.Logger.Info("queue left alone", "queue", queue, "reason", why)
		d.logged[queue] = why
	}
}

// maxListed limits the length of a log line.
const maxListed = 50

func list(names []string) string {
	text := strings.Join(names[:min(len(names), maxListed)], ", ")
	if len(names) > maxListed {
		text += ", …"
	}
	return text
}

// Limits of settle. The figures of the broker are at most figuresAge old.
const (
	settlingLooks = 3
	figuresAge    = 10 * time.Second
)

// settle records that consumers have processed the messages that replays sent, because the work queues, the queues that lead to them
// and the dead-letter queues are empty. The consumers do not report outcomes, and the queues have no account in the ledger, which
// does the same for its accounts.
func (d *discovery) settle(ctx context.Context, b *doctor.Broker) error {
	queues, err := d.store.UnsettledQueues(ctx)
	if err != nil {
		return err
	}
	dead := func(queue string) bool { return slices.Contains(d.named, queue) || d.taken[queue] != nil }
	if slices.ContainsFunc(b.Queues, func(q doctor.Queue) bool { return dead(q.Name) && !b.Empty(q.Name) }) {
		queues = nil
	}
	next := map[string]idle{}
	for _, queue := range queues {
		if !b.Empty(queue) || dead(queue) || dead(queue+".failed") {
			continue
		}
		i, found := d.idle[queue]
		if !found {
			i.since = time.Now()
		}
		if i.looks++; i.looks == settlingLooks {
			if err := d.store.SettleOutcomes(ctx, []string{queue}, i.since.Add(-figuresAge)); err != nil {
				return err
			}
			i = idle{since: time.Now()}
		}
		next[queue] = i
	}
	d.idle = next
	return nil
}
