package archive

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// Check verifies these promises at the end of a life. They summarize docs/failed-messages.md and docs/duplicates.md.
const (
	promiseQuiet   = "in the end, the queues are empty and no replay runs"
	promiseOnceID  = "with Middleware, an effect happens once, unless the process exits between the effect and its record"
	promiseTx      = "with Tx, an effect happens exactly once"
	promiseKey     = "the idempotency key is the message ID of the publisher"
	promiseParked  = "a message without an ID is parked, and has an ID after a replay"
	promiseBalance = "the ledger balances after a life without faults"
	promiseOrigin  = "the archive stores the work queue of a failed message"
	promiseEnds    = "a process of the archive does not exit unexpectedly"
)

// Heal removes the faults of the databases and of the downstream system. If another program consumes a queue, Heal
// also schedules a replay of all failed messages.
func (s *System) Heal() {
	s.mu.Lock()
	s.ending = true
	clear(s.down)
	s.mu.Unlock()
	for _, p := range s.processes() {
		p.Database.Heal()
	}
	if s.Foreign {
		s.later(5*time.Minute, func() { s.replayAll(10) })
	}
}

// replayAll replays all failed messages. Messages without a correcting edit fail again and must return to the archive, even
// if another program processes them.
func (s *System) replayAll(tries int) {
	p := s.nextConsole()
	if p == nil || !s.fileInPlace() || s.exclusiveRows() == nil {
		if tries > 0 {
			s.later(time.Minute, func() { s.replayAll(tries - 1) })
		}
		return
	}
	defer func() { <-s.acting }()
	epoch := s.epochNow()
	plan := failed.Plan{Filter: failed.Filter{All: true}, IgnoreSame: true}
	if r, err := p.Archive().BeginReplay(context.Background(), plan, "person-0"); err == nil {
		s.recordAct(intent{verb: "replay", actor: "person-0"}, actOutcome{replay: r.ID}, epoch, r.Total, nil)
		s.strike("act: replay of everything in the end")
	}
}

// Busy returns a description of the remaining work; "": none.
func (s *System) Busy() string {
	s.mu.Lock()
	pending, losing, away := s.pending, s.losing, s.away != ""
	s.mu.Unlock()
	switch {
	case pending > 0:
		return fmt.Sprintf("%d scheduled calls", pending)
	case losing || away:
		return "the file is missing"
	}
	all := s.processes()
	if len(all) == 0 || s.Second && len(all) < 2 {
		return "a process is down"
	}
	for _, p := range all {
		select {
		case <-p.ended:
			s.fail(promiseEnds, "%s exited: %v", p.Name, p.err)
			return ""
		default:
		}
		if err := p.Ready(); err != nil {
			return fmt.Sprintf("%s is not ready: %v", p.Name, err)
		}
	}
	running, err := all[0].Archive().Running(context.Background())
	if err != nil || len(running) > 0 {
		return fmt.Sprintf("%d replays are running (%v)", len(running), err)
	}
	return ""
}

// Check compares the state of a quiet system with the promises.
func (s *System) Check() {
	a, err := s.openArchive()
	if err != nil {
		s.fail("simulation", "cannot open the archive: %v", err)
		return
	}
	all, err := rowsOf(a)
	if err != nil {
		s.fail("simulation", "cannot read the archive: %v", err)
		return
	}
	mails, err := s.effectsOfMails()
	if err != nil {
		s.fail("simulation", "cannot read the effects: %v", err)
		return
	}
	s.checkNothingLost(all, mails)
	s.checkContents(all)
	s.checkEffects(mails)
	s.checkActs(all)
	s.checkReplays(all)
	s.checkLedger()
}

