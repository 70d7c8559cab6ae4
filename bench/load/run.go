package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Event identifies a point in a run.
type Event string

// The events of a run, in order.
const (
	Measuring Event = "measuring" // the warm-up, if any, is complete, and its messages are drained
	Published Event = "published" // all messages are published
	Drained   Event = "drained"   // all messages are confirmed and delivered
)

// runner contains the state of a run.
type runner struct {
	o          Options
	admin      *admin
	links      []*link
	publishers []*publisher
	consumers  []*consumer
	progress   *progress
	observe    func(Event)

	serving sync.WaitGroup
}

// Run performs a run and returns its measurements. If observe is not nil, Run calls it for each event. Run returns an
// error if the options are invalid, the broker fails or a message is missing, duplicated or out of order.
func Run(ctx context.Context, o Options, observe func(Event)) (Result, error) {
	o, err := o.complete()
	if err != nil {
		return Result{}, err
	}
	if observe == nil {
		observe = func(Event) {}
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	r := &runner{o: o, observe: observe, progress: newProgress(&o, fail)}
	defer r.end()
	if err := r.prepare(); err != nil {
		return Result{}, err
	}
	stop := context.AfterFunc(ctx, r.cut)
	defer stop()
	r.serve()
	result, err := r.measure(ctx)
	if err != nil {
		return Result{}, err
	}
	if err := r.verify(ctx); err != nil {
		return Result{}, err
	}
	r.histograms(&result)
	return result, nil
}

// prepare declares the queues, connects the publishers and starts the consumers.
func (r *runner) prepare() (err error) {
	if r.admin, err = newAdmin(&r.o); err != nil {
		return err
	}
	if err := r.admin.declare(); err != nil {
		return err
	}
	for range r.o.Connections {
		l, err := open(&r.o)
		if err != nil {
			return err
		}
		r.links = append(r.links, l)
	}
	run := uint16(rand.Uint32())
	for i := range r.o.Publishers {
		p, err := newPublisher(&r.o, r.links[i%len(r.links)], run, uint16(i), r.progress)
		if err != nil {
			return err
		}
		r.publishers = append(r.publishers, p)
	}
	for i := range r.o.Consumers {
		c, err := newConsumer(&r.o, r.links[(r.o.Publishers+i)%len(r.links)], run, i, r.progress)
		if err != nil {
			return err
		}
		r.consumers = append(r.consumers, c)
	}
	return nil
}

// serve starts the goroutines that read from the links and write their acks.
func (r *runner) serve() {
	for _, l := range r.links {
		r.serving.Go(func() {
			defer l.later.end()
			if err := l.run(); err != nil {
				r.progress.fail(fmt.Errorf("cannot read: %w", err))
			}
		})
		r.serving.Go(func() {
			if err := l.later.run(l.conn); err != nil {
				r.progress.fail(fmt.Errorf("cannot ack: %w", err))
			}
		})
	}
}

// measure performs the warm-up and then the measurement.
func (r *runner) measure(ctx context.Context) (Result, error) {
	if r.o.WarmUp > 0 {
		if _, err := r.phase(ctx, 0, r.o.WarmUp, func() {}); err != nil {
			return Result{}, fmt.Errorf("warm-up: %w", err)
		}
	}
	for _, c := range r.consumers {
		c.measuring.Store(true)
	}
	p := r.progress
	published, confirmed, delivered := p.published.Load(), p.confirmed.Load(), p.delivered.Load()
	r.observe(Measuring)
	used, from := cpu(), clock()
	to, err := r.phase(ctx, r.o.Count, r.o.Duration, func() { r.observe(Published) })
	if err != nil {
		return Result{}, err
	}
	used = cpu() - used
	r.observe(Drained)
	result := Result{
		Published: p.published.Load() - published, Confirmed: p.confirmed.Load() - confirmed,
		Delivered: p.delivered.Load() - delivered, CPUSeconds: used,
	}
	result.PublishedPerSecond = rate(result.Published, from, to)
	result.ConfirmedPerSecond = rate(result.Confirmed, from, p.confirmedAt.Load())
	result.DeliveredPerSecond = rate(result.Delivered, from, p.deliveredAt.Load())
	result.Seconds = time.Duration(max(to, p.confirmedAt.Load(), p.deliveredAt.Load()) - from).Seconds()
	return result, nil
}

// phase publishes, and waits until all messages are confirmed and delivered. After the last publish, it calls
// published. It returns the time when the last publisher stopped.
func (r *runner) phase(ctx context.Context, count int64, duration time.Duration, published func()) (last int64, err error) {
	var publishing sync.WaitGroup
	for i, p := range r.publishers {
		plan := newPlan(&r.o, count, duration, i)
		publishing.Go(func() {
			if err := p.publish(plan); err != nil {
				r.progress.fail(err)
			}
		})
	}
	publishing.Wait()
	last = clock()
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	published()
	return last, r.progress.wait(ctx, r.o.Stall+r.o.TTL)
}

// verify closes the connections, compares the received messages with the published messages, checks that the queues
// are empty, and deletes the queues unless Options.Keep is set.
func (r *runner) verify(ctx context.Context) error {
	for _, l := range r.links {
		if err := l.close(); err != nil {
			return err
		}
	}
	r.serving.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if r.o.Consumers > 0 {
		sent := make(map[flow]int64)
		for _, p := range r.publishers {
			for _, t := range p.targets {
				sent[flow{t.queue, p.id}] = t.messages
			}
		}
		ledgers := make([]*ledger, len(r.consumers))
		for i, c := range r.consumers {
			ledgers[i] = c.ledger
		}
		if err := settle(sent, ledgers); err != nil {
			return err
		}
		if err := r.admin.empty(ctx); err != nil {
			return err
		}
	}
	if r.o.Keep {
		return nil
	}
	return r.admin.remove()
}

// histograms adds the merged histograms of the consumers to the result. Call histograms after the consumers have
// stopped.
func (r *runner) histograms(result *Result) {
	if r.o.Consumers == 0 {
		return
	}
	latency, lateness, late := newHistogram(), newHistogram(), Lateness{}
	for _, c := range r.consumers {
		latency.Merge(c.latency)
		lateness.Merge(c.lateness)
		late.Late += c.late
		late.Early += c.early
	}
	p := percentiles(latency)
	result.Latency = &p
	if r.o.TTL > 0 {
		late.Percentiles = percentiles(lateness)
		result.Lateness = &late
	}
}

// cut closes all connections without waiting for the broker.
func (r *runner) cut() {
	for _, p := range r.publishers {
		if p.window != nil {
			p.window.close()
		}
	}
	for _, l := range r.links {
		l.later.end()
		_ = l.conn.Close()
	}
	if r.admin != nil {
		r.admin.close()
	}
}

// end closes all connections and waits for the goroutines of serve.
func (r *runner) end() {
	r.cut()
	r.serving.Wait()
}
