package ordered

import (
	"container/heap"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Reasons to resign.
var (
	errReplaced = errors.New("another process owned the partition in the meantime")
	errDrained  = errors.New("the process stops")
	errSilent   = errors.New("the held queue has not returned a message in time")
)

// Full is the behavior of a Partition whose held messages have reached the limit.
type Full int

const (
	// ParkKey parks messages that would have to be held.
	ParkKey Full = iota

	// PausePartition leaves messages that would have to be held in the partition. When its window is full, the owner receives
	// no other messages.
	PausePartition
)

// Config configures a Partition.
type Config struct {
	Owner    string        // identifies the subscription
	Lease    time.Duration // an attempt starts only if a message returned that was published at most this time ago
	Patience time.Duration // the owner resigns if a message does not return in this time
	MaxHeld  int           // maximum number of held messages; a few more are possible
	MaxBytes int           // maximum size of their bodies
	OnFull   Full
	Rate     Rate // of the attempts of each key

	// Window is the number of unacknowledged deliveries of the partition from which on keys that wait for their rate wait in the
	// held queue, so that the other keys receive messages.
	Window int

	CrashLimit int64 // number of attempts in a row that began and did not end, after which a message is parked
}

// Partition is the state of the owner of one partition, from the first delivery of the held queue on. It is not safe for
// concurrent use. Each method may add actions.
type Partition struct {
	cfg     Config
	epoch   int64
	phase   phase
	actions []Action

	arrived []arrival // until the claim has returned
	useless []uint64  // deliveries between the claim and the marker
	token   uint64    // delivery of the Proof; 0 while it is outstanding. A successor acknowledges it, and the marker.
	proven  time.Time // when the newest message that returned was published or requeued

	outstanding []outstanding // published or requeued, and not delivered back, oldest first
	excused     time.Time     // the broker blocked publishers at this time
	keys        map[string]*key
	timers      timers
	stalled     []*key // need a new proof before they start an attempt
	crowded     []*key // need room for a copy
	number      int64  // of the last Seq
	held, bytes int    // messages in the held queue, and their size
	running     int    // entries that the driver starts, runs or parks
	unacked     int    // deliveries of the partition
	rates       rates
}

type phase int

const (
	loading phase = iota // until the claim has returned
	claimed              // until the marker has returned
	owning
	draining // starts no attempts
	resigned
)

// outstanding is a record that was not delivered back.
type outstanding struct {
	record Record
	sent   time.Time
	entry  *Entry
}

// New returns a Partition without deliveries. The driver passes the first delivery of the held queue, too, to Held.
func New(cfg Config) *Partition {
	return &Partition{cfg: cfg, keys: map[string]*key{}, rates: rates{Rate: cfg.Rate}}
}

// Actions returns the actions since the last call.
func (p *Partition) Actions() []Action {
	all := p.actions
	p.actions = nil
	return all
}

// Epoch returns the epoch of the owner. It is higher than the epochs of all previous owners.
func (p *Partition) Epoch() int64 { return p.epoch }

// Idle reports whether the driver has finished all entries, and the held queue has returned all messages.
func (p *Partition) Idle() bool { return p.running == 0 && len(p.outstanding) == 0 }

// Held processes a delivery of the held queue.
func (p *Partition) Held(now time.Time, d Delivery, r Record) {
	own := r.Owner == p.cfg.Owner && r.Kind != Join
	switch {
	case p.phase == resigned:
	case p.phase == loading:
		p.load(now, d, r, own)
	case d.Redelivered && !(own && r.Kind == Proof):
		p.resign(errReplaced) // the broker delivers in order, so another consumer was active after the claim
	case r.Kind == Request && p.phase == claimed:
		p.arrived = append(p.arrived, arrival{d, r})
	case r.Kind == Request:
		p.request(now, d.Tag, r, math.MaxInt)
	case own:
		p.returned(now, d, r)
	case p.phase == claimed:
		p.useless = append(p.useless, d.Tag)
	default:
		// Another process published the message before this owner became active, and the broker stored it later. It never
		// delivered the message back, so the other process has not relied on it.
		p.ackHeld(d.Tag)
	}
}

// load processes a delivery until the claim has returned.
func (p *Partition) load(now time.Time, d Delivery, r Record, own bool) {
	if len(p.arrived) == 0 {
		p.publish(now, Record{Kind: Claim, Epoch: now.UnixMilli()}, nil, nil)
	}
	if (r.Kind == Claim || r.Kind == Copy || r.Kind == Done) && slices.ContainsFunc(p.arrived, func(a arrival) bool { return a.Record == r }) || own && d.Redelivered {
		p.resign(errReplaced)
		return
	}
	p.arrived = append(p.arrived, arrival{d, r})
	if r.Kind == Claim || r.Kind == Marker {
		p.epoch = max(p.epoch, r.Epoch+1)
	}
	if !own {
		return
	}
	p.remove(func(outstanding) bool { return true })
	if p.removeOwners() {
		p.resign(errReplaced)
		return
	}
	p.phase = claimed
	p.publish(now, Record{Kind: Marker}, nil, nil)
	p.publish(now, Record{Kind: Proof}, nil, nil)
}

// removeOwners acknowledges the markers of earlier owners, if there are markers of several owners. The last of these owners has
// acknowledged the markers of the others. Either these acks were lost, or this subscription was active, then the last owner,
// and then this subscription again. In that case, the copies that came before are obsolete, so it must load again.
func (p *Partition) removeOwners() bool {
	var last arrival
	several := false
	for _, a := range p.arrived {
		if a.Kind == Marker {
			several = several || last.Owner != "" && last.Owner != a.Owner
			if a.Epoch >= last.Epoch {
				last = a
			}
		}
	}
	if !several {
		return false
	}
	_, stale, signs := sift(p.arrived) // as in take
	for _, tag := range stale {
		p.ackHeld(tag)
	}
	for _, a := range p.arrived {
		if a.Owner != last.Owner && slices.Contains(signs, a.Tag) {
			p.ackHeld(a.Tag)
		}
	}
	return true
}

// take starts the ownership after the marker and the proof have returned.
func (p *Partition) take(now time.Time) {
	p.phase = owning
	loaded, stale, signs := sift(p.arrived)
	// The broker may lose the last acks. The claims and markers come last, because they tell the next owner which copies are
	// stale. Proofs come before them, so that a former owner that is active again receives its marker before its proof.
	for _, tag := range slices.Concat(stale, p.useless, signs) {
		p.ackHeld(tag)
	}
	arrived := p.arrived
	p.arrived, p.useless = nil, nil
	p.actions = append(p.actions, Consume{})
	for _, name := range slices.Sorted(maps.Keys(loaded)) {
		k := &key{name: name, entries: loaded[name].entries(p.ackHeld)}
		for _, e := range k.entries {
			e.key = k
			p.count(e, 1)
		}
		if len(k.entries) > 0 {
			p.keys[name] = k
		}
	}
	for i, a := range arrived {
		if a.Kind == Request {
			p.addRequest(a.Tag, a.Record, i)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.keys)) {
		p.advance(now, p.keys[name])
	}
}

// arrival is a delivery that arrived before the claim returned.
type arrival struct {
	Delivery
	Record
}

// sift divides the deliveries into the copies of each key, the stale copies and other obsolete messages, and the messages that
// mark owners.
//
// Copies of an owner are stale if they come after the claim of a later owner: the broker did not deliver them back, so the
// original was redelivered to the later owner, which may have settled it. A claim counts only if there is a marker, because a
// process that has not received its claim has not settled anything.
func sift(arrived []arrival) (loaded map[string]copies, stale, signs []uint64) {
	epochs := map[string]int64{}
	for _, a := range arrived {
		if a.Kind == Marker {
			epochs[a.Owner] = a.Epoch
		}
	}
	loaded, newest := map[string]copies{}, int64(0)
	for i, a := range arrived {
		switch {
		case a.Kind == Request:
		case a.Kind == Claim || a.Kind == Marker:
			newest = max(newest, epochs[a.Owner])
			signs = append(signs, a.Tag)
		case a.Kind != Copy && a.Kind != Done || a.Epoch < newest:
			stale = append(stale, a.Tag)
		default:
			if loaded[a.Key] == nil {
				loaded[a.Key] = copies{}
			}
			loaded[a.Key].add(a.Delivery, a.Record, i)
		}
	}
	return loaded, stale, signs
}

// remove removes the first matching outstanding record, and proves the ownership at the time of its publication.
func (p *Partition) remove(matches func(outstanding) bool) (*outstanding, bool) {
	i := slices.IndexFunc(p.outstanding, matches)
	if i < 0 {
		return nil, false
	}
	o := p.outstanding[i]
	p.outstanding = slices.Delete(p.outstanding, i, i+1)
	p.proven = o.sent
	return &o, true
}

// renew requests a new proof of the ownership.
func (p *Partition) renew(now time.Time) {
	if p.token == 0 {
		return
	}
	p.actions = append(p.actions, RequeueHeld{p.token})
	p.outstanding = append(p.outstanding, outstanding{Record{Kind: Proof}, now, nil})
	p.token = 0
}

// returned processes a record that this owner has published.
func (p *Partition) returned(now time.Time, d Delivery, r Record) {
	switch r.Kind {
	case Marker, Proof:
		p.remove(func(o outstanding) bool { return o.record.Kind == r.Kind })
		if r.Kind == Proof {
			p.token = d.Tag
		}
		if p.phase == claimed && len(p.outstanding) == 0 {
			p.take(now)
		}
	default:
		o, ok := p.remove(func(o outstanding) bool {
			return o.record.Kind == r.Kind && o.record.Key == r.Key && o.record.Seq == r.Seq && o.record.Version == r.Version
		})
		if !ok {
			p.resign(fmt.Errorf("the held queue has returned a message that was not published: %s of %q", r.Kind, r.Key))
			return
		}
		k := p.keys[r.Key]
		k.publishing = false
		p.stored(now, k, o.entry, d, r)
		p.advance(now, k)
		p.makeRoom(now)
	}
	stalled := p.stalled
	p.stalled = nil
	for _, k := range stalled {
		k.stalled = false
		p.advance(now, k)
	}
}

// Received processes a delivery of the partition.
func (p *Partition) Received(now time.Time, d Delivery, name string) {
	if p.phase == resigned {
		return
	}
	k := p.keys[name]
	if k == nil {
		k = &key{name: name}
		p.keys[name] = k
	}
	p.unacked++
	k.entries = append(k.entries, &Entry{Message: d.Message, key: k, size: d.Size, original: d.Tag, suspect: d.Suspect})
	p.advance(now, k)
}

// Begin reports whether the driver may start the attempt of a Start action. Between the Start action and Begin, the driver may
// wait, for example for other attempts. The start of a message that may have terminated processes is counted before it begins.
func (p *Partition) Begin(now time.Time, e *Entry) Permission {
	switch {
	case p.phase != owning || !p.isProven(now) || e.key.parkedBy() != "" || e.suspect && e.key.publishing:
		p.running--
		e.state = waiting
		p.advance(now, e.key)
		return Denied
	case e.suspect:
		e.state = counting
		e.starts++
		p.copy(now, e, e.Message)
		return Pending
	}
	p.rates.take(now, e.key.name)
	return Granted
}

// Abandon gives up the attempt of a Start action. The message stays unacknowledged, for the next owner.
func (p *Partition) Abandon(e *Entry) {
	p.running--
	e.state = abandoned
}

// Finished processes the result of an attempt, or of a Park action.
func (p *Partition) Finished(now time.Time, e *Entry, r Result) {
	p.running--
	switch {
	case p.phase == resigned:
		return
	case r.Abandoned:
		e.state = abandoned
	case r.Retry:
		e.state, e.due, e.next, e.starts = failed, r.Due, r.Message, 0
	default:
		e.state = done
	}
	p.advance(now, e.key)
}

// Drain prevents further attempts. The driver may close the channels when the Partition is idle, or earlier.
func (p *Partition) Drain() {
	if p.phase == owning {
		p.phase = draining
	}
	if p.phase < owning {
		p.resign(errDrained)
	}
}

// Refused processes the refusal of a Copy: the broker has not stored it. If the message cannot wait without it, the message is
// parked. It returns false for other records, which the owner cannot do without.
func (p *Partition) Refused(now time.Time, r Record, reason error) bool {
	i := slices.IndexFunc(p.outstanding, func(o outstanding) bool { return o.record == r })
	if p.phase == resigned || r.Kind != Copy || i < 0 {
		return false
	}
	e := p.outstanding[i].entry
	p.outstanding = slices.Delete(p.outstanding, i, i+1)
	e.key.publishing = false
	switch {
	case e.state == counting:
		p.permit(now, e)
	case e.state == waiting && (e.copy == 0 || e.next != nil):
		e.next = nil
		p.park(e, Park{Refused: reason})
	}
	p.advance(now, e.key) // otherwise, an older copy is stored, and contains all attempts
	return true
}

// Tick processes the time. The driver calls it at the time of Wake, or later, and reports whether the broker blocks publishers:
// the messages do not return while it does.
func (p *Partition) Tick(now time.Time, blocked bool) {
	if p.phase == resigned {
		return
	}
	if blocked {
		p.excused = now
	}
	if len(p.outstanding) > 0 && now.Sub(p.silentSince()) >= p.cfg.Patience {
		p.resign(errSilent)
		return
	}
	for len(p.timers) > 0 && !p.timers[0].due.After(now) {
		k := heap.Pop(&p.timers).(timer).key
		k.wakes = time.Time{}
		p.advance(now, k)
	}
}

// Wake returns the time of the next Tick, or the zero time.
func (p *Partition) Wake(now time.Time) (at time.Time) {
	if len(p.timers) > 0 {
		at = p.timers[0].due
	}
	if len(p.outstanding) > 0 {
		late := p.silentSince().Add(p.cfg.Patience / 2) // notices a block before it matters
		if !late.After(now) {
			late = late.Add(p.cfg.Patience / 2)
		}
		if at.IsZero() || late.Before(at) {
			at = late
		}
	}
	return at
}

// silentSince returns the time since which the held queue should have returned the oldest outstanding message.
func (p *Partition) silentSince() time.Time {
	if sent := p.outstanding[0].sent; sent.After(p.excused) {
		return sent
	}
	return p.excused
}

// isProven reports whether a returned message proves that this process owned the partition a short time ago.
func (p *Partition) isProven(now time.Time) bool { return now.Sub(p.proven) < p.cfg.Lease }

func (p *Partition) resign(reason error) {
	p.phase = resigned
	p.actions = append(p.actions, Resign{Reason: reason})
}

func (p *Partition) publish(now time.Time, r Record, message any, e *Entry) {
	r.Owner = p.cfg.Owner
	if r.Kind != Claim {
		r.Epoch = p.epoch
	}
	p.outstanding = append(p.outstanding, outstanding{r, now, e})
	p.actions = append(p.actions, Publish{r, message})
}

func (p *Partition) ackHeld(tag uint64) { p.actions = append(p.actions, AckHeld{tag}) }

func (p *Partition) ackPartition(tag uint64) {
	p.unacked--
	p.actions = append(p.actions, AckPartition{tag})
}

// full reports whether no further message of a key should be held. Keys without failures leave half of the room to other keys.
func (p *Partition) full(k *key) bool {
	n := 1
	if p.slowed(k) {
		n = 2
	}
	return n*p.held >= p.cfg.MaxHeld || n*p.bytes >= p.cfg.MaxBytes
}

// count adds n copies of an entry to the held messages.
func (p *Partition) count(e *Entry, n int) {
	p.held += n
	p.bytes += n * e.size
}
