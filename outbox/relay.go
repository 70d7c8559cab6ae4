package outbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Publisher publishes messages, and returns nil, a *reprise.BatchError, or an error that applies to all messages. A
// *reprise.Client is a Publisher. A relay makes one call at a time.
type Publisher interface {
	PublishBatch(ctx context.Context, messages []*reprise.Message) error
}

// Defaults of RelayConfig.
const (
	DefaultLease = 15 * time.Second
	DefaultPoll  = 500 * time.Millisecond
	DefaultBatch = 500
)

// maxLease is the maximum of RelayConfig.Lease. A lease whose end is further ahead was taken before the clock of the database was set
// back.
const maxLease = 10 * time.Minute

// RelayConfig configures a Relay. The zero value means the defaults.
type RelayConfig struct {
	// Lease is the time for which no other relay publishes after this relay crashes. The relay renews it. Minimum: 1 s.
	// Maximum: 10 min. Default: 15 s.
	Lease time.Duration

	// Poll is the time between two searches for due messages, if none is due. A message that is inserted in the process
	// of the relay is found earlier. Minimum: 1 ms. Default: 500 ms.
	Poll time.Duration

	// Batch is the maximum number of messages to read and publish at a time. Default: 500.
	Batch int

	// Tables are tables of other programs whose rows become messages. All relays of a Box need the same tables.
	Tables []Table
}

// Validate reports invalid settings and their valid values.
func (c RelayConfig) Validate() error {
	var errs []error
	if c.Lease != 0 && (c.Lease < time.Second || c.Lease > maxLease) {
		errs = append(errs, fmt.Errorf("outbox: RelayConfig.Lease must be from 1s to %s: got %s (0 means %s)", maxLease, c.Lease, DefaultLease))
	}
	if c.Poll != 0 && c.Poll < time.Millisecond {
		errs = append(errs, fmt.Errorf("outbox: RelayConfig.Poll must be at least 1ms: got %s (0 means %s)", c.Poll, DefaultPoll))
	}
	if c.Batch < 0 {
		errs = append(errs, fmt.Errorf("outbox: RelayConfig.Batch must not be negative: got %d (0 means %d)", c.Batch, DefaultBatch))
	}
	for _, t := range c.Tables {
		errs = append(errs, t.Validate())
	}
	return errors.Join(errs...)
}

// Relay publishes the messages of a Box when they are due. Any number of relays can run; one of them has the lease and
// publishes, and the others replace it within RelayConfig.Lease after it crashes, or immediately after it stops.
type Relay struct {
	box   *Box
	to    Publisher
	cfg   RelayConfig // with defaults
	log   *slog.Logger
	token string
	scan  scan
	dests destinations

	tables []*source

	inserted time.Time // last insert in this process
	latest   int64     // latest time by the clock of the database
	early    struct {  // a lease from before the clock was set back
		until int64
		since time.Time
	}

	mu      sync.Mutex
	renewed time.Time // start of the lease by the clock of this process; zero without a lease
}

// NewRelay returns a relay, which does nothing until Run is called.
func NewRelay(box *Box, to Publisher, cfg RelayConfig) (*Relay, error) {
	if box == nil || to == nil {
		return nil, errors.New("outbox: NewRelay: box and publisher must not be nil")
	}
	if err := errors.Join(cfg.Validate(), box.checkTables(cfg.Tables)); err != nil {
		return nil, err
	}
	cfg.Lease, cfg.Poll, cfg.Batch = cmp.Or(cfg.Lease, DefaultLease), cmp.Or(cfg.Poll, DefaultPoll), cmp.Or(cfg.Batch, DefaultBatch)
	r := &Relay{box: box, to: to, cfg: cfg, log: box.cfg.Logger, token: rand.Text(), dests: destinations{}}
	for _, t := range cfg.Tables {
		r.tables = append(r.tables, &source{Table: t, relay: r})
	}
	return r, nil
}

// Pauses of a relay.
const (
	errorPause = time.Second     // after an error of the database or the connection to the broker
	stopLimit  = 5 * time.Second // for the messages that are being published when Run is to return
)

// Run publishes messages, moves the rows of RelayConfig.Tables to the Box, and inserts the periodic messages of Box.Every, until ctx is done. It then waits up to 5 s for the confirms
// of the messages that it has sent. After an error of the database or of the broker, Run logs the error and continues. It
// returns an error only if the publisher is closed, or if it cannot start. Call Run once at a time.
func (r *Relay) Run(ctx context.Context) error {
	stopping, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopLimit, stop) })()
	var helpers sync.WaitGroup
	defer helpers.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	helpers.Go(func() { r.keep(ctx) })
	helpers.Go(func() { r.box.tick(ctx, r.cfg.Poll) })
	for _, t := range r.tables {
		helpers.Go(func() { t.follow(ctx) })
	}
	for {
		more, err := r.step(stopping)
		switch {
		case ctx.Err() != nil:
			r.release(stopping)
			return nil
		case errors.Is(err, reprise.ErrClosed):
			r.release(stopping)
			return fmt.Errorf("outbox: cannot publish messages: %w", err)
		case err != nil:
			r.log.Error("outbox relay failed", "error", err, "next_try", errorPause)
			_ = retry.Sleep(ctx, errorPause)
		case !more:
			r.wait(ctx)
		}
	}
}

