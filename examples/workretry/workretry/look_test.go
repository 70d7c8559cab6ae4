package workretry

import (
	"strings"
	"testing"
	"time"
)

// If another program has deleted a queue, a passive declaration closes the channel of look. Nevertheless, remove
// deletes the other queues and exchanges.
func TestRemoveAfterQueueWasDeleted(t *testing.T) {
	inMemory(t, func(t *testing.T, b Broker) {
		l, err := newLook(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		way := ways("left.", time.Second)[3]
		all, err := way.topology(time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range all.Queues[1:] {
			if _, err := l.ch.QueueDeclare(q.Name, true, false, false, false, nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, x := range all.Exchanges {
			if err := l.ch.ExchangeDeclare(x.Name, x.Kind, true, false, false, false, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.atRest(all, way.queue); err == nil || !strings.Contains(err.Error(), all.Queues[0].Name) {
			t.Errorf("atRest of a deleted queue: got %v, want not found", err)
		}
		if err := l.remove(all); err != nil {
			t.Error(err)
		}
		for _, q := range all.Queues {
			ch, err := l.conn.Channel()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ch.QueueDeclarePassive(q.Name, true, false, false, false, nil); err == nil {
				t.Errorf("queue %s not deleted", q.Name)
			}
		}
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
}
