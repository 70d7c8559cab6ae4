package announce

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/protocol"
)

// Worker describes a worker to an Agent. The fields must not change.
type Worker struct {
	Queue       string
	Concurrency int

	// Hold pauses the worker, or resumes it if the pause is nil. It does not block.
	Hold func(*protocol.Pause)

	// Handling yields the messages that the handlers of the worker are processing.
	Handling iter.Seq[protocol.Handling]

	// Keys returns the blocked keys. It is nil if the worker does not keep the order of keys.
	Keys func(ctx context.Context) protocol.Keys
}

// Member is a worker that is announced from Join to Leave. Its methods are safe for concurrent use.
type Member struct {
	Worker
	Tally
	agent   *Agent
	id      string
	started time.Time

	turn       chan struct{} // semaphore with one slot; its holder reads and applies the pause of the queue
	mayDeclare atomic.Bool   // whether the user may declare the queue that stores the pause
	changed    atomic.Bool   // a status is due

	mu          sync.Mutex
	state       string
	trouble     string
	holding     string          // reason why the worker holds messages; "": it holds none
	held        bool            // the last call to Hold had a pause
	queuePause  *protocol.Pause // by an operator; nil: none
	workerPause *protocol.Pause
	selfPause   *protocol.Pause
	hint        protocol.Pause // pause of the latest command, which the broker probably stores
	last        time.Time      // time of the last status
}

// Consuming records that the worker has a consumer.
func (m *Member) Consuming() { m.note(protocol.WorkerConsuming, "") }

// Interrupted records that the worker has no consumer because of an error.
func (m *Member) Interrupted(err error) { m.note(protocol.WorkerConnecting, err.Error()) }

// Holding records that the worker holds messages that it cannot settle, and the reason. An empty reason ends this state.
func (m *Member) Holding(reason string) {
	m.mu.Lock()
	changed := (m.holding == "") != (reason == "")
	m.holding = reason
	m.mu.Unlock()
	if changed {
		m.report()
	}
}

func (m *Member) note(state, trouble string) {
	m.mu.Lock()
	changed := m.state != state
	m.state, m.trouble, m.selfPause = state, trouble, nil
	m.mu.Unlock()
	if changed {
		m.report()
	}
}

// Paused records that the worker deliberately has no consumer, until the next call to Consuming or Interrupted. A d of
// 0 means that the end is unknown. If byOperator is set, the pause of the operator is the reason, so Paused does not
// record another pause.
func (m *Member) Paused(d time.Duration, reason error, byOperator bool) {
	p := &protocol.Pause{Of: protocol.PauseOfItself, At: time.Now()}
	if d > 0 {
		p.Until = p.At.Add(d)
	}
	if reason != nil {
		p.Reason = reason.Error()
	}
	m.mu.Lock()
	m.state, m.trouble, m.selfPause = protocol.WorkerPaused, "", p
	if byOperator {
		m.selfPause = nil
	}
	m.mu.Unlock()
	m.report()
}

// report asks the agent to send a status soon.
func (m *Member) report() {
	m.changed.Store(true)
	select {
	case m.agent.wake <- struct{}{}:
	default:
	}
}

// setQueue applies the pause of the queue that the broker has stored.
func (m *Member) setQueue(s state) {
	m.mu.Lock()
	var p *protocol.Pause
	if s.paused {
		p = &s.pause
		if p.At.IsZero() { // unknown, because another program was reading the pause
			hint := m.hint
			p = &hint
			if m.queuePause != nil && !m.queuePause.At.Before(hint.At) {
				p = m.queuePause
			}
		}
		p.Of = protocol.PauseOfQueue
	} else {
		m.hint = protocol.Pause{}
	}
	m.queuePause = p
	m.apply()
}

// setWorker applies a command that pauses only this worker, or resumes it if p is nil.
func (m *Member) setWorker(p *protocol.Pause) {
	if p != nil {
		p.Of = protocol.PauseOfWorker
	}
	m.mu.Lock()
	m.workerPause = p
	m.apply()
}

// apply pauses or resumes the worker. It unlocks mu.
func (m *Member) apply() {
	p := m.queuePause
	if p == nil {
		p = m.workerPause
	}
	toggled := m.held != (p != nil)
	m.held = p != nil
	if toggled {
		m.Hold(p)
	}
	m.mu.Unlock()
	m.report()
}

// setHint records the pause that a command for the queue contains.
func (m *Member) setHint(p protocol.Pause) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hint = p
}