// soon is the time between two searches after an insert in this process, whose transaction may not be committed yet.
const soon = 10 * time.Millisecond

// wait waits until a message can be due.
func (r *Relay) wait(ctx context.Context) {
	pause := r.cfg.Poll
	if time.Now().Before(r.inserted.Add(r.cfg.Poll)) {
		pause = min(pause, soon)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-r.box.wake:
		r.inserted = time.Now()
	}
}

// step publishes the next batch. It returns whether more messages may be due.
func (r *Relay) step(ctx context.Context) (more bool, err error) {
	if !r.scan.started {
		if err := r.start(ctx); err != nil {
			return false, err
		}
	}
	now, idle, err := r.idle(ctx)
	if err != nil {
		return false, err
	}
	if r.setBack(now) {
		return true, nil
	}
	old, err := r.sweep(ctx, now)
	if err != nil {
		r.log.Warn("outbox relay slow", "error", err) // new messages do not wait for old ones
	}
	if idle && len(old) == 0 {
		return false, r.claim(ctx)
	}
	now, held, err := r.renew(ctx, true)
	if err != nil || !held {
		return false, err
	}
	rows, more, err := r.read(ctx, now, old)
	if err != nil {
		return false, err
	}
	again, err := r.publish(ctx, now, rows)
	return more || again, err
}

// claim takes the lease if it is free, although no message is due, so that Status reports the relay.
func (r *Relay) claim(ctx context.Context) error {
	if r.leased() {
		return nil
	}
	var until, now int64
	err := r.box.db.Row(ctx, `SELECT until, `+r.box.clock()+` FROM {relay} WHERE id = 1`).Scan(&until, &now)
	if err == nil && r.free(until, now) {
		_, _, err = r.renew(ctx, true)
	}
	return err
}

// free reports whether no relay has the lease. If the clock was set back, the end of a lease is late, so the lease is free if nobody
// has renewed it for the time of a lease.
func (r *Relay) free(until, now int64) bool {
	if until <= now {
		return true
	}
	if current(until, now) {
		return false
	}
	if until != r.early.until {
		r.early.until, r.early.since = until, r.wall()
	}
	return r.wall().Sub(r.early.since) >= r.cfg.Lease
}

// current reports whether a lease has not ended, and was not taken before the clock was set back.
func current(until, now int64) bool { return until > now && until <= now+maxLease.Milliseconds() }

// setBack reports whether the clock of the database was set back. The relay then forgets all times, and searches from the start,
// because due messages can be before the front.
func (r *Relay) setBack(now int64) bool {
	by := r.latest - now
	r.latest = max(r.latest, now)
	if by <= overlap.Milliseconds() { // the front is at least this time behind
		return false
	}
	r.log.Warn("clock of the outbox database set back", "by", time.Duration(by)*time.Millisecond)
	r.latest, r.scan = now, scan{}
	clear(r.dests)
	return true
}

// renew renews the lease, or takes it if it is free. With horizon, it raises the horizon to the time that it returns. It
// never lowers the horizon, also if the clock of the database is set back, because a relay may have published the rows up to it.
func (r *Relay) renew(ctx context.Context, horizon bool) (now int64, held bool, err error) {
	began := time.Now()
	err = r.box.transaction(ctx, func(tx *sqlkit.Tx) error {
		var token string
		var until, before int64
		if err := tx.Row(`SELECT token, until, horizon, `+r.box.clock()+` FROM {relay} WHERE id = 1`+r.box.locking(false)).Scan(&token, &until, &before, &now); err != nil {
			return err
		}
		held = token == r.token || horizon && r.free(until, now)
		if !held {
			return nil
		}
		if horizon {
			before = max(before, now)
		}
		_, err := tx.Exec(`UPDATE {relay} SET token = $1, until = $2, horizon = $3 WHERE id = 1`, r.token, now+r.cfg.Lease.Milliseconds(), before)
		return err
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil && held:
		r.renewed = began
	case err == nil:
		r.renewed = time.Time{}
	}
	return now, held && err == nil, err
}

// leased reports whether this relay still has its lease, by the clock of this process. With Config.Clock, the lease ends
// only if another relay takes it.
func (r *Relay) leased() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.renewed.IsZero() && (r.box.cfg.Clock != nil || time.Since(r.renewed) < r.cfg.Lease)
}

// keep renews the lease while the relay has it, also while the relay waits for confirms.
func (r *Relay) keep(ctx context.Context) {
	for retry.Sleep(ctx, r.cfg.Lease/3) == nil {
		if r.leased() {
			if _, _, err := r.renew(ctx, false); err != nil && ctx.Err() == nil {
				r.log.Warn("outbox lease not renewed", "error", err)
			}
		}
	}
}

// release gives up the lease.
func (r *Relay) release(ctx context.Context) {
	_, err := r.box.db.Write(ctx, `UPDATE {relay} SET token = '', until = 0 WHERE id = 1 AND token = $1`, r.token)
	if err != nil {
		r.log.Warn("outbox lease not released", "error", err)
	}
}
