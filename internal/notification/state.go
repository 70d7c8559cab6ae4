package notification

import (
	"maps"
	"time"
)

// state is what is stored for a webhook between two readings.
type state struct {
	Before  Reading              `json:"before"`
	Told    map[string]time.Time `json:"told"`    // when there was an event, by Event.key
	Waiting []Event              `json:"waiting"` // for the next message, at most maxShown of a kind
	Counts  map[Kind]int64       `json:"counts"`  // of events for the next message
	Since   time.Time            `json:"since"`   // the first of them
}

// maxShown is how many events of a kind a message has. The others are counted.
const maxShown = 10

// settings are the numbers of state.advance.
type settings struct {
	gather   time.Duration // from an event to the message that has it
	cooldown time.Duration // between two equal events
	growth   int64         // messages within window
	wants    func(Kind) bool
}

// batch is the content of a message.
type batch struct {
	Events []Event
	Counts map[Kind]int64
}

// advance returns the state after a reading, which is nil if there is none, and other events. The batch is nil if nothing is to be
// sent. The former state is not changed.
func (s state) advance(now time.Time, r *Reading, events []Event, set settings) (state, *batch) {
	next := s
	next.Told, next.Counts = map[string]time.Time{}, map[Kind]int64{}
	maps.Copy(next.Counts, s.Counts)
	for key, at := range s.Told {
		if now.Sub(at) < max(set.cooldown, window) {
			next.Told[key] = at
		}
	}
	next.Waiting = append([]Event(nil), s.Waiting...)
	if r != nil {
		events = append(detect(&s.Before, r, set.growth), events...)
		next.Before = s.Before.followed(r)
	}
	for _, e := range events {
		told, recent := next.Told[e.key()]
		if !set.wants(e.Kind) || recent && now.Sub(told) < set.cooldown {
			continue
		}
		if e.Kind != NewGroup && e.Kind != ReplayDone && e.Kind != ReplayStopped { // these happen once
			next.Told[e.key()] = now
		}
		if len(next.Counts) == 0 {
			next.Since = now
		}
		if next.Counts[e.Kind]++; next.Counts[e.Kind] <= maxShown {
			next.Waiting = append(next.Waiting, e)
		}
	}
	if len(next.Counts) == 0 || now.Sub(next.Since) < set.gather {
		return next, nil
	}
	due := &batch{next.Waiting, next.Counts}
	next.Waiting, next.Counts, next.Since = nil, map[Kind]int64{}, time.Time{}
	return next, due
}

// followed returns the reading that the next one is compared with. Counts are those of the beginning of a window; the rest is new.
func (r Reading) followed(now *Reading) Reading {
	next := *now
	if !r.Time.IsZero() && now.Time.Sub(r.Time) < window {
		next.Time, next.Groups = r.Time, r.Groups
	}
	next.Newest = max(r.Newest, now.Newest)
	if now.Missing == nil { // this process has no ledger, and another one may have
		next.Missing = r.Missing
	}
	return next
}
