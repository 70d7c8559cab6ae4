package notification

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Defaults of Config.
const (
	DefaultGather   = 30 * time.Second
	DefaultCooldown = time.Hour
	DefaultGrowth   = 100
)

// Times of a Notifier.
const (
	Every  = 10 * time.Second // interval between two readings
	GiveUp = 24 * time.Hour   // maximum age of a message that the receiver has not accepted
	lease  = 2 * requestTimeout

	longestDelay = time.Hour // between two attempts
)

// Config configures a Notifier. Gather, Cooldown, Growth, Logger, Sent, Clock and Client are optional.
type Config struct {
	DB      *sql.DB
	Dialect sqlkit.Dialect

	Webhooks []Webhook
	Console  string // URL of the console

	// Read returns a reading of the archive, or an error if the archive is unavailable.
	Read func(context.Context) (*Reading, error)

	Gather   time.Duration // time for which a message collects events before it is sent. Default: 30s
	Cooldown time.Duration // minimum time before an equal event is sent again. Default: 1h
	Growth   int           // messages that a group or failed queue must gain in 5 minutes to trigger an event. Default: 100

	// Logger receives "notifications" and "notification sent" (Info), "notification not accepted", "notification may be
	// sent twice" and "notifications wait for their database" (Warn), and "notification given up" (Error). Default: no
	// logging.
	Logger *slog.Logger

	// Sent is called with the result of each attempt: sent, retried or given_up. Default: no call.
	Sent func(result string)

	Clock  func() time.Time // default: time.Now
	Client *http.Client     // for webhooks without Authorities; default: a client that follows no redirects
}

