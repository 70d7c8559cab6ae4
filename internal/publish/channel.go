package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
)

// channel is a channel of a lane, with its messages in flight.
type channel struct {
	lane         *lane
	conn         *amqpconn.Conn
	confirms     *amqpconn.Confirming
	tickInterval time.Duration

	room       chan struct{} // one token per message in flight
	wake       chan struct{} // wakes listen
	retired    chan struct{} // closed by retire
	writerDone chan struct{} // closed when serve returns, after the last write
	finished   chan struct{} // closed after the channel has closed and each of its messages has a result

	mu      sync.Mutex
	waiting []*Message // written, oldest first
	writing bool       // the newest waiting message is being written
	ticks   int        // counted only while a message waits; a suspended process does not count all ticks that it has missed
}

// Limits of checkInFlight. A tick is the interval between two of its runs.
const (
	// lateTicks is the number of ticks after which an answer is late; see Publisher.lateAfter.
	lateTicks = 40

	// maxTicks limits the number of ticks that are counted together after the machine was busy.
	maxTicks = lateTicks / 2

	// maxAbandonedWait is the maximum wait for an answer that no caller waits for. Such an answer only shows whether the
	// destination confirms again.
	maxAbandonedWait = 5 * time.Minute

	// maxAwaitedWait is the maximum wait for an answer that a caller waits for. It exceeds RabbitMQ's acknowledgement
	// timeout, 30 min by default, which applies to the original of a copy.
	maxAwaitedWait = 40 * time.Minute
)

func newChannel(l *lane, conn *amqpconn.Conn, confirms *amqpconn.Confirming) *channel {
	return &channel{
		lane: l, conn: conn, confirms: confirms, tickInterval: max(l.publisher.lateAfter()/lateTicks, time.Millisecond),
		room: make(chan struct{}, l.window), wake: make(chan struct{}, 1),
		retired: make(chan struct{}), writerDone: make(chan struct{}), finished: make(chan struct{}),
	}
}

// serve writes requests until the channel closes or retires, or until ctx is done. If m is not nil, serve writes m first.
// It returns the request that it has taken but could not write, or nil.
func (s *channel) serve(ctx context.Context, m *Message) *Message {
	defer func() {
		s.confirms.Flush()
		close(s.writerDone)
		s.signal()
	}()
	for {
		if !s.reserve(ctx) { // for the next request, even if none is pending
			return m
		}
		if m == nil {
			if m = s.take(ctx); m == nil {
				return nil
			}
		}
		switch s.send(ctx, m) {
		case unusable:
			return m
		case inFlight:
			if s.lane.kind == probeLane && !s.prove(ctx, m) {
				return nil
			}
		}
		m = nil
	}
}

// reserve waits for room for another message in flight. It returns false when the channel no longer accepts messages,
// or when ctx is done.
func (s *channel) reserve(ctx context.Context) bool {
	select {
	case <-s.retired:
		return false
	case <-s.confirms.Ended():
		return false
	default:
	}
	select {
	case s.room <- struct{}{}:
		return true
	default:
	}
	s.confirms.Flush()
	select {
	case s.room <- struct{}{}:
		return true
	case <-s.retired:
	case <-s.confirms.Ended():
	case <-ctx.Done():
	}
	return false
}

// take returns the next request, or nil if the channel must not serve another request. It flushes the writes only if no
// request is pending.
func (s *channel) take(ctx context.Context) *Message {
	if m := s.lane.next(); m != nil {
		return m
	}
	s.confirms.Flush()
	var idle <-chan time.Time
	if s.lane.kind != fastLane {
		ticker := time.NewTicker(lateTicks * s.tickInterval)
		defer ticker.Stop()
		idle = ticker.C
	}
	for {
		select {
		case m := <-s.lane.requests:
			return m
		case <-s.lane.more:
			if m := s.lane.next(); m != nil {
				return m
			}
			continue
		case <-s.retired:
		case <-s.confirms.Ended():
		case <-ctx.Done():
		case <-idle:
			if s.isBusy() {
				continue // a retired channel would stay open for its messages, in addition to a new channel
			}
			s.retire() // releases the extra channel for other lanes
		}
		return nil
	}
}

// isBusy reports whether a message is in flight.
func (s *channel) isBusy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) > 0
}

// outcome is the result of an attempt to write a message.
type outcome int

const (
	inFlight outcome = iota // the broker's answer is pending
	settled                 // the channel has finished with the message
	unusable                // the message was not written; another channel may write it
)

