package session

import (
	"context"
	"errors"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// errUnanswered is for what a client asked for that has gone meanwhile, or to which connection.close has been sent: nobody
// is told what came of it.
var errUnanswered = errors.New("the session ends")

// await does something that waits for the disk. It is called by the reader, in its turn, and keeps it: nothing changes
// meanwhile, and whoever asks about the session need not wait, too.
//
// A client that is not read cannot be told from a silent one. That it has gone shows when a heartbeat cannot be written.
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

// keepTogether does something of which the store keeps all or nothing, and waits until it has.
func (s *Session) keepTogether(do func()) error {
	disk := s.config.Store
	if disk == nil {
		do()
		return nil
	}
	disk.Hold()
	do()
	kept := disk.Notify(&s.confirms) // no commit begins between Hold and Release: this one has all of it
	disk.Release()
	return s.await(func(ctx context.Context) error { return disk.Wait(ctx, kept) })
}

// changed answers a method that may have changed the topology. A client that reads the answer may rely on the change. One that
// wants no answer waits all the same while the store has a backlog, to which it would add without end.
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

// conclude tells all that there is to tell of some channels, for which it waits for the store. Of what a store that has
// failed did not keep nobody is told.
func (s *Session) conclude(channels ...*channel) {
	last := s.confirms.last(channels)
	if last > 0 && s.await(func(ctx context.Context) error { return s.config.Store.Wait(ctx, last) }) == nil {
		s.confirms.Committed(last)
		return
	}
	s.confirms.flush()
}
