package conformance

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/testkit"
)

func TestRedeclareQueueWithOtherProperties(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		plain := c.queue("plain", nil)
		timed := c.queue("timed", amqp.Table{"x-message-ttl": 1000, "x-dead-letter-exchange": "a"})
		declare := func(name string, durable, autoDelete bool, args amqp.Table) func(*amqp.Channel) error {
			return func(ch *amqp.Channel) error {
				_, err := ch.QueueDeclare(name, durable, autoDelete, false, false, args)
				return err
			}
		}
		c.refused(406, "inequivalent arg 'auto_delete' for queue '"+plain+"' in vhost '/': received 'true' but current is 'false'",
			declare(plain, true, true, nil))
		c.refused(406, "inequivalent arg 'x-message-ttl' for queue '"+timed+"' in vhost '/': received '2000' but current is '1000'",
			declare(timed, true, false, amqp.Table{"x-message-ttl": 2000, "x-dead-letter-exchange": "a"}))
		c.refused(406, "inequivalent arg 'x-message-ttl' for queue '"+timed+"' in vhost '/': "+
			"received none but current is the value '1000' of type 'signedint'",
			declare(timed, true, false, amqp.Table{"x-dead-letter-exchange": "a"}))
		c.refused(406, "inequivalent arg 'x-dead-letter-exchange' for queue '"+plain+"' in vhost '/': "+
			"received the value 'a' of type 'longstr' but current is none",
			declare(plain, true, false, amqp.Table{"x-dead-letter-exchange": "a"}))
		// The broker compares the queue type before arguments that only one of the two types supports.
		difference := "received 'quorum' but current is 'classic'"
		if b.Version == "3.10" {
			difference = "received the value 'quorum' of type 'longstr' but current is none"
		}
		c.refused(406, "inequivalent arg 'x-queue-type' for queue '"+plain+"' in vhost '/': "+difference,
			declare(plain, true, false, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 7}))
		// The broker does not compare unknown arguments. A queue that was declared without a type is a classic queue.
		c.must(declare(plain, true, false, amqp.Table{"x-unknown": 1, "x-queue-type": "classic"})(c.Channel))
	})
}

func TestRedeclareExchangeWithOtherProperties(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		x := c.exchange("x", amqp.ExchangeDirect)
		for arg, declare := range map[string]func(ch *amqp.Channel) error{
			"type' for exchange '" + x + "' in vhost '/': received 'fanout' but current is 'direct'": func(ch *amqp.Channel) error {
				return ch.ExchangeDeclare(x, "fanout", true, false, false, false, nil)
			},
			"durable' for exchange '" + x + "' in vhost '/': received 'false' but current is 'true'": func(ch *amqp.Channel) error {
				return ch.ExchangeDeclare(x, "direct", false, false, false, false, nil)
			},
			"auto_delete' for exchange '" + x + "' in vhost '/': received 'true' but current is 'false'": func(ch *amqp.Channel) error {
				return ch.ExchangeDeclare(x, "direct", true, true, false, false, nil)
			},
			"internal' for exchange '" + x + "' in vhost '/': received 'true' but current is 'false'": func(ch *amqp.Channel) error {
				return ch.ExchangeDeclare(x, "direct", true, false, true, false, nil)
			},
		} {
			c.refused(406, "inequivalent arg '"+arg, declare)
		}
	})
}