// send writes a message, unless it belongs to another lane.
func (s *channel) send(ctx context.Context, m *Message) outcome {
	p := s.lane.publisher
	writable := s.conn.Writable()
	select {
	case <-writable:
	default:
		s.confirms.Flush()
		select {
		case <-writable:
		case <-s.retired:
			return unusable
		case <-s.confirms.Ended():
			return unusable
		case <-ctx.Done():
			return unusable
		}
	}
	if m.Reroute != nil {
		m.Reroute(m)
	}
	if to := p.lane(m); to != s.lane {
		<-s.room
		to.move(m)
		return settled
	}
	if err := p.proven.tooLarge(m); err != nil {
		<-s.room
		m.refuse(err)
		return settled
	}
	return s.write(m)
}

// write writes a message. It marks the message as in flight first, because the broker may answer or close the channel before
// write returns.
func (s *channel) write(m *Message) outcome {
	if !m.state.CompareAndSwap(queued, written) {
		<-s.room // the caller has given up
		return settled
	}
	m.answersBefore = s.lane.publisher.answers.Load()
	s.mu.Lock()
	s.waiting, s.writing = append(s.waiting, m), true
	s.mu.Unlock()
	err := s.confirms.Publish(&m.Publication)
	s.mu.Lock()
	m.writtenAt, s.writing = s.ticks, false
	if err != nil {
		s.waiting = s.waiting[:len(s.waiting)-1]
	}
	only := len(s.waiting) == 1
	s.mu.Unlock()
	switch {
	case err == nil:
		if only {
			s.signal() // listen does not wait for this answer yet
		}
		return inFlight
	case !errors.Is(err, amqpconn.ErrNotWritten):
		<-s.room
		m.resolve(fmt.Errorf("%w: %w", ErrUnconfirmed, err))
		return settled
	case m.state.CompareAndSwap(written, queued):
		return unusable
	}
	<-s.room // the caller has given up
	return settled
}

// prove waits until an unproven message has a result, but for at most proofTimeout. It returns false if the channel no
// longer accepts messages, or if ctx is done.
func (s *channel) prove(ctx context.Context, m *Message) bool {
	s.confirms.Flush()
	timer := time.NewTimer(proofTimeout)
	defer timer.Stop()
	select {
	case <-m.done:
		s.lane.publisher.proven.note(m, m.err)
		return true
	case <-s.confirms.Ended():
	case <-ctx.Done():
	case <-timer.C:
		m.assumed = true
		s.lane.publisher.proven.note(m, nil)
		s.retire()
	}
	return false
}

func (s *channel) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// retire stops the writing of further messages to the channel. The channel stays open for pending answers. retire may be
// called more than once.
func (s *channel) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isRetired() {
		close(s.retired)
	}
}

func (s *channel) isRetired() bool { return isClosed(s.retired) }

// listen resolves messages until the channel closes.
func (s *channel) listen() {
	defer close(s.finished)
	ticker := time.NewTicker(s.tickInterval)
	defer ticker.Stop()
	closing, last := false, time.Now()
	for {
		oldest := s.resolveOldest()
		var answered <-chan struct{}
		var tick <-chan time.Time
		switch {
		case oldest != nil:
			answered, tick = oldest.Answered(), ticker.C
		case s.isRetired() && isClosed(s.writerDone) && !closing:
			closing = true
			s.close()
		}
		select {
		case <-answered:
		case <-s.wake:
			if oldest == nil {
				ticker.Reset(s.tickInterval)
				last = time.Now()
			}
		case <-tick:
			now := time.Now()
			ticks := int(min(max(1, now.Sub(last)/s.tickInterval), maxTicks))
			last = now
			if s.checkInFlight(ticks) && isClosed(s.writerDone) && !closing {
				closing = true
				s.close()
			}
		case <-s.confirms.Ended():
			s.fail()
			return
		}
	}
}

// close closes the channel when all its messages in flight have results. RabbitMQ may take 65 s to answer each of these
// messages. If the broker does not answer in time, a ping tests whether the broker still reads from the connection. If the
// broker does not answer the ping, the connection is closed.
func (s *channel) close() {
	p := s.lane.publisher
	_ = p.cfg.Tasks.Go(func() {
		late := time.AfterFunc(s.conn.Timeout(), func() {
			_ = p.cfg.Tasks.Go(func() { _ = s.conn.Ping(p.ctx) })
		})
		defer late.Stop()
		s.confirms.Close()
	})
}

// resolveOldest resolves the oldest answered messages, and returns the first unanswered message.
func (s *channel) resolveOldest() *Message {
	for {
		s.mu.Lock()
		if len(s.inFlight()) == 0 {
			s.mu.Unlock()
			return nil
		}
		m := s.waiting[0]
		if !isClosed(m.Answered()) {
			s.mu.Unlock()
			return m
		}
		if isClosed(s.confirms.Ended()) || s.confirms.IsClosed() {
			s.mu.Unlock()
			return nil // fail resolves the message
		}
		s.waiting[0] = nil
		s.waiting = s.waiting[1:]
		s.mu.Unlock()
		s.conclude(m, s.confirms.Result(&m.Publication))
	}
}