func (c Config) withDefaults() Config {
	c.Gather = cmp.Or(c.Gather, DefaultGather)
	c.Cooldown = cmp.Or(c.Cooldown, DefaultCooldown)
	c.Growth = cmp.Or(c.Growth, DefaultGrowth)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Sent == nil {
		c.Sent = func(string) {}
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Client == nil {
		c.Client = newClient(nil)
	}
	return c
}

// Notifier turns readings and reported events into messages and sends them. All methods are safe for concurrent use.
type Notifier struct {
	cfg      Config
	outbox   outbox
	delays   backoff.Backoff
	webhooks []*receiver
	logged   condition
	first    atomic.Pointer[Reading] // nil until Start
}

// condition is the state that a Notifier logs.
type condition int

const (
	starting condition = iota
	opening            // the first reading failed; not logged
	working
	waiting
)

// receiver is a webhook with its in-memory state.
type receiver struct {
	Webhook
	client *http.Client // for Authorities; otherwise nil
	wake   chan struct{}

	mu       sync.Mutex
	reported []Event // events that are not in the database yet
	unstored []*message
	notified map[string]time.Time // time of the events of unstored messages, by Event.key
}

// New returns a Notifier. It does not access the database or the webhooks.
func New(cfg Config) *Notifier {
	cfg = cfg.withDefaults()
	n := &Notifier{
		cfg:    cfg,
		outbox: outbox{db: sqlkit.New(cfg.DB, cfg.Dialect, "reprise_notify_"), dialect: cfg.Dialect},
		delays: backoff.Equal(backoff.Exponential{Initial: 5 * time.Second, Max: longestDelay}),
	}
	for _, w := range cfg.Webhooks {
		r := &receiver{Webhook: w, wake: make(chan struct{}, 1), notified: map[string]time.Time{}}
		if w.Authorities != nil {
			r.client = newClient(w.Authorities)
		}
		n.webhooks = append(n.webhooks, r)
	}
	return n
}

// Start passes the reading of an archive before this process adds messages to it. The first poll comes later, and would
// otherwise treat the groups of these messages as old.
func (n *Notifier) Start(first *Reading) { n.first.Store(first) }

// maxReported is the maximum number of reported events per webhook that wait for the database.
const maxReported = 200

// Report adds an event that readings do not contain. It does not block. It ignores the event if an equal event is
// already waiting for the database, or if too many events are waiting.
func (n *Notifier) Report(kind Kind, subject, title, detail string) {
	e := Event{Kind: kind, Time: n.cfg.Clock().UTC(), Subject: subject, Title: line(title), Detail: line(detail)}
	for _, w := range n.webhooks {
		w.mu.Lock()
		same := func(other Event) bool { return other.key() == e.key() }
		if w.wants(kind) && len(w.reported) < maxReported && !slices.ContainsFunc(w.reported, same) {
			w.reported = append(w.reported, e)
		}
		w.mu.Unlock()
	}
}

// Run reads the archive and sends messages until ctx is done. Unsent messages stay in the database.
func (n *Notifier) Run(ctx context.Context) {
	var senders sync.WaitGroup
	defer senders.Wait()
	for _, w := range n.webhooks {
		senders.Go(func() { n.sendUntil(ctx, w) })
	}
	for wait := time.Duration(0); pause(ctx, wait, nil); {
		if wait = Every; !n.poll(ctx) {
			wait = time.Second
		}
	}
}

// pause waits for d, or until a signal on wake. It returns false if ctx is done.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// poll takes a reading and updates the states of the webhooks. It reports whether both succeeded.
func (n *Notifier) poll(ctx context.Context) bool {
	r, unread := n.cfg.Read(ctx) // if the reading fails but the tables exist, reported events are still stored
	err := unread
	if err == nil || n.outbox.ready.Load() {
		err = n.outbox.open(ctx, n.cfg.Clock().Add(-2*GiveUp))
	}
	for _, w := range n.webhooks {
		if err == nil {
			err = n.update(ctx, w, r)
		}
		if err != nil {
			n.bypass(w)
		}
	}
	err = cmp.Or(err, unread)
	n.logCondition(ctx, err)
	return err == nil
}

// logCondition logs each change of the condition of the notifier.
func (n *Notifier) logCondition(ctx context.Context, err error) {
	is := working
	switch {
	case err != nil && n.logged == starting: // usually, the archive is still being opened
		is = opening
	case err != nil:
		is = waiting
	}
	if is == n.logged || ctx.Err() != nil {
		return
	}
	n.logged = is
	if is == opening {
		return
	}
	if err != nil {
		n.cfg.Logger.Warn("notifications wait for their database", "error", err)
		return
	}
	var names []string
	for _, w := range n.webhooks {
		names = append(names, w.Name())
	}
	n.cfg.Logger.Info("notifications", "webhooks", names)
}

// update adds new events to the state of a webhook, and stores a message when it is due.
func (n *Notifier) update(ctx context.Context, w *receiver, r *Reading) error {
	w.mu.Lock()
	events := slices.Clone(w.reported)
	w.mu.Unlock()
	now := n.cfg.Clock().UTC()
	set := settings{n.cfg.Gather, n.cfg.Cooldown, int64(n.cfg.Growth), n.first.Load(), w.wants}
	made, err := n.outbox.update(ctx, w.id(), func(s state) (state, *message, error) {
		next, due := s.advance(now, r, events, set)
		if due == nil {
			return next, nil, nil
		}
		m, err := newMessage(w.Format, n.cfg.Console, now, due)
		return next, m, err
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.reported = slices.Delete(w.reported, 0, len(events))
	w.mu.Unlock()
	if made {
		w.wakeUp()
	}
	return nil
}

func newMessage(f Format, console string, now time.Time, b *batch) (*message, error) {
	text, err := body(f, console, now, b)
	return &message{id: "msg_" + rand.Text(), body: text, created: now, next: now}, err
}

func (w *receiver) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// bypass sends StoreUnavailable events without the database. Other events wait for the database.
func (n *Notifier) bypass(w *receiver) {
	now := n.cfg.Clock().UTC()
	w.mu.Lock()
	defer w.mu.Unlock()
	b := &batch{Counts: map[Kind]int64{}}
	w.reported = slices.DeleteFunc(w.reported, func(e Event) bool {
		if e.Kind != StoreUnavailable {
			return false
		}
		if notified, found := w.notified[e.key()]; !found || !within(n.cfg.Cooldown, notified, now) {
			w.notified[e.key()] = now
			b.Events, b.Counts[e.Kind] = append(b.Events, e), b.Counts[e.Kind]+1
		}
		return true
	})
	if len(b.Events) == 0 {
		return
	}
	m, err := newMessage(w.Format, n.cfg.Console, now, b)
	if err != nil {
		n.cfg.Logger.Error("notification lost", "webhook", w.Name(), "error", err)
		return
	}
	w.unstored = append(w.unstored, m)
	w.wakeUp()
}

// sendUntil sends the messages of a webhook until ctx is done.
func (n *Notifier) sendUntil(ctx context.Context, w *receiver) {
	for {
		for n.sendNext(ctx, w) {
		}
		if !pause(ctx, time.Second, w.wake) {
			return
		}
	}
}

// sendNext sends the next due message of a webhook, once. It reports whether a message was due.
func (n *Notifier) sendNext(ctx context.Context, w *receiver) bool {
	now := n.cfg.Clock().UTC()
	if ctx.Err() != nil {
		return false
	}
	if m := w.dueUnstored(now); m != nil {
		m.attempts++
		next := n.attempt(ctx, w, m, now)
		w.mu.Lock()
		defer w.mu.Unlock()
		if m.next = next; next.IsZero() {
			w.unstored = slices.DeleteFunc(w.unstored, func(other *message) bool { return other == m })
		}
		return true
	}
	m, err := n.outbox.claim(ctx, w.id(), now, lease)
	if err != nil || m == nil {
		return false // poll logs database errors
	}
	next := n.attempt(ctx, w, m, now)
	// Record the result even if ctx is canceled during the attempt.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqlkit.CommitTimeout)
	defer cancel()
	if next.IsZero() {
		err = n.outbox.remove(ctx, m)
	} else {
		err = n.outbox.retry(ctx, m, next)
	}
	if err != nil {
		n.cfg.Logger.Warn("notification may be sent twice", "webhook", w.Name(), "id", m.id, "error", err)
	}
	return true
}

func (w *receiver) dueUnstored(now time.Time) *message {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.unstored, func(m *message) bool { return !now.Before(m.next) })
	if i < 0 {
		return nil
	}
	return w.unstored[i]
}

// attempt sends a message. It returns the time of the next attempt, or the zero time if no attempt follows.
func (n *Notifier) attempt(ctx context.Context, w *receiver, m *message, now time.Time) time.Time {
	log := n.cfg.Logger.With("webhook", w.Name(), "id", m.id, "attempt", m.attempts)
	over := m.created.Add(GiveUp)
	if !now.Before(over) {
		n.cfg.Sent("given_up")
		log.Error("notification given up", "created", m.created)
		return time.Time{}
	}
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := w.post(limited, cmp.Or(w.client, n.cfg.Client), m.id, now, m.body)
	if ctx.Err() != nil {
		return now // Run was canceled during the attempt
	}
	status := 0
	if err == nil {
		_ = answer.Body.Close() // only the status matters, and the body is untrusted
		status = answer.StatusCode
		log = log.With("status", status)
	} else {
		log = log.With("error", err)
	}
	if accepted(status) {
		n.cfg.Sent("sent")
		log.Info("notification sent")
		return time.Time{}
	}
	next := n.cfg.Clock().UTC().Add(n.delays.Delay(m.attempts))
	if status == http.StatusGone || !next.Before(over) {
		n.cfg.Sent("given_up")
		log.Error("notification given up", "created", m.created)
		return time.Time{}
	}
	n.cfg.Sent("retried")
	log.Warn("notification not accepted", "next_try", next.Sub(now).Round(time.Second))
	return next
}