func TestExclusiveQueues(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		q := testkit.Name(t, "q")
		owner := connect(t, b)
		_, err := owner.QueueDeclare(q, false, false, true, false, nil)
		c.must(err)
		owner.bind(q, "bound", "amq.direct")
		locked := "cannot obtain exclusive access to locked queue '" + q + "' in vhost '/'. It could be originally declared on " +
			"another connection or the exclusive property value does not match that of the original declaration."
		for name, try := range map[string]func(ch *amqp.Channel) error{
			"declare": func(ch *amqp.Channel) error {
				_, err := ch.QueueDeclare(q, false, false, true, false, nil)
				return err
			},
			"passive": func(ch *amqp.Channel) error {
				_, err := ch.QueueDeclarePassive(q, false, false, true, false, nil)
				return err
			},
			"consume": func(ch *amqp.Channel) error {
				_, err := ch.Consume(q, "", false, false, false, false, nil)
				return err
			},
			"get":    func(ch *amqp.Channel) error { _, _, err := ch.Get(q, true); return err },
			"purge":  func(ch *amqp.Channel) error { _, err := ch.QueuePurge(q, false); return err },
			"delete": func(ch *amqp.Channel) error { _, err := ch.QueueDelete(q, false, false, false); return err },
			"bind":   func(ch *amqp.Channel) error { return ch.QueueBind(q, "", "amq.fanout", false, nil) },
			"unbind": func(ch *amqp.Channel) error { return ch.QueueUnbind(q, "bound", "amq.direct", nil) },
		} {
			t.Run(name, func(t *testing.T) {
				inner := *c
				inner.t = t
				inner.refused(405, locked, try)
			})
		}
		c.put(q, "publishing is free to all")
		if d := owner.get(q); string(d.Body) != "publishing is free to all" {
			t.Errorf("message: got %q, want \"publishing is free to all\"", d.Body)
		}
		// The broker deletes the exclusive queue when its connection closes.
		c.must(owner.conn.Close())
		testkit.Eventually(t, timeout, func() bool {
			ch := c.open()
			defer ch.Close()
			_, err := ch.QueueDeclarePassive(q, false, false, false, false, nil)
			return err != nil && err.(*amqp.Error).Code == 404
		})
	})
}

func TestMissingObjects(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		missing := testkit.Name(t, "missing")
		noQueue, noExchange := "no queue '"+missing+"' in vhost '/'", "no exchange '"+missing+"' in vhost '/'"
		q := c.queue("q", nil)
		for _, test := range []struct {
			text string
			try  func(ch *amqp.Channel) error
		}{
			{noQueue, func(ch *amqp.Channel) error {
				_, err := ch.QueueDeclarePassive(missing, true, false, false, false, nil)
				return err
			}},
			{noQueue, func(ch *amqp.Channel) error { _, _, err := ch.Get(missing, true); return err }},
			{noQueue, func(ch *amqp.Channel) error {
				_, err := ch.Consume(missing, "", true, false, false, false, nil)
				return err
			}},
			{noQueue, func(ch *amqp.Channel) error { _, err := ch.QueuePurge(missing, false); return err }},
			{noQueue, func(ch *amqp.Channel) error { return ch.QueueBind(missing, "", "amq.fanout", false, nil) }},
			{noExchange, func(ch *amqp.Channel) error { return ch.QueueBind(q, "", missing, false, nil) }},
			{noExchange, func(ch *amqp.Channel) error {
				return ch.ExchangeDeclarePassive(missing, "direct", true, false, false, false, nil)
			}},
			{noExchange, func(ch *amqp.Channel) error { return ch.ExchangeBind(missing, "", "amq.fanout", false, nil) }},
			{noExchange, func(ch *amqp.Channel) error { return ch.Publish(missing, "k", false, false, amqp.Publishing{}) }},
			{"no previously declared queue", func(ch *amqp.Channel) error { return ch.QueueBind("", "", "amq.fanout", false, nil) }},
		} {
			c.refused(404, test.text, test.try)
		}
		// Deleting a missing object succeeds, as does deleting a binding that is missing or has a missing end.
		if n, err := c.QueueDelete(missing, false, false, false); n != 0 || err != nil {
			t.Errorf("deletion of a missing queue: got %d, %v, want 0 and no error", n, err)
		}
		c.must(c.ExchangeDelete(missing, false, false))
		c.must(c.QueueUnbind(q, "nothing", "amq.direct", nil))
		c.must(c.QueueUnbind(missing, "", "amq.direct", nil))
		c.must(c.QueueUnbind(q, "", missing, nil))
	})
}

