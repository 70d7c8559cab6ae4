package consume

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// lanesModel plays random lives of lanes: deliveries arrive, attempts start and end.
type lanesModel struct {
	t        *testing.T
	lanes    lanes
	pending  pending
	slots    int
	running  []*Delivery
	inLane   []int
	arrived  int
	skipped  []int // starts of other lanes since the lane had pending deliveries and no running attempt
	handled  map[*Delivery]bool
	expected map[int][]*Delivery // order of arrival, by lane
}

func (m *lanesModel) arrive(lane int) {
	d := &Delivery{lane: int32(lane)}
	m.pending.add(d)
	m.arrived++
	m.expected[lane] = append(m.expected[lane], d)
}

func (m *lanesModel) start() {
	lane, i := m.lanes.next(m.pending.lanes, func(all []*Delivery) int { return min(len(all), 1) - 1 })
	if i < 0 {
		if m.pending.n > 0 {
			m.t.Fatalf("no lane starts, and %d deliveries are pending", m.pending.n)
		}
		return
	}
	for other := range m.inLane {
		if waits := len(m.pending.lanes[other]) > 0; waits && m.inLane[other] < m.inLane[lane] {
			m.t.Fatalf("lane %d starts with %d running attempts, and lane %d has %d", lane, m.inLane[lane], other, m.inLane[other])
		} else if waits && other != lane && m.inLane[other] == 0 {
			if m.skipped[other]++; m.skipped[other] >= len(m.inLane) {
				m.t.Fatalf("lane %d waits while %d other attempts start", other, m.skipped[other])
			}
		}
	}
	m.skipped[lane] = 0
	d := m.pending.lanes[lane][i]
	if d != m.expected[lane][0] {
		m.t.Fatalf("lane %d does not start its oldest delivery", lane)
	}
	m.expected[lane] = m.expected[lane][1:]
	m.pending.remove(d, i)
	m.lanes.begin(d)
	m.inLane[lane]++
	m.running = append(m.running, d)
	m.handled[d] = true
}

func (m *lanesModel) end(i int) {
	d := m.running[i]
	m.running = slices.Delete(m.running, i, i+1)
	m.inLane[d.lane]--
	m.lanes.end(d)
}

// The lane with the fewest running attempts starts the next attempt. A lane without running attempts waits for at most one
// start of each other lane. No delivery is lost.
func TestLanesStartFairly(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		n := 1 + random.IntN(9)
		m := &lanesModel{
			t: t, lanes: newLanes(make([]string, n)), slots: 1 + random.IntN(12), inLane: make([]int, n), skipped: make([]int, n),
			handled: map[*Delivery]bool{}, expected: map[int][]*Delivery{},
		}
		m.pending.lanes = make([][]*Delivery, n)
		for range 500 {
			switch random.IntN(4) {
			case 0:
				m.arrive(random.IntN(n))
			case 1:
				m.arrive(0) // a burst
			case 2:
				if len(m.running) > 0 {
					m.end(random.IntN(len(m.running)))
				}
			default:
				if len(m.running) < m.slots {
					m.start()
				}
			}
		}
		for m.pending.n+len(m.running) > 0 {
			if len(m.running) == m.slots || m.pending.n == 0 {
				m.end(0)
			} else {
				m.start()
			}
		}
		if len(m.handled) != m.arrived {
			t.Fatalf("seed %d: got %d of %d deliveries", seed, len(m.handled), m.arrived)
		}
	}
}

func TestPendingRemoves(t *testing.T) {
	p := pending{lanes: make([][]*Delivery, 2)}
	var all []*Delivery
	for i := range 6 {
		all = append(all, &Delivery{lane: int32(i % 2)})
	}
	p.add(all...)
	p.remove(all[3], 1)
	if n := p.deleteFunc(func(d *Delivery) bool { return d == all[0] }); n != 1 || p.n != 4 {
		t.Errorf("got %d deleted and %d left, want 1 and 4", n, p.n)
	}
	want := []*Delivery{all[2], all[4], all[1], all[5]}
	if got := p.take(); !slices.Equal(got, want) || p.n != 0 {
		t.Errorf("got %v, want %v", got, want)
	}
}