// inFlight returns the completely written messages.
func (s *channel) inFlight() []*Message {
	if s.writing {
		return s.waiting[:len(s.waiting)-1]
	}
	return s.waiting
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// checkInFlight checks the messages in flight at every tick. It resolves the answered messages behind the oldest
// unanswered message, and marks late destinations. If messages are late, it retires the fast channel, or the channel of
// a bulkhead that several destinations share. The broker handles the messages of a channel in order, so one message can
// block all later messages. checkInFlight reports whether the channel must be closed, because no caller waits for an
// answer that can still arrive.
func (s *channel) checkInFlight(ticks int) (mustClose bool) {
	if s.conn.Blocked() != nil { // the messages do not age while the broker blocks the connection
		ticks = 0
	}
	var answered, late []*Message
	var head *Message                // the oldest unanswered message
	oldest, newest := 0, math.MaxInt // ages of the oldest message and of the newest message with a waiting caller
	s.mu.Lock()
	s.ticks += ticks
	for _, m := range s.inFlight() {
		if isClosed(m.Answered()) {
			answered = append(answered, m)
			continue
		}
		head = cmp.Or(head, m)
		age := s.ticks - m.writtenAt
		oldest = max(oldest, age)
		if m.state.Load() == written {
			newest = min(newest, age)
		}
		if age >= lateTicks && age-ticks < lateTicks {
			late = append(late, m)
		}
	}
	if s.confirms.IsClosed() {
		s.mu.Unlock()
		return false // fail resolves the messages, because the closed channel may have answered some of them
	}
	next := 0
	s.waiting = slices.DeleteFunc(s.waiting, func(m *Message) bool {
		if next == len(answered) || m != answered[next] {
			return false
		}
		next++
		return true
	})
	s.mu.Unlock()
	for _, m := range answered {
		s.conclude(m, s.confirms.Result(&m.Publication))
	}
	p := s.lane.publisher
	for _, m := range late {
		p.markLate(m)
	}
	switch {
	case len(late) == 0 || s.isRetired():
	case s.lane.kind == fastLane:
		s.retire()
		s.warn("confirms do not come", "exchange", head.Exchange, "routing_key", head.RoutingKey, "after", lateTicks*s.tickInterval)
	case s.lane.kind == bulkheadLane && late[0] == head && p.separate(s.lane, head):
		s.retire()
	}
	maxWait := maxAbandonedWait
	if newest < math.MaxInt {
		maxWait = maxAwaitedWait
	}
	if oldest <= int(maxWait/s.tickInterval) {
		return false
	}
	s.retire()
	return newest > int(maxWait/s.tickInterval) // if the channel closed, the caller would publish an awaited copy twice
}

// warn logs on another goroutine, because a logger may block.
func (s *channel) warn(text string, args ...any) {
	_ = s.lane.publisher.cfg.Tasks.Go(func() { s.conn.Logger().Warn(text, args...) })
}

// conclude resolves a message with its result, and frees its room.
func (s *channel) conclude(m *Message, err error) {
	<-s.room
	if !isEnd(err) {
		s.mu.Lock()
		age := s.ticks - m.writtenAt
		s.mu.Unlock()
		s.lane.publisher.answered(s.lane, m, age < lateTicks)
	}
	m.resolve(result(m, err))
}

// fail resolves all messages in flight after the channel has closed.
func (s *channel) fail() {
	<-s.writerDone // a write may be in progress
	p := s.lane.publisher
	lost := s.waiting
	s.waiting = nil
	if len(lost) > 0 {
		p.silent.Store(false) // the awaited answers cannot arrive
	}
	refusal, refused := amqpconn.RefusedChannel(s.confirms.Err())
	var open []*Message
	for _, m := range lost {
		<-m.Answered()
		err := s.confirms.Result(&m.Publication)
		if !isEnd(err) {
			s.conclude(m, err)
			continue
		}
		open = append(open, m)
	}
	if refused {
		p.proven.refused(refusal, slices.DeleteFunc(slices.Clone(open), func(m *Message) bool {
			return s.lane.kind == probeLane && !m.assumed // the message was unproven, so its refusal does not revoke a proof
		}))
	}
	for _, m := range open {
		err := result(m, s.confirms.Err())
		if refused {
			if cause := causeFor(m, refusal, len(open) == 1); cause != nil {
				err = cause
			}
		}
		<-s.room
		m.resolve(err)
	}
}

// isEnd reports whether err only means that the channel has closed. Such an error is not an answer.
func isEnd(err error) bool {
	if err == nil || errors.Is(err, amqpconn.ErrNacked) {
		return false
	}
	_, returned := errors.AsType[*amqpconn.Return](err)
	return !returned
}
