package session

import "github.com/reprisemq/reprise/internal/amqpwire"

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
	return disk.Wait(kept)
}

// changed answers a method that may have changed the topology. A client that reads the answer may rely on the change.
func (ch *channel) changed(noWait bool, m amqpwire.Method) error {
	if noWait {
		return nil
	}
	if err := ch.s.vhost.Sync(); err != nil {
		return err
	}
	ch.send(m)
	return nil
}