func TestReservedNames(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", nil)
		for _, test := range []struct {
			text string
			try  func(ch *amqp.Channel) error
		}{
			{"operation not permitted on the default exchange", func(ch *amqp.Channel) error { return ch.QueueBind(q, "k", "", false, nil) }},
			{"operation not permitted on the default exchange", func(ch *amqp.Channel) error { return ch.QueueUnbind(q, "k", "", nil) }},
			{"operation not permitted on the default exchange", func(ch *amqp.Channel) error { return ch.ExchangeDelete("", false, false) }},
			{"operation not permitted on the default exchange", func(ch *amqp.Channel) error {
				return ch.ExchangeDeclare("", "direct", true, false, false, false, nil)
			}},
			{"exchange name 'amq.foo' contains reserved prefix 'amq.*'", func(ch *amqp.Channel) error {
				return ch.ExchangeDeclare("amq.foo", "direct", true, false, false, false, nil)
			}},
			{"queue name 'amq.foo' contains reserved prefix 'amq.*'", func(ch *amqp.Channel) error {
				_, err := ch.QueueDeclare("amq.foo", true, false, false, false, nil)
				return err
			}},
			{"deletion of system exchange 'amq.direct' in vhost '/' not allowed", func(ch *amqp.Channel) error {
				return ch.ExchangeDelete("amq.direct", false, false)
			}},
		} {
			c.refused(403, test.text, test.try)
		}
		c.must(c.ExchangeDeclare("amq.direct", "direct", true, false, false, false, nil))
	})
}

func TestExclusiveConsumers(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", nil)
		consume := func(exclusive bool) func(ch *amqp.Channel) error {
			return func(ch *amqp.Channel) error {
				_, err := ch.Consume(q, "", false, exclusive, false, false, nil)
				return err
			}
		}
		ch := c.open()
		c.must(consume(true)(ch))
		c.refused(403, "queue '"+q+"' in vhost '/' in exclusive use", consume(false))
		c.must(ch.Close())
		c.must(consume(false)(c.Channel))
		c.refused(403, "queue '"+q+"' in vhost '/' in exclusive use", consume(true))
	})
}

func TestInternalExchanges(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		x := testkit.Name(t, "x")
		c.must(c.ExchangeDeclare(x, "fanout", false, true, true, false, nil))
		c.cleanup(func(ch *amqp.Channel) { _ = ch.ExchangeDelete(x, false, false) })
		c.refused(403, "cannot publish to internal exchange '"+x+"' in vhost '/'", func(ch *amqp.Channel) error {
			return ch.Publish(x, "", false, false, amqp.Publishing{})
		})
	})
}

func TestUnknownExchangeType(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		code := 406
		if b.Version == "3.10" {
			code = 503
		}
		c.refused(code, "unknown exchange type 'nope'", func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare(testkit.Name(t, "x"), "nope", true, false, false, false, nil)
		})
	})
}

func TestUnknownDeliveryTags(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", nil)
		c.put(q, "1")
		for _, try := range []struct {
			text   string
			settle func(ch *amqp.Channel) error
		}{
			{"unknown delivery tag 7", func(ch *amqp.Channel) error { return ch.Ack(7, false) }},
			{"unknown delivery tag 7", func(ch *amqp.Channel) error { return ch.Nack(7, true, true) }},
			{"unknown delivery tag 7", func(ch *amqp.Channel) error { return ch.Reject(7, true) }},
			{"unknown delivery tag 0", func(ch *amqp.Channel) error { return ch.Ack(0, false) }},
			{"unknown delivery tag 1", func(ch *amqp.Channel) error { // acknowledged automatically
				_, _, err := ch.Get(q, true)
				if err == nil {
					err = ch.Ack(1, false)
				}
				return err
			}},
		} {
			c.refused(406, try.text, try.settle)
		}
		c.put(q, "2")
		c.refused(406, "unknown delivery tag 1", func(ch *amqp.Channel) error { // acknowledged twice
			d, _, err := ch.Get(q, false)
			if err == nil {
				err = ch.Ack(d.DeliveryTag, false)
			}
			if err == nil {
				err = ch.Ack(d.DeliveryTag, false)
			}
			return err
		})
		c.must(c.Ack(0, true)) // no error, although the channel has no deliveries
		c.put(q, "still open")
	})
}

