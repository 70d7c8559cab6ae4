package ordered

import (
	"container/heap"
	"maps"
	"slices"
	"time"
)

// key is a key with messages. First come the messages with copies in the held queue, then the messages that are only in
// the partition.
type key struct {
	name       string
	entries    []*Entry
	requests   []request // not yet stored
	publishing bool      // a record of the key is outstanding
	parks      bool      // the followers are parked, because an earlier follower was parked
	stalled    bool      // is in Partition.stalled
	crowded    bool      // is in Partition.crowded
	wakes      time.Time // of its newest timer; zero: none
}

// Entry is a message that the owner has not settled.
type Entry struct {
	Message any // of the newest copy, or else of the partition

	key      *key
	size     int
	original uint64 // delivery of the partition; 0: acknowledged
	copy     uint64 // delivery of the held queue; 0: none
	seq      Seq
	version  int64
	state    state
	due      time.Time
	next     any // content of the next copy, until it is stored

	suspect bool  // each start must be counted in the held queue
	starts  int64 // as counted

	by    string // operator who parks this message and all earlier messages of the key; "": none
	first int    // position of the first copy, if it arrived before the marker
}

type state int

const (
	waiting   state = iota
	started         // the driver starts, runs or parks it
	counting        // its start must be counted before it begins
	failed          // must be copied before it waits
	done            // must be acknowledged
	abandoned       // stays unacknowledged
)

// advance performs the next steps of a key. A key does one thing at a time: a crash at any time leaves copies without a gap.
func (p *Partition) advance(now time.Time, k *key) {
	for p.phase != resigned && !k.publishing && len(k.entries) > 0 && !p.carryOut(now, k) {
		head := k.entries[0]
		switch head.state {
		case done:
			if !p.finish(now, k) {
				return
			}
			continue
		case failed:
			if head.copy == 0 && p.full(k) {
				p.overflow(k, head)
				return
			}
			p.copyFailed(now, head)
			return
		case waiting:
			p.start(now, k)
		}
		if k.publishing || head.copy == 0 && !p.yields(now, k) || !p.copyFollower(now, k) {
			return
		}
	}
	if len(k.entries) == 0 && p.keys[k.name] == k {
		for _, r := range k.requests { // of messages that are done
			p.ackHeld(r.tag)
		}
		delete(p.keys, k.name)
	}
}

// finish removes the first entry, which is done. It returns false if a Done record must return before.
func (p *Partition) finish(now time.Time, k *key) bool {
	head := k.entries[0]
	switch {
	case head.copy == 0:
		p.ackPartition(head.original)
	case len(k.entries) > 1 && k.entries[1].copy != 0:
		// The next message is settled on the same channel, so it cannot be settled without this one.
		p.ackHeld(head.copy)
		p.count(head, -1)
	default:
		k.publishing = true
		p.publish(now, Record{Kind: Done, Key: k.name, Seq: head.seq, Version: head.version + 1}, nil, head)
		return false
	}
	k.entries = k.entries[1:]
	p.makeRoom(now)
	return true
}

// stored records that a copy or a Done record has returned.
func (p *Partition) stored(now time.Time, k *key, e *Entry, d Delivery, r Record) {
	if e.copy != 0 {
		p.ackHeld(e.copy)
		p.count(e, -1)
	}
	if r.Kind == Done {
		p.ackHeld(d.Tag)
		k.entries, k.parks = k.entries[1:], false
		return
	}
	if e.original != 0 {
		p.ackPartition(e.original)
		e.original = 0
	}
	e.Message, e.size, e.copy, e.version = d.Message, d.Size, d.Tag, r.Version
	switch e.state {
	case waiting:
		e.next = nil
	case counting:
		p.permit(now, e)
	}
	p.count(e, 1)
}

// copy publishes a copy of an entry.
func (p *Partition) copy(now time.Time, e *Entry, message any) {
	if e.seq == (Seq{}) {
		p.number++
		e.seq = Seq{p.epoch, p.number}
	}
	e.key.publishing = true
	p.publish(now, Record{Kind: Copy, Key: e.key.name, Seq: e.seq, Version: e.version + 1, Due: e.due, Starts: e.starts, By: e.by}, message, e)
}

// copyFailed publishes the copy of an entry whose attempt has failed.
func (p *Partition) copyFailed(now time.Time, e *Entry) {
	e.state = waiting
	p.copy(now, e, e.next)
}

// copyFollower copies or parks the first entry without a copy behind a held entry. It returns true if the entry was removed.
func (p *Partition) copyFollower(now time.Time, k *key) bool {
	i := slices.IndexFunc(k.entries, func(e *Entry) bool { return e.copy == 0 })
	if i < 0 {
		return false
	}
	e := k.entries[i]
	switch {
	case e.state == done:
		p.ackPartition(e.original)
		k.entries = slices.Delete(k.entries, i, i+1)
		return true
	case e.state != waiting || p.phase != owning: // is being parked, or the next owner copies it
	case k.parks || p.full(k):
		p.overflow(k, e)
	default:
		p.copy(now, e, e.Message)
	}
	return false
}

