package ordered_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/ordered"
)

// content is a message in a queue of the model.
type content struct {
	record      ordered.Record // in the held queue
	key         string
	number      int // of the message within its key
	attempts    int // failed attempts
	redelivered bool
	deliveries  int
}

// process is a subscription of a process.
type process struct {
	name         string
	machine      *ordered.Partition
	held, part   *channel
	starts, runs []*ordered.Entry
	parks        []ordered.Park
	draining     bool
	stopped      bool // has closed its channels
}

// progress is the observed order of a key.
type progress struct {
	epoch     int64       // of the last attempt
	last      int         // message of the last attempt
	highest   int         // message that has begun
	done      map[int]int // number of the last completion
	parked    map[int]bool
	failed    map[int]int // number of failed attempts
	begun     map[int]int // number of attempts that have begun or were about to begin
	published int
	starts    map[string][]time.Time // of the attempts of each process
}

// asked is a request of an operator.
type asked struct {
	act       ordered.Act
	limit     int
	published int          // messages of the key at the time of the request
	parked    map[int]bool // by the request
}

type model struct {
	t           *rapid.T
	now         time.Time
	held, part  *queue
	processes   []*process
	limbo       []*channel // closed channels whose publications may still reach the queue
	keys        map[string]*progress
	names       []string
	faults      int
	completions int
	subscribed  int
	requests    map[string]*asked
	cfg         ordered.Config
	operated    bool // operators request acts
	blocked     bool // the broker blocks publishers
	quiet       bool // no more faults, and all attempts succeed
	trace       []string
}

func (m *model) note(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf(format, args...))
}

func (m *model) fatalf(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(m.trace, "\n"))
}

func (x content) String() string {
	s := fmt.Sprintf("%s%d", x.key, x.number)
	if r := x.record; r.Kind != "" {
		s += fmt.Sprintf("[%s of %s %s e%d seq %v v%d]", r.Kind, r.Owner, r.Key, r.Epoch, r.Seq, r.Version)
	}
	if x.redelivered {
		s += "r"
	}
	return s
}

func (m *model) subscribe() {
	m.subscribed++
	cfg := m.cfg
	cfg.Owner = fmt.Sprint("process ", m.subscribed)
	p := &process{name: cfg.Owner, machine: ordered.New(cfg), held: &channel{queue: m.held, open: true}}
	m.processes = append(m.processes, p)
	m.held.consumers = append(m.held.consumers, p.held)
	m.held.dispatch()
	p.held.pubs = append(p.held.pubs, content{record: ordered.Record{Kind: ordered.Join, Owner: cfg.Owner}})
}

// stop removes a process. Its publications may still reach the queue.
func (m *model) stop(p *process) {
	if p.stopped {
		return
	}
	p.stopped = true
	m.note("%s: stops", p.name)
	m.processes = slices.DeleteFunc(m.processes, func(x *process) bool { return x == p })
	if p.part != nil {
		p.part.close()
	}
	m.limbo = append(m.limbo, p.held)
	p.held.close()
}

// act carries out the actions of a process.
func (m *model) act(p *process) {
	for _, action := range p.machine.Actions() {
		m.note("%s: %T%+v", p.name, action, action)
		switch a := action.(type) {
		case ordered.AckHeld:
			m.send(p.held, settlement{tag: a.Tag})
		case ordered.RequeueHeld:
			m.send(p.held, settlement{tag: a.Tag, requeue: true})
		case ordered.AckPartition:
			m.send(p.part, settlement{tag: a.Tag})
		case ordered.Publish:
			x := content{record: a.Record}
			if a.Record.Kind == ordered.Copy {
				x = a.Message.(content)
				x.record, x.redelivered, x.deliveries = a.Record, false, 0
			}
			p.held.pubs = append(p.held.pubs, x)
		case ordered.Consume:
			p.part = &channel{queue: m.part, open: true}
			m.part.consumers = append(m.part.consumers, p.part)
			m.part.dispatch()
		case ordered.Start:
			p.starts = append(p.starts, a.Entry)
		case ordered.Permit:
			if a.Permission == ordered.Granted {
				m.begun(p, a.Entry)
			}
		case ordered.Park:
			p.parks = append(p.parks, a)
		case ordered.Resign:
			for range min(len(p.held.acks), 33) { // RabbitMQ applies at least 33 acks before it closes a channel
				p.held.ack()
			}
			m.stop(p)
		}
	}
}