func TestConnectionErrors(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", nil)
		c.refused(530, "attempt to reuse consumer tag 'y'", func(ch *amqp.Channel) error {
			if _, err := ch.Consume(q, "y", false, false, false, false, nil); err != nil {
				return err
			}
			_, err := ch.Consume(q, "y", false, false, false, false, nil)
			return err
		})
		c.refused(540, "immediate=true", func(ch *amqp.Channel) error { return ch.Publish("", q, false, true, amqp.Publishing{}) })
		c.refused(540, "prefetch_size!=0 (10)", func(ch *amqp.Channel) error { return ch.Qos(0, 10, false) })
		c.refused(540, "requeue=false", func(ch *amqp.Channel) error {
			//lint:ignore SA1019 RabbitMQ still replies to this deprecated method
			return ch.Recover(false)
		})
		c.refused(540, "active=false", func(ch *amqp.Channel) error { return ch.Flow(false) })
	})
}

func TestPublishWithOtherUserID(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		c.refused(406, "user_id property set to 'x' but authenticated user was 'guest'", func(ch *amqp.Channel) error {
			return ch.Publish("amq.direct", "k", false, false, amqp.Publishing{UserId: "x"})
		})
	})
}

func TestCCMustBeArray(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		for _, header := range []string{"CC", "BCC"} {
			c.refused(406, `invalid message: {unacceptable_type_in_header,"`+header+`",longstr}`, func(ch *amqp.Channel) error {
				return ch.Publish("amq.direct", "k", false, false, amqp.Publishing{Headers: amqp.Table{header: "a"}})
			})
		}
	})
}

func TestConditionalDeletion(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		full, used, x := c.queue("full", nil), c.queue("used", nil), c.exchange("x", "fanout")
		c.put(full, "1")
		c.consume(used, nil)
		c.bind(used, "", x)
		c.refused(406, "queue '"+full+"' in vhost '/' not empty", func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete(full, false, true, false)
			return err
		})
		c.refused(406, "queue '"+used+"' in vhost '/' in use", func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete(used, true, false, false)
			return err
		})
		c.refused(406, "exchange '"+x+"' in vhost '/' in use", func(ch *amqp.Channel) error { return ch.ExchangeDelete(x, true, false) })
	})
}

func TestMessageTooLarge(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		if b.Version == "3.10" {
			return // 3.10 accepts up to 128 MiB
		}
		q := c.queue("q", nil)
		c.refused(406, "message size 17825792 is larger than configured max size 16777216", func(ch *amqp.Channel) error {
			return ch.Publish("", q, false, false, amqp.Publishing{Body: make([]byte, 17<<20)})
		})
	})
}

// The broker reports an oversize message after it has read the complete body, because some clients do not read while they
// write.
func TestOversizeBodyIsReadToItsEnd(t *testing.T) {
	eachRaw(t, func(t *testing.T, b testkit.Target, r *raw) {
		if b.Version == "3.10" {
			return // 3.10 accepts up to 128 MiB
		}
		r.open(10, 0)
		const part = 100 << 10
		size := 16<<20 + 1
		r.send(1, &amqpwire.BasicPublish{RoutingKey: testkit.Name(t, "q")})
		r.write(amqpwire.AppendHeaderFrame(nil, 1, 60, uint64(size), []byte{0, 0}))
		for ; size > part; size -= part {
			r.write(amqpwire.AppendBodyFrames(nil, 1, make([]byte, part), 131072))
		}
		r.send(2, &amqpwire.ChannelOpen{})
		expect(r, &amqpwire.ChannelOpenOk{}) // before the error
		r.write(amqpwire.AppendBodyFrames(nil, 1, make([]byte, size), 131072))
		closed := expect(r, &amqpwire.ChannelClose{})
		want := "PRECONDITION_FAILED - message size 16777217 is larger than configured max size 16777216"
		if closed.ReplyText != want || closed.ClassID != 60 || closed.MethodID != 40 {
			t.Errorf("got  %+v\nwant %s", closed, want)
		}
	})
}

