package archive

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// discardRecord describes one discard. System.reasons contains it under the discard's unique reason.
type discardRecord struct {
	epoch int
	actor string
	n     int64 // number of messages that the audit log must record
}

// startedReplay is a replay that an operator has started.
type startedReplay struct {
	actor       string
	total       int64
	messages    map[failed.ID]bool // messages that the replay selected
	interrupted int                // number of crashes and lost connections that may have repeated messages
	cancelled   bool
	over        bool // the system has recorded the end of the replay
}

// intent is a planned action of an operator.
type intent struct {
	verb    string // discard, restore or replay
	from    failed.State
	selects func(Row) bool // reports whether the page, the search or the command selects a message
	words   []string       // words that the confirmation page must contain
	actor   string
	reason  string // only for a discard
	wait    time.Duration
}

// act performs an action on a console and compares the changes with the announcement. The function do returns the announced
// number of messages and the outcome of the action.
func (s *System) act(i *intent, do func(b *Browser) (announced int64, end actOutcome)) {
	p := s.nextConsole()
	if p == nil || !s.fileInPlace() {
		return
	}
	epoch := s.epochNow()
	b := &Browser{Console: p, Actor: i.actor, Slow: func(request string, took time.Duration) {
		s.fail(promiseSoon, "%s took %v", request, took)
	}}
	announced, end := do(b)
	if end.before != nil {
		defer func() { <-s.acting }()
	}
	if end.before == nil {
		if end.problem != "" {
			s.fail(promiseAnnounced, "%s: %s", i.verb, end.problem)
		}
		return // the action selected no messages, or the console could not show the confirmation page
	}
	after, err := s.Rows()
	if err != nil || s.epochNow() != epoch || !s.fileInPlace() {
		return
	}
	s.strike("act: " + i.verb + end.outcome())
	s.checkOutcome(*i, announced, end, after, epoch)
}

// actOutcome is the outcome of an action.
type actOutcome struct {
	before  map[failed.ID]Row // messages just before the confirmation; nil: not confirmed
	through failed.ID         // newest message on the confirmation page; 0: no limit
	status  int               // HTTP status of the page
	replay  failed.ReplayID   // the new replay
	n       int64             // number on the result page; -1: none
	err     error             // error of the Go API
	problem string            // defect of the page
}

func (e actOutcome) outcome() string {
	switch {
	case e.status >= 500 || errors.Is(e.err, store.ErrUnavailable):
		return ", no answer"
	case e.status == http.StatusConflict || errors.Is(e.err, failed.ErrState):
		return ", refused"
	}
	return ""
}

// checkOutcome compares the changes with the announcement.
func (s *System) checkOutcome(i intent, announced int64, e actOutcome, after map[failed.ID]Row, epoch int) {
	violated := func(format string, args ...any) {
		s.fail(promiseAnnounced, "%s by %s (%d announced, status %d, %v): %s", i.verb, i.actor, announced, e.status, e.err, fmt.Sprintf(format, args...))
	}
	if e.problem != "" {
		violated("%s", e.problem)
	}
	selects := func(r Row) bool { return i.selects(r) && (e.through == 0 || r.ID <= e.through) }
	changed := map[failed.ID]bool{}
	for id, row := range after {
		was, known := e.before[id]
		switch i.verb {
		case "discard":
			if row.State == failed.Discarded && row.Discarded == i.reason {
				changed[id] = true
			}
		case "restore":
			if known && was.State == failed.Discarded && row.State != failed.Discarded {
				changed[id] = true
			}
		case "replay":
			if e.replay != 0 && row.ReplayedBy == e.replay {
				changed[id] = true
			}
		}
	}
	expected, newcomers := map[failed.ID]bool{}, int64(0)
	for id, row := range e.before {
		if row.State == i.from && selects(row) {
			expected[id] = true
		}
	}
	for id, row := range after {
		if _, known := e.before[id]; !known && selects(row) {
			newcomers++
		}
	}
	for id := range changed {
		row := after[id]
		if was, known := e.before[id]; known && was.State != i.from || !selects(row) {
			violated("message %d of %s (%q) was changed but not selected", id, row.Queue, row.Error)
			return
		}
	}
	n := int64(len(changed))
	if n > announced {
		violated("%d messages were changed", n)
	}
	accepted := e.status == http.StatusOK && e.err == nil
	switch {
	case e.status >= 500, errors.Is(e.err, store.ErrUnavailable), errors.Is(e.err, errDead):
		if n > 0 && int64(len(expected)) > n { // the outcome is unknown, but the database must have changed all messages or none
			violated("%d of %d messages were changed", n, len(expected))
		}
		s.recordAct(i, e, epoch, n, changed)
		return
	case !accepted && n > 0:
		violated("refused, but %d messages were changed", n)
	case !accepted && int64(len(expected))+newcomers <= announced && len(expected) > 0:
		violated("refused, although %d messages were selected", len(expected))
	case accepted && i.verb != "replay":
		for id := range expected {
			if !changed[id] {
				violated("message %d of %s (%q) was selected but not changed", id, after[id].Queue, after[id].Error)
				return
			}
		}
		if e.n >= 0 && e.n != n {
			violated("the result page reports %d messages, but %d were changed", e.n, n)
		}
	case accepted:
		r, err := s.replayOf(e.replay)
		if err != nil {
			return
		}
		// A replay that has already ended has released the messages that it did not send.
		if r.State == failed.ReplayRunning && r.Refused == 0 && n != r.Total || r.Total > announced ||
			r.Total < int64(len(expected)) || r.Total > int64(len(expected))+newcomers {
			violated("the replay has %d messages, %d are marked with it, %d were selected", r.Total, n, len(expected))
		}
		n = r.Total
		if r.State != failed.ReplayRunning {
			maps.Copy(changed, expected)
		}
	}
	if accepted {
		s.recordAct(i, e, epoch, n, changed)
	}
}

// recordAct records an action for the final checks.
func (s *System) recordAct(i intent, e actOutcome, epoch int, n int64, changed map[failed.ID]bool) {
	s.note("%s: %s, %d messages, status %d", i.actor, i.verb, n, e.status)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case i.verb == "discard" && n > 0:
		s.reasons[i.reason] = discardRecord{epoch, i.actor, n}
	case i.verb == "replay" && e.replay != 0:
		s.replays[epochReplay{epoch, e.replay}] = &startedReplay{actor: i.actor, total: n, messages: changed}
	}
}

func (s *System) replayOf(id failed.ReplayID) (*failed.Replay, error) {
	a, err := s.openArchive()
	if err != nil {
		return nil, err
	}
	return a.Replay(context.Background(), id)
}

func (s *System) epochNow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch
}

// nextConsole returns a running process, or nil if no process is running or its archive is not open. If there are two
// processes, it alternates between them.
func (s *System) nextConsole() *Process {
	all := s.processes()
	if len(all) == 0 {
		return nil
	}
	s.mu.Lock()
	s.turn++
	p := all[s.turn%len(all)]
	s.mu.Unlock()
	if p.Archive() == nil {
		return nil
	}
	return p
}