func (m *model) send(c *channel, s settlement) {
	if s.tag == 0 || s.tag > c.last {
		m.fatalf("settlement of unknown delivery %d", s.tag)
	}
	c.acks = append(c.acks, s)
}

// begin starts an attempt. Handlers are fenced: after an attempt of a later epoch, an attempt has no effect.
func (m *model) begin(p *process, e *ordered.Entry) {
	permission := p.machine.Begin(m.now, e)
	if permission != ordered.Denied {
		x := e.Message.(content)
		m.keys[x.key].begun[x.number]++ // a process may be killed after the start was counted and before it begins
	}
	if permission == ordered.Granted {
		m.begun(p, e)
	}
	m.act(p)
}

func (m *model) begun(p *process, e *ordered.Entry) {
	p.runs = append(p.runs, e)
	x, epoch := e.Message.(content), p.machine.Epoch()
	m.note("%s: begins %v in epoch %d", p.name, x, epoch)
	k := m.keys[x.key]
	m.checkRate(k, p)
	if epoch < k.epoch {
		return
	}
	switch {
	case x.number > k.highest:
		m.checkOrder(k, x)
		k.highest = x.number
	case m.faults == 0 && (x.number < k.highest || k.done[x.number] > 0):
		m.fatalf("%s: message %d begins again after %d without a fault", x.key, x.number, k.highest)
	}
	if m.faults == 0 && x.attempts != k.failed[x.number] {
		m.fatalf("%s: message %d records %d failed attempts, want %d", x.key, x.number, x.attempts, k.failed[x.number])
	}
	k.epoch, k.last = epoch, x.number
}

// checkOrder checks that all messages before x are done, and that the last completions of these messages have the right order:
// if a key has repeated a message, it has also repeated all later messages.
func (m *model) checkOrder(k *progress, x content) {
	before := 0
	for n := 1; n < x.number; n++ {
		switch at := k.done[n]; {
		case k.parked[n]:
		case at == 0:
			m.fatalf("%s: message %d begins before %d is done", x.key, x.number, n)
		case at < before:
			m.fatalf("%s: message %d begins, but %d was not repeated after an earlier message", x.key, x.number, n)
		default:
			before = at
		}
	}
}

func (m *model) finish(p *process, e *ordered.Entry, choice int) {
	p.runs = slices.DeleteFunc(p.runs, func(x *ordered.Entry) bool { return x == e })
	x := e.Message.(content)
	k := m.keys[x.key]
	fenced := p.machine.Epoch() < k.epoch
	r := ordered.Result{}
	switch {
	case fenced || choice == 0 && !m.quiet:
		x.attempts++
		k.failed[x.number]++
		r = ordered.Result{Retry: true, Due: m.now.Add(time.Duration(choice%3) * 3 * time.Second), Message: x}
	case choice == 1 && p.draining:
		r.Abandoned = true
	default:
		m.completions++
		k.done[x.number] = m.completions
	}
	m.note("%s: finishes %v with %v", p.name, x, r)
	p.machine.Finished(m.now, e, r)
	m.act(p)
}

func (m *model) parked(p *process, a ordered.Park) {
	p.parks = p.parks[1:]
	x := a.Entry.Message.(content)
	k := m.keys[x.key]
	if r := m.requests[a.By]; r != nil {
		if k.done[x.number] == 0 && !k.parked[x.number] { // otherwise a crash has returned the message
			r.parked[x.number] = true
		}
		if x.number > r.published || r.act == ordered.RetryFirst || r.limit > 0 && len(r.parked) > r.limit {
			m.fatalf("%s: %s by %s parks %d, has parked %v of %d, limit %d", x.key, r.act, a.By, x.number, r.parked, r.published, r.limit)
		}
	}
	if a.Crashes > k.begun[x.number] {
		m.fatalf("%s: message %d is parked after %d crashes, but has begun %d times", x.key, x.number, a.Crashes, k.begun[x.number])
	}
	if full := a.By == "" && a.Crashes == 0 && a.Refused == nil; full && m.cfg.Rate.Every > 0 && len(k.failed) == 0 {
		m.fatalf("%s: message %d is parked, but no message has failed", x.key, x.number)
	}
	k.parked[x.number] = true
	p.machine.Finished(m.now, a.Entry, ordered.Result{})
	m.act(p)
}

