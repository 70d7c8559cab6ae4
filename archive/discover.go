package archive

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/framework"
	"github.com/reprisemq/reprise/internal/doctor"
)

// discovery finds the dead-letter queues of other programs, and sees which replays their consumers have processed.
type discovery struct {
	*link
	found func([]string)

	known  []string          // named or taken queues
	seen   map[string]bool   // queues with a verdict in the previous look, and whether to take them
	logged map[string]bool   // queues whose verdict was logged, and the verdict
	peeked map[string]string // the framework of the first message of queues; "": unknown
	idle   map[string]idle   // work queues without messages
	first  bool              // no look has succeeded yet
}

// idle is the time since when a work queue had no messages in all looks, and their number.
type idle struct {
	since time.Time
	looks int
}

// discover calls the function found with dead-letter queues when they appear, until ctx is canceled.
func (l *link) discover(ctx context.Context, known []string, found func([]string)) {
	d := &discovery{link: l, found: found, known: known, seen: map[string]bool{}, logged: map[string]bool{}, peeked: map[string]string{}, idle: map[string]idle{}, first: true}
	l.watch(ctx, "cannot look for dead-letter queues", func() error { return d.look(ctx) })
}

func (d *discovery) look(ctx context.Context) error {
	b, err := doctor.ReadQueues(ctx, d.a.cfg.api())
	if err != nil {
		return err
	}
	archived, err := d.store.IngestedQueues(ctx)
	if err != nil {
		return err
	}
	verdicts := b.DeadLetterQueues(func(queue string) bool { return slices.Contains(archived, queue) })
	for i := range verdicts {
		d.peek(ctx, &verdicts[i])
	}
	d.take(verdicts)
	return d.settle(ctx, b)
}

// peek decides about a queue with the name of a dead-letter queue by its first message, which it reads once, because each time
// counts towards the delivery limit of a quorum queue.
func (d *discovery) peek(ctx context.Context, v *doctor.Verdict) {
	of, known := d.peeked[v.Queue]
	if !known && v.Look {
		err := d.client.Peek(ctx, v.Queue, 1, func(m *reprise.Delivery) { of, known = framework.Of(m), true })
		if err != nil && ctx.Err() == nil {
			d.a.cfg.Logger.Warn("cannot look at a message", "queue", v.Queue, "error", err)
		}
		if known {
			d.peeked[v.Queue] = of
		}
	}
	if of != "" && v.Look {
		v.Take, v.Why = true, "its first message failed in "+of
	}
}

// take takes the queues with two equal verdicts in succession: the figures of the broker are a few seconds old, so a consumer may be
// missing, and a program that restarts has no consumers for a moment.
func (d *discovery) take(verdicts []doctor.Verdict) {
	log := d.a.cfg.Logger
	seen := make(map[string]bool, len(verdicts))
	var more, others []string
	for _, v := range verdicts {
		before, looked := d.seen[v.Queue]
		seen[v.Queue] = v.Take
		was, logged := d.logged[v.Queue]
		switch {
		case slices.Contains(d.known, v.Queue) || v.Take && !(looked && before):
		case v.Take:
			more = append(more, v.Queue)
			log.Info("dead-letter queue found", "queue", v.Queue, "evidence", v.Why)
			d.logged[v.Queue] = true
		case v.Why == "":
			others = append(others, v.Queue)
		case !logged || was:
			log.Info("queue left alone", "queue", v.Queue, "reason", v.Why)
			d.logged[v.Queue] = false
		}
	}
	if d.first && len(others) > 0 {
		log.Info("queues left alone", "queues", list(others), "reason", "nothing indicates that they are dead-letter queues")
	}
	d.seen, d.first = seen, false
	if len(more) > 0 {
		d.known = append(d.known, more...)
		d.found(more)
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
	summary, err := d.store.Queues(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	var settled []string
	next := map[string]idle{}
	dead := slices.ContainsFunc(d.known, func(queue string) bool { return b.Exists(queue) && !b.Empty(queue) })
	for _, q := range summary {
		queue := string(q.Queue)
		if q.Counts.Replayed == 0 || dead || !b.Empty(queue) || slices.Contains(d.known, queue) || slices.Contains(d.known, queue+".failed") {
			continue
		}
		i, found := d.idle[queue]
		if !found {
			i.since = now
		}
		i.looks++
		next[queue] = i
		if i.looks == settlingLooks {
			settled = append(settled, queue)
			next[queue] = idle{since: now}
		}
	}
	was := maps.Clone(d.idle)
	d.idle = next
	for _, queue := range settled {
		if err := d.store.SettleOutcomes(ctx, []string{queue}, was[queue].since.Add(-figuresAge)); err != nil {
			return err
		}
	}
	return nil
}
