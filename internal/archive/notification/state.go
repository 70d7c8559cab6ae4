package notification

import (
	"maps"
	"time"
)

// state is the stored state of a webhook between two readings.
type state struct {
	Before  Reading              `json:"before"`
	Told    map[string]time.Time `json:"told"`    // time of the last event, by Event.key
	Waiting []Event              `json:"waiting"` // events of the next message, at most maxShown of each kind
	Counts  map[Kind]int64       `json:"counts"`  // number of events of the next message, by kind
	Since   time.Time            `json:"since"`   // time of the first event of the next message
}

// maxShown is the maximum number of events of a kind that a message lists. The message only counts further events.
const maxShown = 10

// settings configures state.advance.
type settings struct {
	gather   time.Duration // time from the first event to its message
	cooldown time.Duration // minimum time between two equal events
	growth   int64         // number of messages within window that triggers an event
	first    *Reading      // the reading at the start, or nil; without a stored state, only later groups trigger events
	wants    func(Kind) bool
}

// batch is the content of a message.
type batch struct {
	Events []Event
	Counts map[Kind]int64
}

// advance returns the state after the reading r and the reported events. r is nil if no reading was taken. The batch is
// nil if no message is due. advance does not modify s.
func (s state) advance(now time.Time, r *Reading, events []Event, set settings) (state, *batch) {
	next := s
	next.Told, next.Counts = map[string]time.Time{}, map[Kind]int64{}
	maps.Copy(next.Counts, s.Counts)
	for key, at := range s.Told {
		if within(max(set.cooldown, window), at, now) {
			next.Told[key] = at
		}
	}
	next.Waiting = append([]Event(nil), s.Waiting...)
	if r != nil {
		before := s.Before
		if before.Time.IsZero() {
			before = *r
			if set.first != nil {
				before.Time, before.Newest, before.Groups = set.first.Time, set.first.Newest, set.first.Groups
			}
		}
		events = append(detect(&before, r, set.growth), events...)
		next.Before = before.followed(r)
	}
	for _, e := range events {
		last, recent := next.Told[e.key()]
		if !set.wants(e.Kind) || recent && within(set.cooldown, last, now) {
			continue
		}
		if e.Kind != NewGroup && e.Kind != ReplayDone && e.Kind != ReplayStopped { // these kinds occur only once for each subject
			next.Told[e.key()] = now
		}
		if len(next.Counts) == 0 {
			next.Since = now
		}
		if next.Counts[e.Kind]++; next.Counts[e.Kind] <= maxShown {
			next.Waiting = append(next.Waiting, e)
		}
	}
	if len(next.Counts) == 0 || within(set.gather, next.Since, now) {
		return next, nil
	}
	due := &batch{next.Waiting, next.Counts}
	next.Waiting, next.Counts, next.Since = nil, map[Kind]int64{}, time.Time{}
	return next, due
}

// followed returns the reading to compare with the next reading. It keeps the time and the groups from the start of the
// window, and takes the other fields from now.
func (r Reading) followed(now *Reading) Reading {
	next := *now
	if !r.Time.IsZero() && within(window, r.Time, now.Time) {
		next.Time, next.Groups = r.Time, r.Groups
	}
	next.Newest = max(r.Newest, now.Newest)
	if now.Missing == nil { // this process has no ledger, but another process may have one
		next.Missing = r.Missing
	}
	return next
}

// within reports whether less than d has passed since then. A time that is later than now by d or more is from a wrong
// clock, and does not count.
func within(d time.Duration, then, now time.Time) bool { return now.Sub(then).Abs() < d }
