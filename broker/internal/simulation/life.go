package simulation

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/idempotent"
)

// A Life is one simulated run of a system. Its methods are safe for concurrent use.
type Life struct {
	Script  Script
	Began   time.Time
	Network *Network
	Server  *Server
	Book    *Book

	dir     string
	leaks   atomic.Bool // goroutines of a broker with a failed disk have leaked; a real process would exit
	actors  []Actor
	running sync.WaitGroup

	mu           sync.Mutex // not held during blocking calls
	healed       bool
	events       map[string]int
	stores       map[string]*idempotent.Memory // by work
	disturbances []*Disturbance
	broken       []Violation
	errors       []string // log records of level error
	explained    []string
}

// An Actor is a part of the system, such as a worker or a publisher. It runs from the beginning of a life to its end.
type Actor interface {
	// Begin starts the actor. The broker is running.
	Begin(l *Life)

	// Heal removes the faults of the actor; for example, it restarts a stopped worker. The actor continues its
	// remaining work.
	Heal(l *Life)

	// Idle returns a description of the remaining work of the actor; "": none. A life is quiet if all actors are idle and no
	// message is in flight.
	Idle(l *Life) string

	// End stops the actor and waits for its goroutines. The broker is still running.
	End(l *Life)
}

var actorMakers []func(*Life) []Actor

// RegisterActor adds a function that returns the actors for a life. The function returns nil if no actor fits the
// shape. Actors begin in the order of registration, which is the order of the file names, and end in the reverse order.
func RegisterActor(f func(*Life) []Actor) { actorMakers = append(actorMakers, f) }

// A Check compares the final state of a life with one promise. It calls [Life.Broken] for each violation.
type Check struct {
	Promise string // as worded in the document
	In      string // the document, such as docs/guarantees.md
	Check   func(l *Life, promise string)
}

var checks []Check

// RegisterCheck adds a check, which runs when the life is quiet, while the actors and the broker are still running.
func RegisterCheck(c Check) { checks = append(checks, c) }

// A Violation is a broken promise.
type Violation struct {
	Promise string
	Detail  string
}

// Broken reports a violation.
func (l *Life) Broken(promise, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = append(l.broken, Violation{promise, fmt.Sprintf("at %v: ", l.Now()) + fmt.Sprintf(format, args...)})
}

// Now returns the virtual time since the beginning of the life.
func (l *Life) Now() time.Duration { return time.Since(l.Began) }

// Go runs f in a goroutine. The life waits for the goroutine before it ends.
func (l *Life) Go(f func()) { l.running.Go(f) }

// Count counts an event under a name, usually the name of its act.
func (l *Life) Count(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events[kind]++
}

// A Disturbance is a period in which a fault or a graceful shutdown affected a participant. Checks permit exceptions
// for it.
type Disturbance struct {
	Who  string // the owner of a connection, a worker, "broker" or "queue/NAME"
	Why  string // the kind, such as "cut", "crash" or "stop"
	From time.Time
	To   time.Time // zero: the disturbance continues

	l *Life
}

// Disturb records the beginning of a disturbance. [Disturbance.End] records its end.
func (l *Life) Disturb(who, why string) *Disturbance {
	d := &Disturbance{Who: who, Why: why, From: time.Now(), l: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.disturbances = append(l.disturbances, d)
	return d
}

// End records the end of a disturbance. Further calls do nothing.
func (d *Disturbance) End() {
	d.l.mu.Lock()
	defer d.l.mu.Unlock()
	if d.To.IsZero() {
		d.To = time.Now()
	}
}

// Disturbed returns the disturbances of a participant that overlap a period. If the list why is not empty, it returns
// only disturbances of the listed kinds.
func (l *Life) Disturbed(who string, from, to time.Time, why ...string) (all []*Disturbance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.disturbances {
		if d.Who != who || len(why) > 0 && !slices.Contains(why, d.Why) {
			continue
		}
		if !d.From.After(to) && (d.To.IsZero() || !d.To.Before(from)) {
			all = append(all, d)
		}
	}
	return all
}

// Healed reports whether all faults have ended permanently.
func (l *Life) Healed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.healed
}

// Explain declares that log records of level error are expected if they contain the text.
func (l *Life) Explain(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.explained = append(l.explained, text)
}

// Logger returns a logger. Each record of level error needs an explanation by the end of the life; see [Life.Explain].
func (l *Life) Logger(who string) *slog.Logger { return slog.New(&logHandler{l: l, who: who}) }

type logHandler struct {
	l     *Life
	who   string
	attrs string
}

// The logger records a disturbance for each of these warnings.
const (
	ackOverdue = "consumer exceeded the acknowledgement timeout"
	waitedLong = "waited too long to begin"
)

// Logs prints all log records, including the records below level error.
var Logs bool

