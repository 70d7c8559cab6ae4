package consume

import "time"

// bursts collects equal messages. The first message waits until its window ends, and equal messages that arrive within
// the window join it. Then the newest message is handled on behalf of all. A bursts is not safe for concurrent use.
//
// The newest message is settled last, because it represents the others. Whenever the channel is lost, the broker
// redelivers at least this message.
type bursts struct {
	window time.Duration
	open   []*burst // ordered by the end of their windows
	byKey  map[string]*burst
	timer  *time.Timer
}

type burst struct {
	key    string
	ends   time.Time
	newest *Delivery // the session settles it last
	others []*Delivery
}

// add adds a delivery to the burst of its key.
func (b *bursts) add(key string, d *Delivery) {
	if same := b.byKey[key]; same != nil {
		same.others = append(same.others, same.newest)
		same.newest = d
		return
	}
	if b.byKey == nil {
		b.byKey = map[string]*burst{}
	}
	x := &burst{key: key, ends: time.Now().Add(b.window), newest: d}
	b.byKey[key] = x
	if b.open = append(b.open, x); len(b.open) == 1 {
		b.schedule()
	}
}

// due returns a channel that receives the time when the window of the first burst ends, or nil if there is no burst.
func (b *bursts) due() <-chan time.Time {
	if b.timer == nil {
		return nil
	}
	return b.timer.C
}

func (b *bursts) schedule() {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	if len(b.open) > 0 {
		b.timer = time.NewTimer(time.Until(b.open[0].ends))
	}
}

// pop removes the bursts with expired windows, and returns the newest delivery of each.
func (b *bursts) pop(now time.Time) (due []*Delivery) {
	for len(b.open) > 0 && !b.open[0].ends.After(now) {
		due = append(due, b.open[0].close())
		delete(b.byKey, b.open[0].key)
		b.open = b.open[1:]
	}
	b.schedule()
	return due
}

// all removes all bursts, and returns the newest delivery of each.
func (b *bursts) all() (all []*Delivery) {
	for _, x := range b.open {
		all = append(all, x.close())
	}
	b.open, b.byKey = nil, nil
	b.schedule()
	return all
}

func (b *burst) close() *Delivery {
	d := b.newest
	d.gathered = true
	if d.Burst = b.others; len(d.Burst) > 0 {
		d.arrived, d.inTime = d.Burst[0].arrived, d.Burst[0].inTime // the acknowledgement timeout of the oldest delivery applies
	}
	return d
}
