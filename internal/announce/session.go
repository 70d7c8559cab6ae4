package announce

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/topology"
)

// session is the state of an agent on one connection. It uses one channel at a time.
type session struct {
	agent *Agent
	conn  *amqpconn.Conn
	ch    atomic.Pointer[amqpconn.Channel] // nil before the first channel

	statusesRefused bool                // the user has no permission to send statuses
	commandsRefused bool                // the user has no permission to receive commands
	retriesRefused  atomic.Bool         // the user has no permission to report retries
	commands        amqpconn.Deliveries // nil if the session does not receive commands
}

// Actions that may require a permission that the user does not have.
const (
	permStatuses = iota
	permCommands
	permPauses
	permRetries
)

var missing = [...]string{
	permStatuses: "operators cannot see the workers: the user may not declare, or write to, the exchange " + protocol.WorkersExchange,
	permCommands: "workers notice commands late: the user may not declare the exchange " + protocol.ControlExchange + " and bind a queue " + protocol.ControlQueuePrefix + "… to it",
	permRetries:  "operators cannot see the retries: the user may not declare, or write to, the exchange " + protocol.RetriesExchange,
	permPauses:   "workers may miss the pause of a queue: the user may not declare queues " + protocol.PauseQueuePrefix + "…",
}

// refused logs each missing permission once.
func (a *Agent) refused(what int, queue string) {
	a.logged[what].Do(func() { a.cfg.Log.Info("not permitted", "queue", queue, "reason", missing[what]) })
}

// requestTimeout is the time limit for all requests of one check of the pauses. During a check, the session does not
// execute commands.
const requestTimeout = 10 * time.Second

// minGap is the minimum time between the last status of a worker and a status that a change causes.
const minGap = 100 * time.Millisecond

var errNoConsumer = errors.New("the broker cancelled the consumer")

// serve sends statuses and receives commands until ctx is done, or until an error, such as a lost connection, ends the
// session.
func (s *session) serve(ctx context.Context) error {
	tick := time.NewTicker(protocol.StatusInterval)
	defer tick.Stop()
	soon := time.NewTimer(0)
	defer soon.Stop()
	report := time.After(reportDelay) // for retries that the previous session has not reported
	for {
		if ch := s.ch.Load(); ch == nil || ch.IsClosed() {
			if err := s.lost(ch); err != nil {
				return err
			}
			if err := s.setUp(ctx); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.ch.Load().Context().Done():
			if !s.ch.Load().IsClosed() {
				return context.Cause(s.ch.Load().Context()) // the channel is no longer usable
			}
		case in, ok := <-s.commands:
			if !ok {
				if !s.ch.Load().IsClosed() {
					return errNoConsumer
				}
				s.commands = nil // the context of the channel is canceled next, with the reason
				continue
			}
			if c, ok := protocol.ReadCommand(in.Body); ok {
				s.execute(ctx, c)
			}
		case <-tick.C:
			s.check(ctx, false, func(m *Member) bool { return m.mayDeclare.Load() }) // RabbitMQ logs an error for each missing queue
			s.statuses(everyMember)
		case <-soon.C:
			now := time.Now()
			s.check(ctx, true, func(m *Member) bool { return m.expire(now) })
		case <-s.agent.wake:
		case <-s.agent.retries.due:
			report = time.After(reportDelay)
		case <-report:
			if report = nil; s.conn.Blocked() != nil {
				report = time.After(reportDelay)
			}
			s.reportRetries()
		}
		soon.Reset(s.next())
	}
}

func everyMember(*Member) bool { return true }

// setUp opens a channel, declares the exchanges and the queue for commands, and subscribes. Then it sends all statuses,
// because watchers may have missed some.
func (s *session) setUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.conn.Timeout(), amqpconn.ErrSilent)
	defer cancel()
	s.commands = nil
	var err error
	if s.statusesRefused, err = s.step(ctx, s.statusesRefused, permStatuses, s.announce); err != nil {
		return err
	}
	retriesRefused, err := s.step(ctx, s.retriesRefused.Load(), permRetries, s.declareRetries)
	if err != nil {
		return err
	}
	s.retriesRefused.Store(retriesRefused)
	if s.commandsRefused, err = s.step(ctx, s.commandsRefused, permCommands, s.listen); err != nil {
		return err
	}
	err = s.try(ctx, func(*amqpconn.Channel) error { return nil })
	if err != nil {
		return err
	}
	s.agent.current.Store(s)
	s.check(ctx, true, everyMember)
	s.statuses(everyMember)
	return nil
}

// step calls take, unless the parameter before reports an earlier refusal. It reports whether the broker has refused the
// step, now or earlier.
func (s *session) step(ctx context.Context, before bool, what int, take func(context.Context) error) (refused bool, err error) {
	if before {
		return true, nil
	}
	err = take(ctx)
	if _, refused = amqpconn.RefusedChannel(err); refused {
		s.agent.refused(what, "")
		err = nil
	}
	return refused, err
}

// try makes a request on the channel of the session. If the channel is closed, for example after a refusal, try first
// opens a new channel.
func (s *session) try(ctx context.Context, request func(*amqpconn.Channel) error) error {
	ch := s.ch.Load()
	if ch == nil || ch.IsClosed() {
		var err error
		if ch, err = s.conn.OpenWritable(ctx); err != nil {
			return err
		}
		s.ch.Store(ch)
	}
	return request(ch)
}

