package session

import (
	"context"
	"errors"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// errUnanswered stops a method without a reply, because the client has disconnected or the session has sent
// connection.close.
var errUnanswered = errors.New("session is closing")

// await runs the function do, which waits for the disk. The reader calls it and keeps the turn, so that the state of
// the session does not change. await releases the session lock, so that callers that inspect the session do not wait
// for the disk.
//
// While the session waits, it does not read and cannot detect a silent client. It still detects a lost connection,
// because the writes of heartbeats fail.
func (s *Session) await(do func(context.Context) error) error {
	s.waiting.Store(true)
	s.mu.Unlock()
	err := do(s.serving)
	s.mu.Lock()
	s.waiting.Store(false)
	if err != nil && s.serving.Err() != nil {
		return errUnanswered
	}
	return err
}

// saveAtomically runs the function do, whose changes the store saves atomically, and waits until they are durable.
func (s *Session) saveAtomically(do func()) error {
	disk := s.config.Store
	if disk == nil {
		do()
		return nil
	}
	disk.Hold()
	do()
	commit := disk.Notify(&s.confirms) // before Release, so that this commit includes all changes
	disk.Release()
	return s.await(func(ctx context.Context) error { return disk.Wait(ctx, commit) })
}

// changed replies to a method that may have changed the topology. It waits until the change is durable, so that the client
// can rely on it after the reply. With no-wait, it waits only if the store has a backlog, so that the client cannot
// increase the backlog without limit.
func (ch *channel) changed(noWait bool, m amqpwire.Method) error {
	if noWait && ch.s.backlog() == nil {
		return nil
	}
	if err := ch.s.await(ch.s.vhost.Sync); err != nil {
		return err
	}
	ch.reply(noWait, m)
	return nil
}

// conclude waits for the store and sends all outstanding confirms of the channels. If the store fails, conclude does not
// confirm the messages that are not durable.
func (s *Session) conclude(channels ...*channel) {
	last := s.confirms.last(channels)
	if last > 0 && s.await(func(ctx context.Context) error { return s.config.Store.Wait(ctx, last) }) == nil {
		s.confirms.Committed(last)
		return
	}
	s.confirms.flush()
}
