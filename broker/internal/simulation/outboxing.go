package simulation

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker/internal/simulation/archive"
	"github.com/reprisemq/reprise/outbox"
)

// A life has an outbox if outboxRest is the remainder of its seed and outboxEvery.
const (
	outboxEvery = 4
	outboxRest  = 2
)

// Outbox describes the processes that share an outbox in an SQLite file. Each of them inserts messages and runs a relay.
type Outbox struct {
	Processes int
	Lease     time.Duration
	Poll      time.Duration
	Batch     int
	CatchUp   time.Duration // of the periodic messages
	Periodic  []Periodic
}

// Periodic is a periodic message. A message is due every so many minutes of each hour; each change selects the next period.
type Periodic struct {
	Name    string
	Work    string
	Missed  outbox.Missed
	Minutes []int // divisors of 60
	Keyed   bool
}

// drawOutbox adds an outbox to a shape. The times are short, because relays poll their database continually, and for Poll after an
// insert every 10 ms.
func drawOutbox(random *rand.Rand, s *Shape) {
	s.Horizon = between(random, 5*time.Minute, 20*time.Minute)
	s.Acts += 30
	s.Outbox = &Outbox{
		Processes: 1 + random.IntN(2), Lease: oneOf(random, time.Second, 15*time.Second, time.Minute),
		Poll: oneOf(random, time.Second, 2*time.Second), Batch: oneOf(random, 1, 3, 20, 500),
		CatchUp: oneOf(random, 4*time.Minute, 10*time.Minute, 24*time.Hour),
	}
	for i := range 1 + random.IntN(3) {
		p := Periodic{
			Name: fmt.Sprint("periodic", i), Work: oneOf(random, s.Names()...), Missed: oneOf(random, outbox.MissedLatest, outbox.MissedAll),
			Keyed: random.IntN(2) == 0,
		}
		for range 1 + random.IntN(3) {
			p.Minutes = append(p.Minutes, oneOf(random, 3, 4, 5))
		}
		s.Outbox.Periodic = append(s.Outbox.Periodic, p)
	}
}

// minutes returns the period of a version of the processes.
func (p Periodic) minutes(version int) int { return p.Minutes[version%len(p.Minutes)] }

func (p Periodic) entry(version int, catchUp time.Duration, b built) outbox.Entry {
	e := outbox.Entry{
		Name: p.Name, Spec: fmt.Sprintf("*/%d * * * *", p.minutes(version)), Missed: p.Missed, CatchUp: catchUp,
		Message: reprise.Message{Exchange: b.exchange, RoutingKey: b.key},
	}
	if p.Keyed {
		e.Key = p.Name
	}
	return e
}

// outboxName is the name of the outbox in disturbances. relayName is the name of a process and of its connections.
const outboxName = "outbox"

func relayName(n int) string { return fmt.Sprintf("%s.%d", outboxName, n) }

// outboxes is an Actor: the processes that share an outbox.
type outboxes struct {
	Outbox
	l    *Life
	file string
	acts atomic.Int32 // number of acts in progress

	mu       sync.Mutex // not held during blocking calls
	slots    []*relaySlot
	version  int // of the configuration of a process that starts
	versions []*outboxVersion
	all      map[string]*scheduled
	order    []*scheduled
	keys     map[string][]*scheduled // in the order of the inserts
	uniques  map[string][]*scheduled
	over     chan struct{} // closed at the end of the life
	drained  time.Time     // end of the processes
}

// relaySlot is a process that stops and starts again.
type relaySlot struct {
	number  int
	process *relayProcess // nil: down
	version int           // of the latest start
	down    *Disturbance
	pending bool // the process is stopping or starting
}

// outboxVersion is a configuration of the processes.
type outboxVersion struct {
	changed time.Time // first start of a process with a later version; zero: none
	settled time.Time // since then, all processes have this version; zero: not yet
}

// relayProcess is one run of a process.
type relayProcess struct {
	o      *outboxes
	number int
	name   string
	db     *archive.Database
	pool   *sql.DB
	box    *outbox.Box
	client *reprise.Client
	cancel context.CancelFunc
	dead   chan struct{} // closed when the process is killed
	ended  chan struct{} // closed when Run has returned
	err    error

	mu         sync.Mutex
	killed     bool
	publishing bool
	strike     string // of the next batch: a kill before or after it, or a cancel
}

func init() {
	RegisterActor(func(l *Life) []Actor {
		s := l.Script.Shape.Outbox
		if s == nil {
			return nil
		}
		return []Actor{&outboxes{
			Outbox: *s, l: l, file: filepath.Join(l.TempDir(), "outbox.db"), versions: []*outboxVersion{{}}, over: make(chan struct{}),
			all: map[string]*scheduled{}, keys: map[string][]*scheduled{}, uniques: map[string][]*scheduled{},
		}}
	})
	RegisterOwners(func(s Shape) (all []string) {
		if s.Outbox != nil {
			for n := range s.Outbox.Processes {
				all = append(all, relayName(n))
			}
		}
		return all
	})
}