// request publishes a request of an operator.
func (m *model) request(name string, act ordered.Act, limit int) {
	by := fmt.Sprint("operator ", len(m.requests)+1)
	m.requests[by] = &asked{act: act, limit: limit, published: m.keys[name].published, parked: map[int]bool{}}
	m.note("%s requests %s of %s, limit %d", by, act, name, limit)
	r := ordered.Record{Kind: ordered.Request, Owner: by, By: by, Key: name, Act: act}
	if act == ordered.ParkAll {
		r.Limit = int64(limit)
	}
	m.held.enqueue(content{record: r})
}

func (m *model) receive(p *process, c *channel) {
	m.note("%s: receives %v, held %v", p.name, c.incoming[0], c == p.held)
	d := c.incoming[0]
	c.incoming = c.incoming[1:]
	x := d.Message.(content)
	if c == p.held {
		p.machine.Held(m.now, d, x.record)
	} else {
		p.machine.Received(m.now, d, x.key)
	}
	m.act(p)
}

func (m *model) advance(d time.Duration) {
	m.now = m.now.Add(d)
	for _, p := range slices.Clone(m.processes) {
		if at := p.machine.Wake(m.now.Add(-d)); !at.IsZero() && !at.After(m.now) {
			p.machine.Tick(m.now, m.blocked)
			m.act(p)
		}
	}
}

// store stores one of the publications of a process, in any order, as if the process published on several channels.
func (m *model) store(c *channel) {
	i := rapid.IntRange(0, len(c.pubs)-1).Draw(m.t, "publication")
	x := c.pubs[i]
	c.pubs = slices.Delete(c.pubs, i, i+1)
	m.held.enqueue(x)
}

// refuse refuses the oldest publication of a process, as a queue that is full.
func (m *model) refuse(p *process) {
	x := p.held.pubs[0]
	m.note("%s: %v is refused", p.name, x)
	p.held.pubs = p.held.pubs[1:]
	if x.record.Kind != ordered.Copy {
		m.faults++
	}
	if !p.machine.Refused(m.now, x.record, errors.New("full")) {
		m.stop(p)
		return
	}
	m.act(p)
}

func (m *model) publish(name string) {
	k := m.keys[name]
	k.published++
	m.part.enqueue(content{key: name, number: k.published})
}

// events returns the possible events. Faults are less frequent than the others.
func (m *model) events() (all, faults []func()) {
	add := func(f func()) { all = append(all, f) }
	fault := func(f func()) { faults = append(faults, func() { m.faults++; f() }) }
	for _, p := range m.processes {
		for _, c := range []*channel{p.held, p.part} {
			if c == nil {
				continue
			}
			if len(c.incoming) > 0 {
				add(func() { m.receive(p, c) })
			}
			if len(c.acks) > 0 && c.open {
				add(c.ack)
			}
			if len(c.pubs) > 0 && c.open && !m.blocked {
				add(func() { m.store(c) })
				faults = append(faults, func() { m.refuse(p) })
			}
			if c.open {
				fault(c.close)
				fault(c.demote)
			} else {
				add(func() { m.stop(p) }) // notices
			}
		}
		for i, e := range p.starts {
			add(func() { p.starts = slices.Delete(p.starts, i, i+1); m.begin(p, e) })
			if p.draining {
				add(func() { p.starts = slices.Delete(p.starts, i, i+1); p.machine.Abandon(e) })
			}
		}
		for _, e := range p.runs {
			add(func() { m.finish(p, e, rapid.IntRange(0, 5).Draw(m.t, "result")) })
		}
		if len(p.parks) > 0 {
			add(func() { m.parked(p, p.parks[0]) })
		}
		switch {
		case p.draining && p.machine.Idle():
			add(func() { m.stop(p) })
		case !p.draining && !m.quiet:
			faults = append(faults, func() { m.faults++; p.draining = true; p.machine.Drain(); m.act(p) })
		}
		fault(func() { m.stop(p) }) // killed
	}
	if !m.quiet {
		faults = append(faults, func() { m.blocked = !m.blocked; m.note("publishers blocked: %v", m.blocked) })
	}
	for _, c := range m.limbo {
		if len(c.pubs) > 0 {
			fault(func() { m.store(c) })
			fault(func() { c.pubs = nil })
		}
	}
	return all, faults
}

