package workretry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology/preset"
)

// Pair is a worker on WorkQueue, beside any others that there are.
type Pair struct {
	Design preset.WorkRetry
	Jobs   int    // how many to publish, and see to the end of; 0: work until interrupted
	Seed   uint64 // for how often each of them fails
}

// Run works, and writes to out what happens. It returns when the jobs that it
// has published have come to an end in it, or ctx has ended. An error means that
// it could not work, or that what it was given does not add up.
func (p Pair) Run(ctx context.Context, b Broker, out io.Writer) error {
	if p.Jobs < 0 {
		return fmt.Errorf("workretry: %d jobs: use a positive number, or 0 to work until interrupted", p.Jobs)
	}
	if err := p.Design.Validate(); err != nil {
		return err
	}
	l := newLedger()
	client, err := reprise.Dial(ctx, b.URL, &reprise.Config{Dial: b.Dial, Logger: b.Logger, Observer: l})
	if err != nil {
		return err
	}
	if err := client.Declare(ctx, p.Design.Topology()); err != nil {
		return errors.Join(hint(err), client.Close(context.WithoutCancel(ctx)))
	}
	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
		Queue:    p.Design.Queue(),
		Strategy: p.Design.Strategy(),
		Policy:   reprise.Policy{MaxAttempts: maxAttempts},
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Message) error {
			err := jobOf(m.Body).attempt(m.Attempt)
			l.linef(out, "attempt %d of %s: %s", m.Attempt, strings.TrimSpace(string(m.Body)), verdict(m.Attempt, err))
			return err
		}),
	})
	if err != nil {
		return errors.Join(err, client.Close(context.WithoutCancel(ctx)))
	}
	working, stop := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := worker.Run(working)
		stop(err)
		ended <- err
	}()
	err = p.publish(working, client, l)
	if err == nil {
		select {
		case <-l.over:
		case <-working.Done():
		}
	}
	stop(nil)
	err = errors.Join(<-ended, ifNot(ctx, err), client.Close(context.WithoutCancel(ctx)))
	return errors.Join(err, l.balance(out, p.Jobs))
}

// publish publishes the jobs, known to the ledger.
func (p Pair) publish(ctx context.Context, client *reprise.Client, l *ledger) error {
	if p.Jobs == 0 {
		return nil
	}
	var (
		jobs = plan(p.Jobs, p.Seed)[:p.Jobs]
		run  = prefix()
		ids  []string
	)
	for _, j := range jobs {
		ids = append(ids, fmt.Sprintf("%sjob-%d", run, j.ID))
	}
	l.expect(ids)
	for i, j := range jobs {
		err := client.Publish(ctx, &reprise.Message{
			Exchange: p.Design.Prefix + preset.WorkRetryWorkExchange, RoutingKey: p.Design.Key,
			MessageID: ids[i], ContentType: "application/json", Body: j.body(),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// verdict is what comes of an attempt, for people.
func verdict(attempt int, err error) string {
	switch {
	case err == nil:
		return "done"
	case attempt >= maxAttempts:
		return "failed, and none is left: parked"
	}
	return "failed: rejected"
}

// ifNot returns err unless that is because somebody has interrupted us.
func ifNot(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// hint adds which flag would have it right.
func hint(err error) error {
	d, ok := errors.AsType[*reprise.DeclareError](err)
	if !ok {
		return err
	}
	flag := "-type"
	switch {
	case strings.Contains(d.Advice, "x-message-ttl"):
		flag = "-delay"
	case d.Kind == "exchange" && strings.Contains(d.Advice, "another type"):
		flag = "-kind"
	case d.Kind == "exchange":
		flag = "-transient"
	}
	return fmt.Errorf("%w\n(here: say with %s what it is deployed with)", err, flag)
}

// ledger counts what becomes of messages.
type ledger struct {
	mu sync.Mutex

	started, done, rejected, parked, givenBack int
	underWay                                   map[attempt]int
	unseen                                     int // parked without an attempt

	ours map[string]bool // by message id: not over yet
	over chan struct{}   // closed when none of ours is left
}

type attempt struct {
	id string
	n  int
}

func newLedger() *ledger {
	return &ledger{underWay: make(map[attempt]int), ours: make(map[string]bool), over: make(chan struct{})}
}

func (l *ledger) expect(ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.ours[id] = true
	}
}

// Observe implements reprise.Observer.
func (l *ledger) Observe(e reprise.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := attempt{e.MessageID, e.Attempt}
	switch e.Kind {
	case reprise.EventStarted:
		l.started++
		l.underWay[a]++
		return
	case reprise.EventRetried:
		l.rejected++
	case reprise.EventGivenBack, reprise.EventDropped:
		l.givenBack++
	case reprise.EventDone:
		l.done++
		l.end(e.MessageID)
	case reprise.EventParked:
		if l.underWay[a] > 0 {
			l.parked++
		} else {
			l.unseen++
		}
		l.end(e.MessageID)
	default:
		return
	}
	if l.underWay[a]--; l.underWay[a] <= 0 {
		delete(l.underWay, a)
	}
}

func (l *ledger) end(id string) {
	if l.ours[id] {
		delete(l.ours, id)
		if len(l.ours) == 0 {
			close(l.over)
		}
	}
}

func (l *ledger) linef(out io.Writer, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(out, "%s  %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// balance writes what it comes to.
func (l *ledger) balance(out io.Writer, sent int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(out, "balance: %d attempts = %d done + %d rejected + %d parked + %d given back\n", l.started, l.done, l.rejected, l.parked, l.givenBack)
	if l.unseen > 0 {
		fmt.Fprintf(out, "and %d parked without an attempt: all had been made, or their workers had died each time\n", l.unseen)
	}
	if sent > 0 {
		fmt.Fprintf(out, "of %d jobs sent: %d ended here, %d are elsewhere: in %s, or with other programs\n",
			sent, sent-len(l.ours), len(l.ours), preset.WorkRetryRetryQueue)
	}
	if l.started != l.done+l.rejected+l.parked+l.givenBack {
		return errors.New("workretry: the attempts do not balance")
	}
	return nil
}
