package testkit

import (
	"context"
	"maps"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Copied returns a copy of a delivery for publishing, as a program without Reprise would create it. It contains all
// headers, which the caller may change, and the properties that the published designs use.
func Copied(d amqp.Delivery) amqp.Publishing {
	p := amqp.Publishing{
		Headers: maps.Clone(d.Headers), ContentType: d.ContentType, DeliveryMode: amqp.Persistent, MessageId: d.MessageId, Body: d.Body,
	}
	if p.Headers == nil {
		p.Headers = amqp.Table{}
	}
	return p
}

// Republish publishes a changed copy of a delivery without a confirm, and acknowledges the delivery.
func Republish(ch *amqp.Channel, exchange, key string, d amqp.Delivery, change func(*amqp.Publishing)) error {
	p := Copied(d)
	change(&p)
	if err := ch.PublishWithContext(context.Background(), exchange, key, false, false, p); err != nil {
		return err
	}
	return d.Ack(false)
}