// A content header with a size over 512 MiB is malformed.
func TestMaximumBodySize(t *testing.T) {
	eachRaw(t, func(t *testing.T, b testkit.Target, r *raw) {
		if b.Version == "3.10" {
			return
		}
		r.open(10, 0)
		r.send(1, &amqpwire.BasicPublish{RoutingKey: testkit.Name(t, "q")})
		r.write(amqpwire.AppendHeaderFrame(nil, 1, 60, 512<<20+1, []byte{0, 0}))
		r.closed(501, "FRAME_ERROR - content body size 536870913 exceeds maximum allowed size 536870912")
	})
}

// The broker removes line breaks from names.
func TestLineBreaksInNames(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		name := testkit.Name(t, "q")
		q, err := c.QueueDeclare("\r"+name+"\n", true, false, false, false, nil)
		c.must(err)
		c.cleanup(func(ch *amqp.Channel) { _, _ = ch.QueueDelete(name, false, false, false) })
		if q.Name != name {
			t.Errorf("queue name: got %q, want %q", q.Name, name)
		}
		c.put(name, "x")
		c.bodies(name, 1)
		// Only methods that declare, bind and delete remove line breaks.
		broken := name + "\n"
		c.must(c.QueueBind(broken, "k", "\namq.direct", false, nil))
		c.must(c.QueueUnbind(broken, "k", "\namq.direct", nil))
		for _, method := range []func(ch *amqp.Channel) error{
			func(ch *amqp.Channel) error { _, err := ch.QueuePurge(broken, false); return err },
			func(ch *amqp.Channel) error { _, _, err := ch.Get(broken, true); return err },
			func(ch *amqp.Channel) error {
				_, err := ch.Consume(broken, "", true, false, false, false, nil)
				return err
			},
		} {
			c.refused(404, "no queue '"+broken+"' in vhost '/'", method)
		}
		_, err = c.QueueDelete(broken, false, false, false)
		c.must(err)
		c.refused(404, "no queue '"+name+"' in vhost '/'", func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
			return err
		})
	})
}

// An exclusive queue outlives the channel that declared it. When the connection closes, the broker deletes the queue,
// and does not dead-letter the messages in it.
func TestExclusiveQueueIsDeletedWithConnection(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		q, dead := testkit.Name(t, "q"), c.queue("dead", nil)
		owner := connect(t, b)
		ch := owner.open()
		_, err := ch.QueueDeclare(q, false, false, true, false, amqp.Table{
			"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead,
		})
		c.must(err)
		c.must(ch.Close())
		owner.put(q, "x")
		c.must(owner.conn.Close())
		testkit.Eventually(t, timeout, func() bool { return !c.exists(q) })
		c.put(dead, "end")
		if got := c.bodies(dead, 1); got != "end" {
			t.Errorf("dead letter: got %s, want end", got)
		}
	})
}

func TestEmptyNames(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		c.refused(404, "no previously declared queue", func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete("", false, false, false)
			return err
		})
		c.refused(404, "no queue '' in vhost '/'", func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclarePassive("", true, false, false, false, nil)
			return err
		})
		c.refused(403, "operation not permitted on the default exchange", func(ch *amqp.Channel) error {
			return ch.ExchangeDeclarePassive("", "direct", true, false, false, false, nil)
		})
		c.refused(406, "invalid arg 'x-queue-mode' for queue 'any' in vhost '/' of queue type rabbit_quorum_queue",
			func(ch *amqp.Channel) error {
				_, err := ch.QueueDeclare("any", true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-queue-mode": "lazy"})
				return err
			})
	})
}