// outboxes returns the outbox of a life, or nil.
func (l *Life) outboxes() *outboxes {
	for _, a := range l.actors {
		if o, ok := a.(*outboxes); ok {
			return o
		}
	}
	return nil
}

// Begin implements Actor.
func (o *outboxes) Begin(l *Life) {
	l.Explain(": outbox relay failed error=reprise: ") // the broker is down, or blocks publishers
	pool := sql.OpenDB(archive.NewDatabase(o.file))
	defer pool.Close()
	_, err := pool.Exec("CREATE TABLE program (id TEXT NOT NULL)")
	for n := range o.Processes {
		slot := &relaySlot{number: n}
		o.slots = append(o.slots, slot)
		err = errors.Join(err, o.start(slot))
	}
	if err != nil {
		l.Broken(promiseRelay, "%v", err)
	}
}

const promiseRelay = "a process with a relay starts, and Run returns nil when its context is done"

// start starts a process.
func (o *outboxes) start(slot *relaySlot) error {
	o.mu.Lock()
	version := o.version
	o.mu.Unlock()
	name := relayName(slot.number)
	o.l.Network.Revive(name)
	p := &relayProcess{
		o: o, number: slot.number, name: name, db: archive.NewDatabase(o.file), dead: make(chan struct{}), ended: make(chan struct{}),
	}
	p.pool = sql.OpenDB(p.db)
	p.pool.SetMaxOpenConns(16) // the same value as in the command
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	relay, err := p.open(ctx, version)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	o.l.Go(func() {
		p.err = relay.Run(ctx)
		close(p.ended)
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	slot.process, slot.version = p, version
	if slot.down != nil {
		slot.down.End()
		slot.down = nil
	}
	o.started()
	return nil
}

// started records whether all processes have the current version. The caller holds the lock.
func (o *outboxes) started() {
	for _, s := range o.slots {
		if s.version != o.version || s.process == nil {
			return
		}
	}
	if v := o.versions[o.version]; v.settled.IsZero() && len(o.slots) == o.Processes {
		v.settled = time.Now()
	}
}

// open connects a process to the database and to the broker.
func (p *relayProcess) open(ctx context.Context, version int) (relay *outbox.Relay, err error) {
	log := p.o.l.Logger(p.name)
	for range 10 { // while another process holds a lock
		if p.box, err = outbox.Open(ctx, p.pool, outbox.Config{Dialect: outbox.SQLite, BeforeInsert: p.o.occurrence, Logger: log}); err == nil {
			break
		}
		time.Sleep(time.Second)
	}
	if err != nil {
		return nil, err
	}
	for _, e := range p.o.Periodic {
		w := p.o.l.work(e.Work)
		if err := p.box.Every(e.entry(version, p.o.CatchUp, findDesign(w.Design).Build(w))); err != nil {
			return nil, err
		}
	}
	dialling, stop := context.WithTimeout(ctx, 24*time.Hour)
	defer stop()
	p.client, err = reprise.Dial(dialling, url, &reprise.Config{Name: p.name, Dial: p.o.l.Network.Dialer(p.name), Logger: log})
	if err != nil {
		return nil, err
	}
	return outbox.NewRelay(p.box, p, outbox.RelayConfig{Lease: p.o.Lease, Poll: p.o.Poll, Batch: p.o.Batch})
}

// outage makes a running process stop with the function end, and starts it again after a while.
func (o *outboxes) outage(p *relayProcess, why string, after time.Duration, end func()) {
	o.mu.Lock()
	slot := o.slots[p.number]
	if slot.process != p || slot.pending {
		o.mu.Unlock()
		return
	}
	slot.process, slot.pending = nil, true
	o.mu.Unlock()
	d := o.l.Disturb(p.name, why)
	o.mu.Lock()
	slot.down = d
	o.mu.Unlock()
	o.l.Count(why + "-relay")
	end()
	o.l.Go(func() {
		<-p.ended
		p.close()
		time.Sleep(after)
		if err := o.start(slot); err != nil {
			o.l.Broken(promiseRelay, "%v", err)
		}
		o.mu.Lock()
		slot.pending = false
		o.mu.Unlock()
	})
}

// kill stops a process as SIGKILL does: it executes no further statements, and its connections are cut.
func (o *outboxes) kill(p *relayProcess, after time.Duration) {
	if o.l.Healed() {
		return
	}
	o.outage(p, "crash", after, func() {
		o.l.Explain(p.name + ": outbox ")
		p.mu.Lock()
		p.killed = true
		p.mu.Unlock()
		close(p.dead)
		o.l.Network.Kill(p.name)
		p.db.Kill(func() {})
		p.cancel()
	})
}

// stop stops a process gracefully.
func (o *outboxes) stop(p *relayProcess, after time.Duration) { o.outage(p, "stop", after, p.cancel) }

// close releases the resources of a process that has ended.
func (p *relayProcess) close() {
	if p.err != nil && !p.isKilled() {
		p.o.l.Broken(promiseRelay, "%s: %v", p.name, p.err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if err := p.client.Close(ctx); err != nil {
		p.o.l.Broken(promiseClosed, "%s: Close: %v", p.name, err)
	}
	_ = p.pool.Close()
}

func (p *relayProcess) isKilled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

// running returns the processes that are up.
func (o *outboxes) running() (all []*relayProcess) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.slots {
		if s.process != nil {
			all = append(all, s.process)
		}
	}
	return all
}

// Heal implements Actor. When all messages have left, the processes stop, because their polling takes real time.
func (o *outboxes) Heal(l *Life) {
	for _, p := range o.running() {
		p.db.Heal()
	}
	for n := 0; len(o.running()) < o.Processes; n++ {
		if n > 24*60*60 {
			l.Broken(promiseRelay, "%d of %d processes are down", o.Processes-len(o.running()), o.Processes)
			break
		}
		time.Sleep(time.Second)
	}
	l.Go(func() {
		for began := time.Now(); !o.isEmpty(); {
			if time.Since(began) > leavesWithin {
				l.Broken(promiseLeaves, "not all messages have left after %v", leavesWithin)
				break
			}
			select {
			case <-time.After(10 * time.Second):
			case <-o.over:
			}
		}
		o.end()
	})
}

// leavesWithin is the maximum time until all messages have left. It is short, because relays poll their database continually.
const leavesWithin = 4 * time.Hour

// isEmpty cancels the messages that cannot leave, and reports whether no other messages wait.
func (o *outboxes) isEmpty() bool {
	select {
	case <-o.over:
		return true
	default:
	}
	up := o.running()
	if o.acts.Load() > 0 || len(up) == 0 {
		return false
	}
	o.mu.Lock()
	for _, x := range o.order {
		x.vague = x.vague || x.m.Work == ""
	}
	o.mu.Unlock()
	box, ctx := up[0].box, context.Background()
	if _, err := box.Cancel(ctx, outbox.Filter{RoutingKey: nowhere}); err != nil {
		return false
	}
	n, _, err := box.Count(ctx, outbox.Filter{})
	return err == nil && n == 0
}

// end stops all processes.
func (o *outboxes) end() {
	for _, p := range o.running() {
		p.cancel()
		<-p.ended
		p.close()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.slots {
		s.process = nil
	}
	o.drained = time.Now()
}

// Idle implements Actor.
func (o *outboxes) Idle(*Life) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.drained.IsZero() {
		return fmt.Sprintf("messages are in the outbox, %d acts are running", o.acts.Load())
	}
	return ""
}

// End implements Actor.
func (o *outboxes) End(*Life) { close(o.over) }

// PublishBatch implements outbox.Publisher.
func (p *relayProcess) PublishBatch(ctx context.Context, messages []*reprise.Message) error {
	if p.struck("before") {
		return errDead
	}
	p.o.alone(p)
	all := p.o.leaving(messages)
	if p.takes("cancel") && all[0].x != nil {
		p.o.cancel(p, all[0].x)
	}
	err := p.client.PublishBatch(ctx, messages)
	p.o.left(all, err)
	p.mu.Lock()
	p.publishing = false
	p.mu.Unlock()
	p.struck("after")
	return err
}

// struck kills the process if an act has requested it, and reports whether the process was killed.
func (p *relayProcess) struck(when string) bool {
	if p.takes(when) {
		p.o.kill(p, oneOf(source(p.name+when, 0), time.Second, time.Minute))
	}
	return p.isKilled()
}

// takes reports whether an act has requested a strike, and ends the request.
func (p *relayProcess) takes(strike string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.strike != strike {
		return false
	}
	p.strike = ""
	return true
}

// occurrence is the function BeforeInsert. It sets the contents of an occurrence of a periodic message.
func (o *outboxes) occurrence(_ context.Context, m *reprise.Message) error {
	name, at, found := parseOccurrence(m.MessageID)
	if !found {
		return nil
	}
	for _, e := range o.Periodic {
		if e.Name == name {
			s := o.occurs(e, m.MessageID, at)
			w := o.l.work(e.Work)
			m.Headers, m.Body, m.RoutingKey = s.m.Headers, s.m.Body, findDesign(w.Design).Build(w).routingKey(s.m)
			return nil
		}
	}
	return fmt.Errorf("simulation: unknown entry %q", name)
}

// parseOccurrence returns the parts of the id of an occurrence.
func parseOccurrence(id string) (name string, at time.Time, found bool) {
	rest, found := strings.CutPrefix(id, "cron:default/")
	name, text, _ := strings.Cut(rest, "/")
	at, err := time.Parse(time.RFC3339, text)
	return name, at, found && err == nil
}
