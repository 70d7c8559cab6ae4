package ordered

import (
	"slices"
	"time"
)

// request is a Request that the held queue has delivered. A new copy of its target stores its effect, and then it is acknowledged.
//
// Its target was copied before it. Otherwise, a Request whose ack is lost could apply to a later message: if the target is done,
// and the acks of the target are lost too, then a Done record ends all earlier copies of the key.
type request struct {
	tag    uint64
	act    Act
	by     string
	target *Entry
}

// request processes a Request.
func (p *Partition) request(now time.Time, tag uint64, r Record, before int) {
	p.addRequest(tag, r, before)
	if k := p.keys[r.Key]; k != nil {
		p.advance(now, k)
	}
}

// addRequest adds a Request to its key, or acknowledges it if no message of the key was copied before the given position.
func (p *Partition) addRequest(tag uint64, r Record, before int) {
	k := p.keys[r.Key]
	if k != nil && len(k.entries) > 0 {
		target := k.entries[0]
		if r.Act == ParkAll {
			for i, e := range k.entries {
				if e.copy != 0 && e.first < before && (r.Limit == 0 || int64(i) < r.Limit) {
					target = e
				}
			}
		}
		if target.copy != 0 && target.first < before {
			k.requests = append(k.requests, request{tag, r.Act, r.By, target})
			return
		}
	}
	p.ackHeld(tag)
}

// carryOut publishes a copy that stores the effect of the first request. It returns false if there is nothing to store.
func (p *Partition) carryOut(now time.Time, k *key) bool {
	for len(k.requests) > 0 && p.phase == owning {
		r := k.requests[0]
		e := r.target
		switch {
		case e.state == done || !slices.Contains(k.entries, e):
		case r.act == RetryFirst && e.state == waiting && e.due.After(now):
			e.due = time.Time{}
			p.copy(now, e, e.Message)
			return true
		case r.act != RetryFirst && e.by == "":
			if e.by = r.by; e.state == failed {
				p.copyFailed(now, e)
			} else {
				p.copy(now, e, e.Message)
			}
			return true
		}
		p.ackHeld(r.tag)
		k.requests = k.requests[1:]
	}
	return false
}

// parkedBy returns the operator who parks the first message, or "".
func (k *key) parkedBy() string {
	for _, e := range k.entries {
		if e.by != "" {
			return e.by
		}
	}
	return ""
}

// Blocked describes a key whose first message waits in the held queue, or is being handled.
type Blocked struct {
	Key     string
	Due     time.Time // of the next attempt; past: the attempt runs or begins soon
	Behind  int       // number of messages behind the first
	Message any       // the first
}

// Blocked returns the number of blocked keys, the number of all messages behind their first messages, and the n keys that have
// been blocked for the longest time.
func (p *Partition) Blocked(n int) (keys, behind int, oldest []Blocked) {
	var heads []*Entry
	for _, k := range p.keys {
		if len(k.entries) > 0 && k.entries[0].copy != 0 {
			heads = append(heads, k.entries[0])
			behind += len(k.entries) - 1
		}
	}
	slices.SortFunc(heads, func(x, y *Entry) int { return x.seq.Compare(y.seq) })
	for _, e := range heads[:min(n, len(heads))] {
		due := e.due
		if e.state == waiting {
			due = p.due(e.key)
		}
		oldest = append(oldest, Blocked{e.key.name, due, len(e.key.entries) - 1, e.Message})
	}
	return len(heads), behind, oldest
}
