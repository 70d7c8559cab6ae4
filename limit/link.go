package limit

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/inner"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// requests is the queue for the requests of a limit. Its active consumer is the leader. If the node of the leader fails, RabbitMQ 4.3
// activates another consumer after x-consumer-disconnected-timeout, 60 s by default. Shares would end before.
func requests(name string) topology.Queue {
	return topology.Queue{Name: protocol.LimitQueuePrefix + name, Args: topology.Table{
		"x-queue-type": "quorum", "x-single-active-consumer": true,
		"x-message-ttl": int64(lease / time.Millisecond), "x-max-length": int64(10_000), "x-expires": int64(time.Hour / time.Millisecond),
		"x-consumer-disconnected-timeout": int64(beat / time.Millisecond),
	}}
}

// answers returns a queue for the answers to a member. Each session has another one: if a node of the cluster fails, RabbitMQ locks the
// queue of the former connection until the node returns.
func answers(name, session string) topology.Queue {
	return topology.Queue{
		Name: protocol.LimitQueuePrefix + name + "." + session, Transient: true, Exclusive: true, AutoDelete: true,
		Args: topology.Table{"x-queue-type": "classic", "x-max-length": int64(100)},
	}
}

// run keeps a session open until ctx is done or the client is closed.
func (l *Limit) run(ctx context.Context, client *reprise.Client) {
	defer close(l.done)
	in := inner.Of(client)
	retrier := retry.Retrier{Schedule: in.Reconnect}
	for {
		began := time.Now()
		conn, err := in.Consuming.Get(ctx)
		if err == nil {
			err = conn.Do(ctx, func(ch *amqpconn.Channel) error {
				s := &session{limit: l, id: rand.Text()[:10], publishing: in.Publishing}
				defer s.close()
				return s.serve(ctx, ch)
			})
		}
		if _, current := in.Consuming.Current(); ctx.Err() != nil || errors.Is(current, amqpconn.ErrClosed) {
			return
		}
		l.lost(err)
		delay := retrier.Failed(time.Since(began))
		l.cfg.Logger.Warn("limit interrupted: attempts wait", "limit", l.cfg.Name, "error", err, retry.Next(delay))
		if retry.Sleep(ctx, delay) != nil {
			return
		}
	}
}

// lost ends the share. The consumers of the workers are lost, too.
func (l *Limit) lost(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.member.share, l.member.sent, l.trouble = 0, -1, err
	l.signal()
}

// session is the connection of a member.
type session struct {
	limit      *Limit
	id         string
	publishing *amqpconn.Link
	sending    *amqpconn.Channel // nil: none
	leader     *leader
}

// serve sends requests, divides the limit if this process is the leader, and applies answers.
func (s *session) serve(ctx context.Context, ch *amqpconn.Channel) error {
	l := s.limit
	queue, mine := requests(l.cfg.Name), answers(l.cfg.Name, s.id)
	_, consumers, err := ch.Counts(ctx, queue, false)
	if err != nil {
		return err
	}
	if err := ch.DeclareQueue(ctx, mine, false); err != nil {
		return err
	}
	answered, err := ch.Listen(ctx, mine.Name, true)
	if err != nil {
		return err
	}
	requested, err := ch.Listen(ctx, queue.Name, false)
	if err != nil {
		return err
	}
	s.leader = newLeader(l.cfg, l.id, consumers == 0, time.Now())
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for first := true; ; first = false {
		if !first {
			s.leader.beat(time.Now())
		}
		if err := s.request(ctx); err != nil {
			return err
		}
		for due := false; !due; {
			select {
			case in, ok := <-requested:
				if !ok {
					return amqpconn.ErrGone
				}
				if err := s.divide(ctx, in.Body); err != nil {
					return err
				}
			case in, ok := <-answered:
				if !ok {
					return amqpconn.ErrGone
				}
				due = l.receive(in.Body)
			case <-tick.C:
				due = true
			case <-l.wake:
				due = true
			case <-ch.Context().Done():
				return context.Cause(ch.Context())
			case <-ctx.Done():
				l.lost(ErrClosed)
				_ = s.request(ctx) // others receive the share at once
				return nil
			}
		}
	}
}

// request sends the request of this member, unless the broker blocks publishers. It blocks all of them, so that shares stay as
// they are.
func (s *session) request(ctx context.Context) error {
	l := s.limit
	blocked := errors.Is(s.publishing.Trouble(), reprise.ErrBlocked)
	l.mu.Lock()
	now := l.now()
	var r request
	if blocked {
		l.member.blocked(now)
	} else {
		r = l.member.request(now, l.id)
		r.Session, r.Leaves = s.id, ctx.Err() != nil
	}
	l.mu.Unlock()
	if blocked {
		return nil
	}
	return s.send(ctx, requests(l.cfg.Name).Name, r)
}

// divide answers a request.
func (s *session) divide(ctx context.Context, body []byte) error {
	l := s.limit
	var r request
	if json.Unmarshal(body, &r) != nil || r.Member == "" {
		return nil
	}
	if r.Member == l.id {
		s.leader.own = l.born.Add(r.Sent)
	}
	for _, reply := range s.leader.answer(time.Now(), r) {
		if err := s.send(ctx, answers(l.cfg.Name, reply.session).Name, reply.answer); err != nil {
			return err
		}
	}
	return nil
}

// receive applies an answer, and reports whether the leader waits for the next request.
func (l *Limit) receive(body []byte) (due bool) {
	var a answer
	if json.Unmarshal(body, &a) != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	due = l.member.receive(l.now(), a)
	l.trouble = nil
	l.signal()
	return due
}

// send publishes a message. A message that is lost is replaced by that of the next beat.
func (s *session) send(ctx context.Context, to string, what any) error {
	body, err := json.Marshal(what)
	if err != nil {
		return err
	}
	if s.sending == nil || s.sending.IsClosed() {
		conn, err := s.publishing.Current()
		if err != nil {
			s.limit.cfg.Logger.Debug("limit: cannot send", "error", err)
			return nil
		}
		if s.sending, err = conn.Open(ctx); err != nil {
			return fmt.Errorf("cannot open a channel: %w", err)
		}
	}
	_ = s.sending.Send("", to, &amqpconn.Message{Body: body, ContentType: "application/json"})
	return nil
}

func (s *session) close() {
	if s.sending != nil {
		s.sending.Close(context.Background())
	}
}