// check reads the pause of the queue and applies it. Only one check of m runs at a time, so that the latest result
// applies. It uses ch or, if ch is nil, a new channel. If details is set, or if the details of the pause are not known,
// check also reads them. After an error, the last known pause remains in effect.
func (m *Member) check(ctx context.Context, conn *amqpconn.Conn, ch *amqpconn.Channel, details bool) {
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return
	}
	s, err := m.ask(ctx, conn, ch, details)
	if err == nil {
		m.setQueue(s)
		return
	}
	if ctx.Err() == nil && !errors.Is(err, amqpconn.ErrGone) && !refusedAccess(err) { // refused logs a missing permission
		m.agent.cfg.Log.Warn("pause not known", "queue", m.Queue, "error", err)
	}
}

func (m *Member) ask(ctx context.Context, conn *amqpconn.Conn, ch *amqpconn.Channel, details bool) (s state, err error) {
	check := func(ch *amqpconn.Channel) error {
		s.paused, err = checkPaused(ctx, ch, m.Queue, m.mayDeclare.Load())
		return err
	}
	if ch != nil && m.mayDeclare.Load() {
		err = check(ch)
	} else {
		err = conn.Do(ctx, check)
	}
	if refusedAccess(err) && m.mayDeclare.CompareAndSwap(true, false) {
		m.agent.refused(permPauses, m.Queue)
		err = conn.Do(ctx, check)
	}
	if err != nil || !s.paused || !details && m.known() {
		return s, err
	}
	if s.pause, err = fetchPause(ctx, conn, m.Queue); refusedAccess(err) {
		err = nil // the queue is paused, but the user may not read the details
	}
	return s, err
}

// known reports whether all details of the pause of the queue are known.
func (m *Member) known() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.queuePause != nil && !m.queuePause.At.IsZero()
}

// Pause returns the pause that an operator has ordered, or nil.
func (m *Member) Pause() *protocol.Pause {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.queuePause != nil {
		return m.queuePause
	}
	return m.workerPause
}

// due returns the earliest time at which a pause by an operator expires, or the zero time if none expires.
func (m *Member) due() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	var first time.Time
	for _, p := range []*protocol.Pause{m.queuePause, m.workerPause} {
		if p != nil && !p.Until.IsZero() && (first.IsZero() || p.Until.Before(first)) {
			first = p.Until
		}
	}
	return first
}

// expire ends an expired pause of the worker. It reports whether the pause of the queue should also have expired, and must
// therefore be checked.
func (m *Member) expire(now time.Time) (checkQueue bool) {
	m.mu.Lock()
	checkQueue = m.queuePause != nil && !m.queuePause.Until.IsZero() && !now.Before(m.queuePause.Until)
	expired := m.workerPause != nil && !m.workerPause.Until.IsZero() && !now.Before(m.workerPause.Until)
	m.mu.Unlock()
	if expired {
		m.setWorker(nil)
	}
	return checkQueue
}

// sent records the time of the latest status.
func (m *Member) sent(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = now
}

func (m *Member) lastSent() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// keysTimeout is the maximum time in which a worker collects its blocked keys.
const keysTimeout = 250 * time.Millisecond

func (m *Member) status(now time.Time) protocol.WorkerStatus {
	cfg := &m.agent.cfg
	s := protocol.WorkerStatus{
		ID: m.id, Queue: m.Queue, Client: cfg.Client, Host: cfg.Host, PID: cfg.PID, Program: cfg.Program, Reprise: cfg.reprise,
		Started: m.started, Sent: now, Concurrency: m.Concurrency, Counts: m.counts(), Took: m.histogram(),
	}
	for h := range m.Handling {
		s.Handling = append(s.Handling, h)
	}
	s.Running = len(s.Handling)
	slices.SortFunc(s.Handling, func(x, y protocol.Handling) int { return x.Since.Compare(y.Since) })
	s.Handling = s.Handling[:min(len(s.Handling), protocol.MaxHandling)]
	if m.Keys != nil {
		ctx, cancel := context.WithTimeout(m.agent.ctx, keysTimeout)
		keys := m.Keys(ctx)
		cancel()
		s.Keys = &keys
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s.State, s.Trouble = m.state, cmp.Or(m.trouble, m.holding)
	for _, p := range []*protocol.Pause{m.queuePause, m.workerPause, m.selfPause} {
		if p != nil {
			s.Pauses = append(s.Pauses, *p)
		}
	}
	return s
}
