package limit

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// fleet simulates the processes that share a limit, their connections and the queue of requests.
type fleet struct {
	random *rand.Rand
	limit  float64
	whole  bool
	rough  bool // processes stop and lose connections, and messages are delayed and lost
	now    time.Time
	events events
	number int
	all    []*process
	queue  []queued   // requests that wait for an active consumer
	active []*process // consumers of the queue, in the order of their subscriptions

	enqueued map[string]time.Time // earliest arrival of the next message of a channel, which keeps the order
	blocked  bool

	worst   float64     // the largest sum of shares, or of running attempts
	started []time.Time // attempts, if not whole
}

type process struct {
	id      string
	born    time.Time
	member  member
	leader  *leader
	dead    bool
	leaves  bool
	linked  int       // number of the connection; 0: none
	stalled time.Time // processes nothing before this time
	demand  float64
	running []time.Time // ends of the attempts, if whole
}

type queued struct {
	request
	at time.Time
}

type event struct {
	at    time.Time
	order int
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

func (f *fleet) after(d time.Duration, do func()) {
	f.number++
	heap.Push(&f.events, event{f.now.Add(d), f.number, do})
}

// on runs a function on a process, when the process is not stalled.
func (f *fleet) on(p *process, d time.Duration, do func()) {
	f.after(d, func() {
		switch {
		case p.dead:
		case f.now.Before(p.stalled):
			f.on(p, p.stalled.Sub(f.now), do)
		default:
			do()
		}
	})
}

// delay returns the delay of the next message of a channel, or false if it is lost.
func (f *fleet) delay(channel string) (time.Duration, bool) {
	d := time.Duration(1+f.random.IntN(20)) * time.Millisecond
	if f.rough {
		switch f.random.IntN(40) {
		case 0:
			return 0, false
		case 1:
			d = time.Duration(f.random.IntN(5000)) * time.Millisecond
		}
	}
	at := f.now.Add(d)
	if earliest := f.enqueued[channel]; at.Before(earliest) {
		at = earliest
	}
	f.enqueued[channel] = at
	return at.Sub(f.now), true
}

func (p *process) clock(now time.Time) time.Duration { return now.Sub(p.born) }

// join starts a process.
func (f *fleet) join() {
	p := &process{id: fmt.Sprintf("p%d", len(f.all)), born: f.now}
	p.member = member{whole: f.whole, limit: f.limit, sent: -1}
	f.all = append(f.all, p)
	f.connect(p)
	f.beat(p)
}

func (f *fleet) connect(p *process) {
	f.number++
	p.linked = f.number
	cfg := Config{Rate: f.limit, Per: time.Second}
	if f.whole {
		cfg = Config{Concurrency: int(f.limit)}
	}
	// The broker notices a lost connection before the process does, and the process may then use its share for another lease. This
	// exception is documented, so the model avoids it.
	unaware := slices.ContainsFunc(f.all, func(other *process) bool { return other != p && !other.dead && other.linked > 0 })
	p.leader = newLeader(cfg, p.id, len(f.active) == 0 && !unaware, f.now)
	f.active = append(f.active, p)
	f.request(p)
	f.deliver()
}

// disconnect removes the consumer at once, and tells the process later.
func (f *fleet) disconnect(p *process, notice time.Duration) {
	for i, other := range f.active {
		if other == p {
			f.active = append(f.active[:i:i], f.active[i+1:]...)
			break
		}
	}
	linked := p.linked
	f.on(p, notice, func() {
		if p.linked == linked {
			p.member.share, p.member.sent, p.linked = 0, -1, 0
			f.on(p, time.Duration(f.random.IntN(2000))*time.Millisecond, func() { f.connect(p) })
		}
	})
	f.deliver()
}

func (f *fleet) beat(p *process) {
	f.on(p, beat, func() {
		if p.linked > 0 {
			f.send(p)
		}
		f.beat(p)
	})
}

// send sends the request of a process.
func (f *fleet) send(p *process) {
	if f.blocked {
		p.member.blocked(p.clock(f.now))
		return
	}
	p.leader.beat(f.now)
	f.request(p)
}

func (f *fleet) request(p *process) {
	p.member.waiting = 0
	if p.demand > 0 {
		p.member.waiting = int(p.demand) + 1
	}
	r := p.member.request(p.clock(f.now), p.id)
	r.Leaves = p.leaves
	if d, ok := f.delay("to " + p.id); ok {
		f.after(d, func() {
			f.queue = append(f.queue, queued{r, f.now})
			f.deliver()
		})
	}
}

// deliver passes the queued requests to the active consumer.
func (f *fleet) deliver() {
	if len(f.active) == 0 {
		return
	}
	p := f.active[0]
	linked := p.linked
	for _, q := range f.queue {
		if f.now.Sub(q.at) > lease {
			continue
		}
		d, ok := f.delay("from " + p.id)
		if !ok {
			continue
		}
		f.on(p, d, func() {
			if p.linked == linked {
				f.divide(p, q.request)
			}
		})
	}
	f.queue = nil
}

func (f *fleet) divide(p *process, r request) {
	if r.Member == p.id {
		p.leader.own = p.born.Add(r.Sent)
	}
	for _, reply := range p.leader.answer(f.now, r) {
		f.answer(reply)
	}
}

func (f *fleet) answer(r reply) {
	for _, to := range f.all {
		if to.id != r.member || to.dead {
			continue
		}
		linked := to.linked
		if d, ok := f.delay("answer " + to.id); ok {
			f.on(to, d, func() {
				if to.linked == linked && linked != 0 && to.member.receive(to.clock(f.now), r.answer) {
					f.send(to)
				}
			})
		}
	}
}

// use lets each process use its share, and notes the sum.
func (f *fleet) use() {
	sum := 0.0
	for _, p := range f.all {
		if p.dead {
			continue
		}
		now := p.clock(f.now)
		if f.whole {
			for len(p.running) > 0 && !f.now.Before(p.running[0]) {
				p.running = p.running[1:]
				over := float64(p.member.running) > p.member.current(now)
				p.member.running--
				if over && p.linked > 0 {
					f.send(p)
				}
			}
			for float64(len(p.running)) < p.demand && !f.now.Before(p.stalled) {
				if taken, _ := p.member.take(now); !taken {
					break
				}
				p.running = append(p.running, f.now.Add(time.Second))
			}
			sum += float64(len(p.running))
		} else {
			sum += p.member.current(now)
			for p.demand > 0 && !f.now.Before(p.stalled) {
				if taken, _ := p.member.take(now); !taken {
					break
				}
				f.started = append(f.started, f.now)
			}
		}
	}
	f.worst = max(f.worst, sum)
}

const step = 50 * time.Millisecond

func (f *fleet) run(d time.Duration) {
	end := f.now.Add(d)
	for f.now.Before(end) {
		next := f.now.Add(step)
		for len(f.events) > 0 && !f.events[0].at.After(next) {
			e := heap.Pop(&f.events).(event)
			f.now = e.at
			e.do()
		}
		f.now = next
		f.use()
	}
}

func (f *fleet) living() (all []*process) {
	for _, p := range f.all {
		if !p.dead {
			all = append(all, p)
		}
	}
	return all
}

// disturb does something to a random process.
func (f *fleet) disturb() {
	living := f.living()
	if len(living) == 0 {
		f.join()
		return
	}
	p := living[f.random.IntN(len(living))]
	switch f.random.IntN(8) {
	case 0, 1:
		if len(living) < 8 {
			f.join()
		}
	case 2:
		if f.random.IntN(2) == 0 && p.linked > 0 {
			p.leaves, p.member.share, p.demand = true, 0, 0
			f.request(p)
		}
		p.dead = true
		f.disconnect(p, 0)
	case 3:
		if f.rough {
			p.stalled = f.now.Add(time.Duration(f.random.IntN(15000)) * time.Millisecond)
		}
	case 4:
		if f.rough {
			f.disconnect(p, time.Duration(f.random.IntN(8000))*time.Millisecond)
		}
	case 5:
		f.blocked = f.rough && !f.blocked
	default:
		p.demand = float64(f.random.IntN(3)) * f.limit / 2
	}
}

func newFleet(seed uint64, limit float64, whole bool) *fleet {
	return &fleet{
		random: rand.New(rand.NewPCG(seed, 1)), limit: limit, whole: whole, now: time.Unix(1_000_000, 0), enqueued: map[string]time.Time{},
	}
}

// The sum of all shares never exceeds the limit, while processes come, go, stop and lose their connections.
func TestSharesNeverExceedLimit(t *testing.T) {
	for seed := range uint64(400) {
		whole := seed%2 == 1
		f := newFleet(seed, float64(1+seed%7), whole)
		f.rough = seed%4 >= 2
		for range 1 + f.random.IntN(5) {
			f.join()
		}
		for range 60 {
			f.disturb()
			f.run(time.Duration(f.random.IntN(5000)) * time.Millisecond)
		}
		if f.worst > f.limit+rounding {
			t.Errorf("seed %d (whole %t, rough %t): the sum of the shares is %v, want at most %v", seed, whole, f.rough, f.worst, f.limit)
		}
		for _, window := range []time.Duration{time.Second, 10 * time.Second} {
			if n, most := mostIn(f.started, window), f.limit*(window+step).Seconds()+float64(len(f.all)); float64(n) > most {
				t.Errorf("seed %d (rough %t): %d attempts started in %v, want at most %v", seed, f.rough, n, window, most)
			}
		}
	}
}

// mostIn returns the largest number of times in a window.
func mostIn(times []time.Time, window time.Duration) (most int) {
	first := 0
	for i, at := range times {
		for at.Sub(times[first]) > window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// Without disturbances, all permits are used, and divided fairly.
func TestSharesAreFair(t *testing.T) {
	for _, tc := range []struct {
		limit   float64
		whole   bool
		demands []float64
		want    []float64
	}{
		{100, false, []float64{100}, []float64{100}},
		{100, false, []float64{100, 100, 100, 100}, []float64{25, 25, 25, 25}},
		{100, false, []float64{100, 0}, []float64{100, 0}},
		{7, true, []float64{7, 7}, []float64{3.5, 3.5}},
		{2, true, []float64{2, 2, 2}, []float64{2. / 3, 2. / 3, 2. / 3}},
	} {
		f := newFleet(1, tc.limit, tc.whole)
		for _, d := range tc.demands {
			f.join()
			f.all[len(f.all)-1].demand = d
		}
		f.run(time.Minute)
		sums := make([]float64, len(tc.demands))
		const n = 6000
		for range n {
			f.run(step)
			for i, p := range f.all {
				if tc.whole {
					sums[i] += float64(len(p.running)) / n
				} else {
					sums[i] += p.member.current(p.clock(f.now)) / n
				}
			}
		}
		for i := range sums {
			if math.Abs(sums[i]-tc.want[i]) > 0.15*tc.want[i]+rounding {
				t.Errorf("limit %v, demands %v: got shares %.2f, want about %v", tc.limit, tc.demands, sums, tc.want)
				break
			}
		}
	}
}
