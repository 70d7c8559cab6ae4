package workretry

import (
	"strings"
	"testing"
	"time"
)

// Somebody has deleted a queue while the comparison looked at it, which cost it its
// channel: what else it has declared is removed all the same.
func TestNothingIsLeftBehind(t *testing.T) {
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
			t.Errorf("a queue that is gone is at rest: %v", err)
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
				t.Errorf("%s is left behind", q.Name)
			}
		}
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
}