// exchange declares an exchange. If the broker refuses the declaration, exchange checks whether the exchange exists.
func (s *session) exchange(ctx context.Context, e topology.Exchange) error {
	err := s.try(ctx, func(ch *amqpconn.Channel) error { return ch.DeclareExchange(ctx, e) })
	if _, refused := amqpconn.RefusedChannel(err); refused {
		err = s.try(ctx, func(ch *amqpconn.Channel) error { return ch.CheckExchange(ctx, e.Name) })
	}
	return err
}

func (s *session) announce(ctx context.Context) error {
	return s.exchange(ctx, topology.Exchange{Name: protocol.WorkersExchange, Kind: topology.Topic})
}

func (s *session) listen(ctx context.Context) error {
	if err := s.exchange(ctx, topology.Exchange{Name: protocol.ControlExchange, Kind: topology.Topic}); err != nil {
		return err
	}
	q := protocol.ControlQueue(newID())
	return s.try(ctx, func(ch *amqpconn.Channel) error {
		err := ch.DeclareQueue(ctx, q, false)
		if err == nil {
			err = ch.Bind(ctx, topology.Binding{Exchange: protocol.ControlExchange, Queue: q.Name, RoutingKey: "#"})
		}
		if err == nil {
			s.commands, err = ch.Listen(ctx, q.Name, true)
		}
		return err
	})
}

// lost returns the reason why a channel has closed, or nil if the session can continue on another channel.
func (s *session) lost(ch *amqpconn.Channel) error {
	if ch == nil {
		return nil
	}
	<-ch.Context().Done()
	err := context.Cause(ch.Context())
	refusal, refused := amqpconn.RefusedChannel(err)
	switch {
	case !refused:
		return err
	case strings.Contains(refusal.Text, "'"+protocol.RetriesExchange+"'"):
		if refusal.Code == amqpconn.AccessRefused {
			s.retriesRefused.Store(true)
			s.agent.refused(permRetries, "")
		}
	case !strings.Contains(refusal.Text, "'"+protocol.WorkersExchange+"'"):
		if refusal.Code != amqpconn.AccessRefused { // Member.ask handles a refused access to a pause
			return err
		}
	case refusal.Code == amqpconn.AccessRefused: // the broker has refused the statuses
		s.statusesRefused = true
		s.agent.refused(permStatuses, "")
	}
	return nil // setUp declares a deleted exchange again
}

// check reads and applies the pauses of the selected workers' queues.
func (s *session) check(ctx context.Context, details bool, which func(*Member) bool) {
	if s.conn.Blocked() != nil {
		return // the broker does not answer requests
	}
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, amqpconn.ErrSilent)
	defer cancel()
	for _, m := range s.agent.all() {
		if which(m) {
			m.check(ctx, s.conn, s.ch.Load(), details)
		}
	}
}

func (s *session) execute(ctx context.Context, c protocol.Command) {
	targeted := func(m *Member) bool {
		return (m.Queue == c.Queue || c.Queue == "" && c.Do == protocol.DoReport) && (c.Worker == "" || c.Worker == m.id)
	}
	for _, m := range s.agent.all() {
		switch {
		case !targeted(m):
		case c.Do == protocol.DoReport:
			m.changed.Store(true)
		case c.Do == protocol.DoPause && c.Worker != "":
			p := c.Pause
			m.setWorker(&p)
		case c.Do == protocol.DoResume && c.Worker != "":
			m.setWorker(nil)
		case c.Do == protocol.DoPause:
			m.setHint(c.Pause)
		}
	}
	if c.Worker == "" && (c.Do == protocol.DoPause || c.Do == protocol.DoResume) {
		s.check(ctx, true, targeted) // the broker stores the pause of a queue
	}
}

func (s *session) close() {
	if ch := s.ch.Load(); ch != nil {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		defer cancel()
		ch.Close(ctx)
	}
}

// next sends the statuses that are due, and returns the time until it must be called again.
func (s *session) next() time.Duration {
	now := time.Now()
	wait := protocol.StatusInterval
	s.statuses(func(m *Member) bool {
		if !m.changed.Load() {
			return false
		}
		if early := minGap - now.Sub(m.lastSent()); early > 0 {
			wait = min(wait, early)
			return false
		}
		return true
	})
	for _, m := range s.agent.all() {
		if due := m.due(); !due.IsZero() {
			wait = min(wait, max(time.Second, due.Sub(now))) // by the clock of the broker, the pause may last longer
		}
	}
	return wait
}

// statuses sends the statuses of the selected workers.
func (s *session) statuses(which func(*Member) bool) {
	if s.statusesRefused || s.conn.Blocked() != nil {
		return
	}
	s.agent.sending.Lock()
	defer s.agent.sending.Unlock()
	for _, m := range s.agent.all() {
		if which(m) {
			m.changed.Store(false)
			s.publish(m)
		}
	}
}

// publish sends the status of m without waiting for a confirm, because the next status replaces it.
func (s *session) publish(m *Member) {
	now := time.Now()
	m.sent(now)
	body, err := m.status(now).Encode()
	if err != nil {
		return // impossible, because the name of a queue is short enough
	}
	_ = s.ch.Load().Send(protocol.WorkersExchange, m.Queue, &amqpconn.Message{ContentType: "application/json", Timestamp: now, Body: body})
}
