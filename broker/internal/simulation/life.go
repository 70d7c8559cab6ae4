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

// A Life is a system that runs. Its methods may be called by many goroutines at once.
type Life struct {
	Script  Script
	Began   time.Time
	Network *Network
	Server  *Server
	Book    *Book

	dir     string
	leaks   atomic.Bool // goroutines of a broker whose disk has failed wait for ever, as in a process that does not end
	actors  []Actor
	running sync.WaitGroup

	mu           sync.Mutex // never held while something blocks
	healed       bool
	struck       map[string]int
	stores       map[string]*idempotent.Memory // by work
	disturbances []*Disturbance
	broken       []Violation
	errors       []string // logged at level error and not explained
	explained    []string
}

// An Actor is a part of a system from the beginning of a life to its end, such as a worker or a publisher.
type Actor interface {
	// Begin starts the actor. The broker runs.
	Begin(l *Life)

	// Heal ends the faults that the actor has caused or suffers from: a worker that was stopped starts again. What the
	// actor still has to do goes on.
	Heal(l *Life)

	// Idle reports what the actor still has to do; "": nothing. A life is quiet when all actors are idle and no message is
	// on its way.
	Idle(l *Life) string

	// End ends the actor and waits for its goroutines. The broker still runs.
	End(l *Life)
}

var actorMakers []func(*Life) []Actor

// RegisterActor adds a function that returns actors for a life, none if they do not fit its shape. Actors begin in the order
// in which their files are named, and end in the opposite order.
func RegisterActor(f func(*Life) []Actor) { actorMakers = append(actorMakers, f) }

// A Check holds one promise against what is left at the end of a life. It calls [Life.Broken] for each violation.
type Check struct {
	Promise string // in the words of the document
	In      string // the document, such as docs/guarantees.md
	Check   func(l *Life, promise string)
}

var checks []Check

// RegisterCheck adds a check. It runs when the life is quiet, the actors still run and the broker can be asked.
func RegisterCheck(c Check) { checks = append(checks, c) }

// A Violation is a promise that was not kept.
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

// Now returns the virtual time since the beginning.
func (l *Life) Now() time.Duration { return time.Since(l.Began) }

// Go runs a goroutine that the life waits for at its end.
func (l *Life) Go(f func()) { l.running.Go(f) }

// Struck counts something that happened, under the name of the act or of a kind of it.
func (l *Life) Struck(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.struck[kind]++
}

// A Disturbance is a span of time in which a fault, or an orderly stop, affected somebody. Checks allow exceptions for it.
type Disturbance struct {
	Who  string // the owner of a connection, a worker, "broker" or "queue/NAME"
	Why  string // the kind, such as "cut", "crash" or "stop"
	From time.Time
	To   time.Time // zero: it lasts

	l *Life
}

// Disturb notes the beginning of a disturbance. End ends it.
func (l *Life) Disturb(who, why string) *Disturbance {
	d := &Disturbance{Who: who, Why: why, From: time.Now(), l: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.disturbances = append(l.disturbances, d)
	return d
}

// End notes the end of a disturbance. Calling it again is harmless.
func (d *Disturbance) End() {
	d.l.mu.Lock()
	defer d.l.mu.Unlock()
	if d.To.IsZero() {
		d.To = time.Now()
	}
}

// Disturbed returns the disturbances of somebody that overlap a span of time; why restricts their kinds, if there are any.
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

// Healed reports whether the faults have ended for good.
func (l *Life) Healed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.healed
}

// Explain says that errors are expected whose log records contain a text.
func (l *Life) Explain(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.explained = append(l.explained, text)
}

// Logger returns a logger. What is logged at level error by it has to be explained by the end of the life, see [Life.Explain].
func (l *Life) Logger(who string) *slog.Logger { return slog.New(&logHandler{l: l, who: who}) }

type logHandler struct {
	l     *Life
	who   string
	attrs string
}

// Warnings that stand for something that happened to messages.
const (
	overheld   = "consumer has kept a message for too long"
	waitedLong = "waited too long to begin"
)

// Logs has all that is logged printed, also what is no error.
var Logs bool

func (h *logHandler) Enabled(_ context.Context, level slog.Level) bool {
	return Logs || level >= slog.LevelWarn
}

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	if !Logs && r.Level < slog.LevelError && r.Message != overheld && r.Message != waitedLong {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v %s: %s%s", h.l.Now(), h.who, r.Message, h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	if r.Message == waitedLong {
		h.l.Disturb(h.who, "paused").End() // it has given back what it had fetched
		h.l.Struck("waited too long to begin")
	}
	if _, peer, ok := strings.Cut(b.String(), " peer="); ok && r.Message == overheld {
		owner, _, _ := strings.Cut(peer, ":")
		h.l.Disturb(owner, "timeout").End() // the broker takes back what the consumer has
		h.l.Struck("consumer timeout")
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

// TempDir returns a directory of this life alone, which is removed after it.
func (l *Life) TempDir() string { return l.dir }

// live plays the script. It runs in a bubble.
func live(script Script, dir string) *Result {
	l := &Life{Script: script, Began: time.Now(), struck: make(map[string]int), dir: dir}
	l.Explain(": parked queue=") // which is what a worker should tell
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

// tick tells watch that virtual time goes on.
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

// heal ends all faults.
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

// Limits of the time until a life is quiet.
const (
	quietWithin = 10 * 24 * time.Hour
	quietLook   = 15 * time.Second
)

const promiseQuiet = "each message is done or parked in the end: nothing waits for ever"

// quiet waits until nothing is on its way.
func (l *Life) quiet() bool {
	step, quiet, within := quietLook, 0, quietWithin
	if l.Script.Shape.Archive != nil {
		within = 12 * time.Hour // the longest fault of a database lasts 5 h, and idle processes cost real time
	}
	for began := time.Now(); ; time.Sleep(step) {
		synctest.Wait()
		busy := l.busy()
		if len(busy) > 0 {
			quiet = 0
		} else if quiet++; quiet == 2 { // and nothing has moved in between
			return true
		}
		if time.Since(began) > within {
			l.Broken(promiseQuiet, "not quiet after %v:\n\t%s%s", within, strings.Join(busy, "\n\t"), l.Book.waiting(3))
			return false
		}
		step = min(10*time.Minute, step+step/8)
	}
}

// busy returns what somebody still has to do.
func (l *Life) busy() (all []string) {
	for _, a := range l.actors {
		if what := a.Idle(l); what != "" {
			all = append(all, what)
		}
	}
	return append(all, l.Server.busy()...)
}

const promiseLog = "nothing is logged as an error that no fault explains"

func (l *Life) checkLog() {
	for _, e := range l.errors {
		if !slices.ContainsFunc(l.explained, func(text string) bool { return strings.Contains(e, text) }) {
			l.Broken(promiseLog, "%s", e)
		}
	}
}

// Result is what came of a life.
type Result struct {
	Script   Script
	Lasted   time.Duration // virtual
	Took     time.Duration // real
	Messages int
	Struck   map[string]int
	Leaks    bool // goroutines of a broker whose disk had failed are left
	Broken   []Violation
}

func (l *Life) result() *Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.Script.Steps {
		l.struck["step "+s.Act]++
	}
	return &Result{
		Script: l.Script, Lasted: l.Now(), Messages: l.Book.count(), Struck: maps.Clone(l.struck), Leaks: l.leaks.Load(),
		Broken: slices.SortedStableFunc(slices.Values(l.broken), func(a, b Violation) int { return cmp.Compare(a.Promise, b.Promise) }),
	}
}