// overflow parks an entry that there is no room for, or lets its key wait.
func (p *Partition) overflow(k *key, e *Entry) {
	switch {
	case p.phase != owning:
	case p.cfg.OnFull == ParkKey && (k.parks || !p.slowed(k)):
		k.parks = e != k.entries[0]
		p.park(e, Park{})
	case !k.crowded:
		k.crowded = true
		p.crowded = append(p.crowded, k)
	}
}

func (p *Partition) park(e *Entry, a Park) {
	e.state, a.Entry = started, e
	p.running++
	p.actions = append(p.actions, a)
}

// makeRoom lets keys continue that have waited for room.
func (p *Partition) makeRoom(now time.Time) {
	crowded := p.crowded
	p.crowded = nil
	for _, k := range crowded {
		k.crowded = false
		p.advance(now, k)
	}
}

// start starts the first entry of a key, or schedules the start.
func (p *Partition) start(now time.Time, k *key) {
	head, due := k.entries[0], p.due(k)
	switch {
	case p.phase != owning:
	case k.parkedBy() != "":
		p.park(head, Park{By: k.parkedBy()})
	case due.After(now):
		if k.wakes != due {
			k.wakes = due
			heap.Push(&p.timers, timer{due, k})
		}
	case !p.isProven(now):
		if !k.stalled {
			k.stalled = true
			p.stalled = append(p.stalled, k)
		}
		p.renew(now)
	case head.suspect && head.starts >= p.cfg.CrashLimit:
		p.park(head, Park{Crashes: int(head.starts)})
	default:
		head.state = started
		p.running++
		p.actions = append(p.actions, Start{head, int(head.starts)})
	}
}

// due returns the time from which the first entry of a key may start.
func (p *Partition) due(k *key) time.Time {
	if next := p.rates.next(k.name); next.After(k.entries[0].due) {
		return next
	}
	return k.entries[0].due
}

// slowed reports whether the messages of a key wait because of its rate, or may do so, and not behind a message that has failed.
func (p *Partition) slowed(k *key) bool { return p.cfg.Rate.Every > 0 && k.entries[0].due.IsZero() }

// yields reports whether the first entry waits for the rate of its key, and must leave the partition to other keys.
func (p *Partition) yields(now time.Time, k *key) bool {
	return k.entries[0].state == waiting && p.unacked >= p.cfg.Window && p.rates.next(k.name).After(now)
}

// permit answers a call of Begin whose count has returned, or was refused.
func (p *Partition) permit(now time.Time, e *Entry) {
	e.state = started
	permission := Granted
	if p.phase != owning {
		permission = Denied
		p.running--
		e.state = waiting
	} else {
		p.rates.take(now, e.key.name)
	}
	p.actions = append(p.actions, Permit{e, permission})
}

// copies are the copies of a key in the held queue.
type copies map[Seq]*loaded

// loaded contains the copies of one message.
type loaded struct {
	newest Record
	last   Delivery
	older  []uint64
	first  int // position of the first copy
}

func (c copies) add(d Delivery, r Record, at int) {
	l := c[r.Seq]
	switch {
	case l == nil:
		c[r.Seq] = &loaded{newest: r, last: d, first: at}
	case r.Version > l.newest.Version:
		l.older = append(l.older, l.last.Tag)
		l.newest, l.last = r, d
	default:
		l.older = append(l.older, d.Tag)
	}
}

// entries returns the messages in their order. It acks the copies that the newest copies replace, and then the copies that a Done
// record ends. A Done record also ends all previous copies of the key, because the broker may lose their acks although it stores
// the record. It is acked after them, so that they cannot return without it.
func (c copies) entries(ack func(tag uint64)) (all []*Entry) {
	seqs := slices.SortedFunc(maps.Keys(c), Seq.Compare)
	ended := -1
	for i, seq := range seqs {
		for _, tag := range c[seq].older {
			ack(tag)
		}
		if c[seq].newest.Kind == Done {
			ended = i
		}
	}
	for i, seq := range seqs {
		l := c[seq]
		if i <= ended {
			ack(l.last.Tag)
			continue
		}
		all = append(all, &Entry{
			Message: l.last.Message, size: l.last.Size, copy: l.last.Tag, seq: seq, version: l.newest.Version, due: l.newest.Due,
			suspect: l.last.Suspect || l.newest.Starts > 0, starts: l.newest.Starts, by: l.newest.By, first: l.first,
		})
	}
	return all
}

// timers is a heap of keys that wait. A key may have several timers. A timer without effect is harmless.
type timers []timer

type timer struct {
	due time.Time
	key *key
}

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].due.Before(t[j].due) }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }

// Push implements heap.Interface.
func (t *timers) Push(x any) { *t = append(*t, x.(timer)) }

// Pop implements heap.Interface.
func (t *timers) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}
