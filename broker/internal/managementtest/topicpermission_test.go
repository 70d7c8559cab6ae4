package managementtest

import (
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
)

// A topic permission limits the keys with which a user publishes to a topic exchange and binds to it, with the same texts
// as in RabbitMQ. It takes effect in connections that are in use.
func TestTopicPermissionsMatchRabbitMQ(t *testing.T) {
	ours, theirs := embedded(t, broker.Config{}), rabbitMQ(t)
	vhost := ours.vhost(t)
	user := vhost + "-a.b-z"
	theirs.must(t, "PUT", "/api/vhosts/"+vhost, "")
	t.Cleanup(func() { theirs.must(t, "DELETE", "/api/vhosts/"+vhost, "") })
	var channels [2]*amqp.Connection
	for i, b := range []*target{ours, theirs} {
		b.must(t, "PUT", "/api/users/"+user, `{"password":"p","tags":""}`)
		t.Cleanup(func() { b.must(t, "DELETE", "/api/users/"+user, "") })
		b.must(t, "PUT", "/api/permissions/"+vhost+"/"+user, `{"configure":".*","write":".*","read":".*"}`)
		b.must(t, "PUT", "/api/exchanges/"+vhost+"/direct", `{"type":"direct"}`)
		b.must(t, "PUT", "/api/exchanges/"+vhost+"/inner", `{"type":"topic","internal":true}`)
		b.must(t, "PUT", "/api/queues/"+vhost+"/q", `{"durable":true}`)
		var err error
		channels[i], err = b.connectAs(user, vhost)
		must(t, err)
		t.Cleanup(func() { channels[i].Close() })
	}
	acts := []struct {
		name string
		do   func(ch *amqp.Channel) error
	}{}
	add := func(name string, do func(ch *amqp.Channel) error) {
		acts = append(acts, struct {
			name string
			do   func(ch *amqp.Channel) error
		}{name, do})
	}
	for _, key := range []string{"", "a", "a.b", "b", user, vhost + "." + user, "{client_id}", "aXb-z", "a\nb"} {
		for _, exchange := range []string{"amq.topic", "direct", "", "inner", "amq.topic\r\n"} {
			add(fmt.Sprintf("publish %q to %q", key, exchange), func(ch *amqp.Channel) error {
				return publishTo(ch, exchange, key, nil)
			})
		}
		add(fmt.Sprintf("publish with CC %q", key), func(ch *amqp.Channel) error {
			return publishTo(ch, "amq.topic", "a", amqp.Table{"CC": []any{"a", key}})
		})
		add(fmt.Sprintf("publish with BCC %q", key), func(ch *amqp.Channel) error {
			return publishTo(ch, "amq.topic", "a", amqp.Table{"BCC": []any{key}})
		})
		for _, exchange := range []string{"amq.topic", "direct", "inner", "amq.topic\r\n"} {
			add(fmt.Sprintf("bind %q to %q", key, exchange), func(ch *amqp.Channel) error {
				return ch.QueueBind("q", key, exchange, false, nil)
			})
			add(fmt.Sprintf("unbind %q from %q", key, exchange), func(ch *amqp.Channel) error {
				return ch.QueueUnbind("q", key, exchange, nil)
			})
			add(fmt.Sprintf("bind exchange %q to %q", key, exchange), func(ch *amqp.Channel) error {
				return ch.ExchangeBind("amq.fanout", key, exchange, false, nil)
			})
		}
	}
	outcome := func(c *amqp.Connection, do func(ch *amqp.Channel) error) string {
		ch, err := c.Channel()
		must(t, err)
		defer ch.Close()
		if err := do(ch); err != nil {
			return err.Error()
		}
		return "ok"
	}
	patterns := []string{"", "^a", "^a$", "{username}", "^{vhost}[.]{username}$", "[{username}]", "{client_id}", ".*", `^a\.b|^b`}
	refused := 0
	for i, write := range patterns {
		read := patterns[(i+4)%len(patterns)]
		for _, b := range []*target{ours, theirs} {
			for _, exchange := range []string{"amq.topic", "direct", "", "inner"} {
				b.must(t, "PUT", "/api/topic-permissions/"+vhost+"/"+user, fmt.Sprintf(`{"exchange":%q,"write":%q,"read":%q}`, exchange, write, read))
			}
		}
		for _, act := range acts {
			got, want := outcome(channels[0], act.do), outcome(channels[1], act.do)
			if got != want {
				t.Errorf("write %q, read %q: %s\ngot  %s\nwant %s", write, read, act.name, got, want)
			}
			if want != "ok" {
				refused++
			}
		}
	}
	if refused == 0 {
		t.Error("no act was refused")
	}
}

// publishTo publishes a message and waits for the confirm, or for the end of the channel.
func publishTo(ch *amqp.Channel, exchange, key string, headers amqp.Table) error {
	ended := ch.NotifyClose(make(chan *amqp.Error, 1))
	if err := ch.Confirm(false); err != nil {
		return err
	}
	confirms := ch.NotifyPublish(make(chan amqp.Confirmation, 1))
	if err := ch.Publish(exchange, key, false, false, amqp.Publishing{Headers: headers}); err != nil {
		return err
	}
	if _, confirmed := <-confirms; confirmed {
		return nil
	}
	return <-ended
}
