package managementtest

import (
	"encoding/json"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A virtual host determines the type of queues that are declared without one. Transient and auto-delete queues stay classic.
func TestDefaultQueueType(t *testing.T) {
	both(t, func(t *testing.T, b *target) {
		v := b.vhost(t)
		ch := get[*amqp.Channel](t)(b.dial(t, v).Channel())
		_, err := ch.QueueDeclare("before", true, false, false, false, nil)
		must(t, err)
		b.must(t, "PUT", "/api/vhosts/"+v, `{"default_queue_type":"quorum","description":"d"}`)
		for name, want := range map[string]struct {
			durable, autoDelete, exclusive bool
			args                           amqp.Table
			kind                           string
		}{
			"durable":   {durable: true, kind: "quorum"},
			"empty":     {durable: true, args: amqp.Table{"x-queue-type": ""}, kind: "quorum"},
			"undefined": {durable: true, args: amqp.Table{"x-queue-type": "undefined"}, kind: "quorum"},
			"classic":   {durable: true, args: amqp.Table{"x-queue-type": "classic"}, kind: "classic"},
			"auto":      {durable: true, autoDelete: true, kind: "classic"},
			"exclusive": {exclusive: true, kind: "classic"},
		} {
			_, err := ch.QueueDeclare(name, want.durable, want.autoDelete, want.exclusive, false, want.args)
			must(t, err)
			var q struct{ Type string }
			must(t, json.Unmarshal([]byte(b.must(t, "GET", "/api/queues/"+v+"/"+name, "")), &q))
			if q.Type != want.kind {
				t.Errorf("queue %s: got type %s, want %s", name, q.Type, want.kind)
			}
		}
		if _, err := ch.QueueDeclare("durable", true, false, false, false, nil); err != nil {
			t.Errorf("equal declaration: %v", err)
		}
		_, err = ch.QueueDeclare("before", true, false, false, false, nil)
		want := "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'before' in vhost '" + v + "': received 'quorum' but current is 'classic'"
		if e, ok := err.(*amqp.Error); !ok || e.Reason != want {
			t.Errorf("declaration of a classic queue: got error %v, want %s", err, want)
		}
		for _, body := range []string{`{"default_queue_type":"nosuch"}`, `{"default_queue_type":""}`} {
			if status, text := b.call(t, "PUT", "/api/vhosts/"+v, body); status != 400 {
				t.Errorf("%s: got %d %s, want 400", body, status, text)
			}
		}
		b.must(t, "PUT", "/api/vhosts/"+v, `{}`) // replaces all metadata
		var metadata struct {
			Metadata struct {
				Description string
				QueueType   string `json:"default_queue_type"`
			}
		}
		must(t, json.Unmarshal([]byte(b.must(t, "GET", "/api/vhosts/"+v, "")), &metadata))
		if m := metadata.Metadata; m.Description != "" || m.QueueType != "classic" {
			t.Errorf("metadata after {}: got %+v, want none", m)
		}
	})
}
