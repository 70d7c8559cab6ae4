package vhosttest

import (
	"log/slog"
	"testing"

	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// The close of a connection without exclusive queues does not wait for a declaration in progress.
func TestOwnerWithoutQueuesDoesNotWaitForDeclaration(t *testing.T) {
	v := vhost.New("/", vhost.Config{Log: slog.New(slog.DiscardHandler)})
	defer v.Close()
	declare := func(name string, owner any, may func(string) error) {
		t.Helper()
		if _, err := v.DeclareQueue(&amqpwire.QueueDeclare{Queue: name, Exclusive: true}, owner, may); err != nil {
			t.Fatal(err)
		}
	}
	mine, other := new(int), new(int)
	declare("mine", mine, anything)
	declare("other", other, func(string) error { // runs during the declaration
		v.OwnerGone(new(string))
		return nil
	})
	v.OwnerGone(mine)
	if v.FindQueue("mine") != nil || v.FindQueue("other") == nil {
		t.Errorf("OwnerGone deleted the wrong queues: %v", v.Queues())
	}
}