func (m *model) run(steps int) {
	for range steps {
		all, faults := m.events()
		switch n := rapid.IntRange(0, 99).Draw(m.t, "event"); {
		case n < 5:
			m.advance(time.Duration(rapid.IntRange(1, 5000).Draw(m.t, "ms")) * time.Millisecond)
		case n < 10 && len(m.processes) < 3:
			m.subscribe()
		case n < 18:
			m.publish(rapid.SampledFrom(m.names).Draw(m.t, "key"))
		case n > 97 && m.operated:
			acts := []ordered.Act{ordered.RetryFirst, ordered.ParkFirst, ordered.ParkAll}
			act, limit := rapid.SampledFrom(acts).Draw(m.t, "act"), 1
			if act == ordered.ParkAll {
				limit = rapid.IntRange(0, 3).Draw(m.t, "limit")
			}
			m.request(rapid.SampledFrom(m.names).Draw(m.t, "key"), act, limit)
		case n < 22 && len(faults) > 0:
			faults[rapid.IntRange(0, len(faults)-1).Draw(m.t, "fault")]()
		case len(all) > 0:
			all[rapid.IntRange(0, len(all)-1).Draw(m.t, "step")]()
		}
	}
}

// settle runs without faults until all messages are done.
func (m *model) settle() {
	m.quiet, m.blocked = true, false
	for range 20000 {
		if len(m.processes) == 0 {
			m.subscribe()
		}
		all, _ := m.events()
		if len(all) > 0 {
			all[0]()
			continue
		}
		if m.complete() {
			return
		}
		m.advance(time.Second)
	}
	m.fatalf("messages are not done: %v", m.describe())
}

// complete reports whether the queues contain no messages except claims and markers.
func (m *model) complete() bool {
	isCopy := func(x content) bool {
		return slices.Contains([]ordered.Kind{ordered.Copy, ordered.Done, ordered.Request}, x.record.Kind)
	}
	copies := slices.ContainsFunc(m.held.ready, isCopy)
	for _, c := range m.held.consumers {
		copies = copies || slices.ContainsFunc(c.unacked, isCopy)
	}
	for _, c := range m.part.consumers {
		copies = copies || len(c.unacked) > 0
	}
	return !copies && len(m.part.ready) == 0
}

func (m *model) describe() (text string) {
	for _, name := range m.names {
		k := m.keys[name]
		text += fmt.Sprintf("%s: last %d of %d, done %v, parked %v; ", name, k.last, k.published, k.done, k.parked)
	}
	return text
}

// TestModel checks the promises with random events: a key never skips a message, repeats only after a fault, and each
// message is done.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { live(t, func(*ordered.Config) {}) })
}

// live plays a random life.
func live(t *rapid.T, configure func(*ordered.Config)) {
	m := &model{
		t: t, now: time.UnixMilli(1_000_000), held: &queue{}, part: &queue{}, names: []string{"a", "b"},
		keys: map[string]*progress{}, requests: map[string]*asked{},
		cfg: ordered.Config{
			Lease: 10 * time.Second, Patience: time.Minute, CrashLimit: 3,
			MaxHeld: rapid.IntRange(2, 8).Draw(t, "MaxHeld"), MaxBytes: 1000,
			OnFull: ordered.Full(rapid.IntRange(0, 1).Draw(t, "OnFull")),
		},
	}
	configure(&m.cfg)
	m.held.m, m.part.m = m, m
	for _, name := range m.names {
		m.keys[name] = &progress{done: map[int]int{}, parked: map[int]bool{}, failed: map[int]int{}, begun: map[int]int{}, starts: map[string][]time.Time{}}
	}
	m.operated = rapid.Bool().Draw(t, "operated")
	m.subscribe()
	m.run(rapid.IntRange(20, 400).Draw(t, "steps"))
	m.settle()
	for name, k := range m.keys {
		m.checkOrder(k, content{key: name, number: k.published + 1})
	}
}