func (s *System) checkNothingLost(all map[failed.ID]Row, mails map[int]int) {
	has, copies := map[int]bool{}, map[int][]time.Time{}
	for _, r := range all {
		if !r.known {
			s.fail(promiseExactly, "message %d has the unpublished body %q", r.ID, r.Body)
			continue
		}
		copies[r.Order.N] = append(copies[r.Order.N], r.Archived)
		has[r.Order.N] = has[r.Order.N] || r.open()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.sent {
		done := s.effects[m.N] > 0 || mails[m.N] > 0
		if !done && !has[m.N] && s.gone[m.N] == "" {
			s.failLocked(promiseStored, "message %d of %s is lost", m.N, m.Queue)
		}
		if n := len(copies[m.N]); n > s.parked[m.N]+s.forgotten(copies[m.N]) {
			s.failLocked(promiseOnce, "message %d of %s is in the archive %d times, but was parked %d times", m.N, m.Queue, n, s.parked[m.N])
		}
	}
}

// forgotten returns the number of additional copies of a message that may exist because the broker forgot the
// acknowledgement of an earlier copy.
func (s *System) forgotten(stored []time.Time) (n int) {
	for _, again := range stored {
		if slices.ContainsFunc(stored, func(t time.Time) bool { return t.Before(again) && s.Forgot(t, again) }) {
			n++
		}
	}
	return n
}

func (s *System) checkContents(all map[failed.ID]Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := map[int]*Sent{}
	for _, m := range s.sent {
		sent[m.N] = m
	}
	for _, r := range all {
		m := sent[r.Order.N]
		if m == nil || !r.known {
			continue
		}
		if r.Queue != m.Queue {
			s.failLocked(promiseOrigin, "message %d of %s is archived with the work queue %s", m.N, m.Queue, r.Queue)
		}
		if r.Back == 0 && string(r.Body) != string(m.Body) {
			s.failLocked(promiseExactly, "archived body of message %d: got %q, want %q", m.N, r.Body, m.Body)
		}
		if s.Foreign && m.Queue == Covers {
			continue // another program publishes the retries of this design
		}
		p := r.Properties
		if m.MessageID != "" && p.MessageID != m.MessageID || p.ContentType != "application/json" || p.Type != m.Class || p.CorrelationID != "c"+m.MessageID {
			s.failLocked(promiseExactly, "archived properties of message %d: got %+v, want those of %+v", m.N, p, m)
		}
		if r.Headers["tenant"] != tenant(m.N) || r.Headers["price"] != int32(m.N) {
			s.failLocked(promiseExactly, "archived headers of message %d: got %v, want tenant %s and price %d", m.N, r.Headers, tenant(m.N), m.N)
		}
	}
}

func (s *System) checkEffects(mails map[int]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	calm := len(s.disturbed()) == 0
	for _, m := range s.sent {
		if m.MessageID == "" && s.parked[m.N] == 0 && s.effects[m.N]+mails[m.N] > 0 {
			s.failLocked(promiseParked, "message %d of %s was published without an ID and handled without being parked", m.N, m.Queue)
		}
		if m.MessageID == "" && !calm {
			continue // the redelivery of an interrupted attempt has a different ID
		}
		switch m.Queue {
		case Orders:
			if n := s.effects[m.N]; n > 1+s.doubled[m.N] {
				s.failLocked(promiseOnceID, "the effect of message %d happened %d times (%d interruptions of the process)", m.N, n, s.doubled[m.N])
			}
		case Mails:
			if n := mails[m.N]; n > 1 {
				s.failLocked(promiseTx, "the effect of message %d happened %d times", m.N, n)
			}
		}
		keys := s.keys[m.N]
		if m.MessageID == "" && len(keys) > 1 {
			s.failLocked(promiseParked, "handlers received message %d, published without an ID, with the IDs %q", m.N, slices.Sorted(maps.Keys(keys)))
		}
		if m.MessageID != "" && len(keys) > 0 && (len(keys) > 1 || !keys[m.MessageID]) {
			s.failLocked(promiseKey, "handlers received message %d with the IDs %q", m.N, slices.Sorted(maps.Keys(keys)))
		}
	}
}

// checkActs compares the audit log with the recorded actions.
func (s *System) checkActs(all map[failed.ID]Row) {
	acts, err := s.auditLog()
	if err != nil {
		s.fail("simulation", "cannot read the audit log: %v", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	logged, restored := map[string]int64{}, 0
	for _, a := range acts {
		reason, _ := a.Details["reason"].(string)
		n, _ := a.Details["messages"].(float64)
		switch a.Verb {
		case "discard":
			if _, twice := logged[reason]; twice {
				s.failLocked(promiseAudit, "the audit log contains two discards with the reason %q", reason)
			}
			logged[reason] = int64(n)
			did, found := s.reasons[reason]
			if (!found || did.epoch != s.epoch || string(a.Actor) != did.actor || did.n != int64(n)) && s.epoch == 0 {
				s.failLocked(promiseAudit, "the audit log contains a discard of %v messages by %s for %q, want %+v", n, a.Actor, reason, did)
			}
		case "restore":
			restored++
		case "replay":
			var id failed.ReplayID
			_, _ = fmt.Sscanf(a.Subject, "replay/%d", &id)
			did := s.replays[epochReplay{s.epoch, id}]
			if s.epoch == 0 && did != nil && (did.actor != string(a.Actor) || did.total != int64(n)) {
				s.failLocked(promiseAudit, "the audit log contains a replay of %v messages by %s, want %+v", n, a.Actor, did)
			}
		}
	}
	for reason, did := range s.reasons {
		if _, found := logged[reason]; !found && did.epoch == s.epoch && did.n > 0 {
			s.failLocked(promiseAudit, "the audit log does not contain the discard of %d messages for %q by %s", did.n, reason, did.actor)
		}
	}
	for id, r := range all {
		if r.State == failed.Discarded && s.epoch == 0 {
			if _, found := s.reasons[r.Discarded]; !found {
				s.failLocked(promiseAudit, "message %d is discarded with the unknown reason %q", id, r.Discarded)
			}
		}
	}
}

func (s *System) auditLog() (all []store.Act, err error) {
	a, err := s.openArchive()
	if err != nil {
		return nil, err
	}
	for page := (store.Page{Size: 1000}); ; {
		acts, next, err := a.Acts(context.Background(), store.ActFilter{}, page)
		if err != nil {
			return nil, err
		}
		all = append(all, acts...)
		if page.After = next; next == "" {
			return all, nil
		}
	}
}

func (s *System) checkReplays(all map[failed.ID]Row) {
	a, err := s.openArchive()
	if err != nil {
		return
	}
	replays, _, err := a.Replays(context.Background(), store.Page{Size: 1000})
	if err != nil {
		s.fail("simulation", "cannot read the replays: %v", err)
		return
	}
	var ends []string
	defer func() {
		for _, end := range ends {
			s.strike(end)
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range replays {
		ends = append(ends, "replay "+string(r.State))
		if r.Total >= batch {
			ends = append(ends, "replay of hundreds")
		}
		switch r.State {
		case failed.ReplayDone, failed.ReplayCancelled, failed.ReplayStopped:
		default:
			s.failLocked(promiseStates, "final state of replay %d: got %s, want done, cancelled or stopped", r.ID, r.State)
		}
		if r.State == failed.ReplayDone && r.Left() != 0 {
			s.failLocked(promiseReplay, "replay %d is done without sending %d of %d messages", r.ID, r.Left(), r.Total)
		}
		did := s.replays[epochReplay{s.epoch, r.ID}]
		if did == nil {
			continue // the replay belongs to a backup, or its start is uncertain
		}
		var times, distinct int64
		for key, n := range s.written {
			if key.epoch != s.epoch || key.replay != r.ID {
				continue
			}
			times += int64(n)
			distinct++
			if !did.messages[key.id] && int64(len(did.messages)) == did.total {
				s.failLocked(promiseReplay, "replay %d sent message %d, which it did not select", r.ID, key.id)
			}
		}
		if distinct < r.Sent {
			s.failLocked(promiseReplay, "replay %d reports %d sent messages, but sent %d", r.ID, r.Sent, distinct)
		}
		interrupted := did.interrupted + s.Disturbances(r.Begun.Add(-time.Minute), r.Ended.Add(time.Minute))
		if times > r.Sent {
			ends = append(ends, "replay sent some twice")
		}
		if extra := times - r.Sent; extra > int64(batch*interrupted) {
			promise := promiseTwice
			if interrupted == 0 {
				promise = promiseNoRepeat
			}
			s.failLocked(promise, "replay %d (%s: %s): %d interruptions, %d messages sent %d times, %d recorded", r.ID, r.State, r.Why, interrupted, distinct, times, r.Sent)
		}
	}
	for id, row := range all {
		if row.State == failed.Replaying {
			s.failLocked(promiseStates, "message %d is still replaying", id)
		}
		if row.State == failed.Replayed && s.written[resend{s.epoch, row.ReplayedBy, id}] == 0 && s.replays[epochReplay{s.epoch, row.ReplayedBy}] != nil {
			s.failLocked(promiseReplay, "message %d is marked as replayed by replay %d, which did not send it", id, row.ReplayedBy)
		}
	}
}

// checkLedger compares the ledger with the recorded events.
func (s *System) checkLedger() {
	s.mu.Lock()
	p, disturbed := s.main, s.disturbed()
	s.mu.Unlock()
	if !s.Ledger || p == nil || p.Ledger() == nil {
		return
	}
	report, err := p.Ledger().Report(context.Background())
	if err != nil {
		s.fail(promiseBalance, "cannot read the ledger: %v", err)
		return
	}
	for _, line := range report.Accounts {
		switch {
		case line.State == ledger.Balanced && line.Slack == 0:
			s.strike("account balanced")
		case len(disturbed) == 0:
			s.fail(promiseBalance, "ledger line %s: got %s, missing %d (slack %d): %+v", line.Name, line.State, line.Missing, line.Slack, line)
		default:
			s.strike("account differs")
		}
	}
}

// disturbed returns the faults that the ledger may report as discrepancies. The caller holds the lock.
func (s *System) disturbed() (all []string) {
	for what := range s.counts {
		if strings.HasPrefix(what, "kill") || strings.HasPrefix(what, "cut") || strings.HasPrefix(what, "file") {
			all = append(all, what)
		}
	}
	if s.Disturbances(s.began, time.Now()) > 0 {
		all = append(all, "faults outside the system")
	}
	slices.Sort(all)
	return all
}

// End stops the processes and waits until they have exited.
func (s *System) End() {
	for _, p := range s.processes() {
		if err := p.Stop(); err != nil && !errors.Is(err, errDead) {
			s.fail(promiseInOrder, "%s exited with %v", p.Name, err)
		}
	}
	s.mu.Lock()
	all, c := s.all, s.client
	s.mu.Unlock()
	if s.stopForeign != nil {
		s.stopForeign()
	}
	if c != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = c.Close(ctx)
	}
	for _, p := range all {
		<-p.ended
	}
	s.closeInspector()
}