func (h *logHandler) Enabled(_ context.Context, level slog.Level) bool {
	return Logs || level >= slog.LevelWarn
}

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	if !Logs && r.Level < slog.LevelError && r.Message != ackOverdue && r.Message != waitedLong {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v %s: %s%s", h.l.Now(), h.who, r.Message, h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	if r.Message == waitedLong {
		h.l.Disturb(h.who, "paused").End() // the worker has requeued its prefetched messages
		h.l.Count("waited too long to begin")
	}
	if _, peer, ok := strings.Cut(b.String(), " peer="); ok && r.Message == ackOverdue {
		owner, _, _ := strings.Cut(peer, ":")
		h.l.Disturb(owner, "timeout").End() // the broker requeues the unacked deliveries of the consumer
		h.l.Count("consumer timeout")
	}
	if Logs {
		fmt.Println(r.Level, b.String())
	}
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	if r.Level >= slog.LevelError && len(h.l.errors) < 1000 {
		h.l.errors = append(h.l.errors, b.String())
	}
	return nil
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	for _, a := range attrs {
		c.attrs += fmt.Sprintf(" %s=%v", a.Key, a.Value)
	}
	return &c
}

func (h *logHandler) WithGroup(string) slog.Handler { return h }

// TempDir returns the temporary directory of this life. It is removed after the life.
func (l *Life) TempDir() string { return l.dir }

// live plays the script. It runs in a synctest bubble.
func live(script Script, dir string) *Result {
	l := &Life{Script: script, Began: time.Now(), events: make(map[string]int), dir: dir}
	l.Explain(": parked queue=") // workers report each parked message as an error
	l.Network = newNetwork(l)
	l.Server = newServer(l)
	l.Book = newBook(l)
	ended := make(chan struct{})
	defer close(ended)
	go l.tick(ended)
	l.Server.begin()
	for _, f := range actorMakers {
		l.actors = append(l.actors, f(l)...)
	}
	for _, a := range l.actors {
		a.Begin(l)
	}
	for _, s := range script.Steps {
		if d := s.At - l.Now(); d > 0 {
			time.Sleep(d)
		}
		acts[s.Act].Do(l, s)
	}
	l.heal()
	if l.quiet() {
		for _, c := range checks {
			c.Check(l, c.Promise)
		}
	}
	for _, a := range slices.Backward(l.actors) {
		a.End(l)
	}
	l.Network.end()
	l.Server.end()
	l.running.Wait()
	l.checkLog()
	return l.result()
}

// tick records the progress of virtual time for the function watch.
func (l *Life) tick(ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-time.After(10 * time.Minute):
			clock.Store(int64(l.Now()))
		}
	}
}

// heal removes all faults.
func (l *Life) heal() {
	l.mu.Lock()
	l.healed = true
	l.mu.Unlock()
	l.Network.heal()
	l.Server.heal()
	for _, a := range l.actors {
		a.Heal(l)
	}
}

// quietWithin is the maximum time until a life is quiet. quietLook is the initial interval between the checks.
const (
	quietWithin = 10 * 24 * time.Hour
	quietLook   = 15 * time.Second
)

const promiseQuiet = "in the end, each message is done or parked"

// quiet waits until no work remains and no message is in flight. It reports whether the life became quiet in time.
func (l *Life) quiet() bool {
	step, quiet, within := quietLook, 0, quietWithin
	if l.Script.Shape.Archive != nil {
		within = 12 * time.Hour // the longest database fault lasts 5 h, and idle processes cost real time
	}
	for began := time.Now(); ; time.Sleep(step) {
		synctest.Wait()
		busy := l.busy()
		if len(busy) > 0 {
			quiet = 0
		} else if quiet++; quiet == 2 { // two checks in a row found no work
			return true
		}
		if time.Since(began) > within {
			l.Broken(promiseQuiet, "not quiet after %v:\n\t%s%s", within, strings.Join(busy, "\n\t"), l.Book.waiting(3))
			return false
		}
		step = min(10*time.Minute, step+step/8)
	}
}

// busy returns descriptions of the remaining work.
func (l *Life) busy() (all []string) {
	for _, a := range l.actors {
		if what := a.Idle(l); what != "" {
			all = append(all, what)
		}
	}
	return append(all, l.Server.busy()...)
}

const promiseLog = "each logged error has a fault as its cause"

func (l *Life) checkLog() {
	for _, e := range l.errors {
		if !slices.ContainsFunc(l.explained, func(text string) bool { return strings.Contains(e, text) }) {
			l.Broken(promiseLog, "%s", e)
		}
	}
}

// Result is the outcome of a life.
type Result struct {
	Script   Script
	Lasted   time.Duration // virtual
	Took     time.Duration // real
	Messages int
	Events   map[string]int
	Leaks    bool // goroutines of a broker with a failed disk are still running
	Broken   []Violation
}

func (l *Life) result() *Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.Script.Steps {
		l.events["step "+s.Act]++
	}
	return &Result{
		Script: l.Script, Lasted: l.Now(), Messages: l.Book.count(), Events: maps.Clone(l.events), Leaks: l.leaks.Load(),
		Broken: slices.SortedStableFunc(slices.Values(l.broken), func(a, b Violation) int { return cmp.Compare(a.Promise, b.Promise) }),
	}
}
