package staking

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/reprisemq/reprise"
)

// Demo runs an indexer and the services behind its queues in one process. Workers consume from five of the queues. The
// services for btc_info_queue and confirmed_info_queue use Queue instead. The services share a database, which fails at
// regular intervals if FailEvery is set.
type Demo struct {
	URL    string         // URL of the broker
	Client reprise.Config // connection settings
	Design Design         // queue type and retry delay

	Stakes     int // number of stakes; the indexer sends one event for each stake to each queue
	MaxRetries int // number of retries after which an event is parked
	FailEvery  int // 3 means that every third booking fails; 0: bookings do not fail

	Out io.Writer
}

// timeout is the time after which a Demo without progress returns an error. Demo.Run adds the retry delay.
const timeout = 30 * time.Second

// Run runs the indexer and the services until each message is booked or parked, and prints the results. It returns an
// error if the counts do not balance.
func (d Demo) Run(ctx context.Context) error {
	return d.play(ctx, func(client *reprise.Client, t *tally) (err error) {
		ledger := &Ledger{FailEvery: d.FailEvery}
		stop, err := d.serve(ctx, client, t, ledger)
		defer func() { err = errors.Join(err, stop()) }()
		if err != nil {
			return err
		}
		fmt.Fprintf(d.Out, "%d stakes, from active to withdrawn, in %d queues. %s\n\n", d.Stakes, len(Kinds), d.terms())
		if err := d.send(ctx, client, t); err != nil {
			return err
		}
		err = settled(ctx, t, d.Design.RetryDelay+timeout)
		if err := errors.Join(err, t.print(d.Out)); err != nil {
			return err
		}
		height, confirmed := ledger.Height()
		fmt.Fprintf(d.Out, "ledger:  %d stakes withdrawn, newest block %d, newest confirmed block %d\n", ledger.Stakes()["withdrawn"], height, confirmed)
		return nil
	})
}

// Index runs only the indexer. Other programs receive its events.
func (d Demo) Index(ctx context.Context) error {
	return d.play(ctx, func(client *reprise.Client, t *tally) error {
		err := d.send(ctx, client, t)
		fmt.Fprintf(d.Out, "%d events sent to each of %d queues, and %d that will be parked\n", d.Stakes, len(Kinds), troubles)
		return err
	})
}

// Serve runs only the services, until ctx is done. Other programs send the events.
func (d Demo) Serve(ctx context.Context) error {
	return d.play(ctx, func(client *reprise.Client, t *tally) error {
		stop, err := d.serve(ctx, client, t, &Ledger{FailEvery: d.FailEvery})
		if err == nil {
			fmt.Fprintf(d.Out, "Services for %d queues until interrupted. %s\n\n", len(Kinds), d.terms())
			<-ctx.Done()
		}
		return errors.Join(err, stop(), t.print(d.Out))
	})
}

// terms describes the failures of the database and the retries, for the output.
func (d Demo) terms() string {
	fails := "The database never fails"
	if d.FailEvery > 0 {
		fails = fmt.Sprintf("The database refuses one of %d bookings", d.FailEvery)
	}
	return fmt.Sprintf("%s;\nfailed messages are retried after %s, and parked after %d attempts.", fails, d.Design.RetryDelay, d.MaxRetries+1)
}

// play connects, declares all queues, calls do and closes the connection.
func (d Demo) play(ctx context.Context, do func(*reprise.Client, *tally) error) (err error) {
	t := newTally()
	d.Client.Observer = t
	client, err := reprise.Dial(ctx, d.URL, &d.Client)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close(context.WithoutCancel(ctx))) }()
	if err := client.Declare(ctx, d.Design.Topology()); err != nil {
		return err
	}
	return do(client, t)
}

// serve starts the services. The function stop stops the services and waits until they have stopped.
func (d Demo) serve(ctx context.Context, client *reprise.Client, t *tally, ledger *Ledger) (stop func() error, err error) {
	config := d.Client
	config.Observer = t
	var running []func() error // each function stops a service and waits until it has stopped
	stop = func() error {
		var errs []error
		for _, end := range running {
			errs = append(errs, end())
		}
		return errors.Join(errs...)
	}
	background := context.WithoutCancel(ctx)
	join := func(run func() error, end func(context.Context) error) {
		ended := make(chan error, 1)
		go func() { ended <- run() }()
		running = append(running, func() error { return errors.Join(end(background), <-ended) })
	}
	for _, k := range Kinds {
		if k == BtcInfo || k == ConfirmedInfo {
			q, err := Open(ctx, d.URL, k.Queue(), &Config{Design: d.Design, MaxRetries: d.MaxRetries, Client: &config})
			if err != nil {
				return stop, err
			}
			join(func() error { return ledger.Serve(background, q) }, q.Stop)
			continue
		}
		worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
			Queue:       k.Queue(),
			Strategy:    d.Design.Strategy(),
			Handler:     ledger.Handler(k),
			Policy:      reprise.Policy{MaxAttempts: d.MaxRetries + 1},
			Concurrency: 4,
		})
		if err != nil {
			return stop, err
		}
		join(func() error { return worker.Run(background) }, worker.Shutdown)
	}
	return stop, nil
}

// send publishes the events of the indexer and the messages from Troubles.
func (d Demo) send(ctx context.Context, client *reprise.Client, tally *tally) error {
	messages, err := Troubles()
	if err != nil {
		return err
	}
	for _, e := range Lives(d.Stakes) {
		m, err := Message(e)
		if err != nil {
			return err
		}
		messages = append(messages, m)
	}
	for _, m := range messages {
		m.MessageID = rand.Text()
		tally.sending(m)
		if err := client.Publish(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// settled returns when no message is in flight. It returns an error if ctx is done, or if the counts do not change for
// the given timeout.
func settled(ctx context.Context, t *tally, timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		n, changed := t.rest()
		if n == 0 {
			return nil
		}
		select {
		case <-changed:
			timer.Reset(timeout)
		case <-timer.C:
			return fmt.Errorf("staking: timed out after %s without a processed, retried or parked message", timeout)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
