package cdnpurge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/topology/preset"
)

// Other is the same service as somebody else has written it, who has read of the
// design and has an AMQP client, but no Reprise. It runs beside a worker on the
// same queues: each goes on where the other one has left a message.
type Other struct {
	Design preset.CDNPurge
	Purger *Purger
	Done   func(id string) // told what it has acknowledged
}

// Run consumes until ctx ends. It takes one message at a time.
func (o *Other) Run(ctx context.Context, conn *amqp.Connection) error {
	ch, err := conn.Channel()
	if err == nil {
		err = errors.Join(ch.Confirm(false), ch.Qos(1, 0, false))
	}
	if err != nil {
		return err
	}
	deliveries, err := ch.ConsumeWithContext(ctx, preset.CDNPurgeQueue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for d := range deliveries {
		if err := o.handle(ctx, ch, d); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func (o *Other) handle(ctx context.Context, ch *amqp.Channel, d amqp.Delivery) error {
	var names []string
	err := json.Unmarshal(d.Body, &names)
	if err == nil {
		err = o.Purger.Purge(ctx, d.RoutingKey, names, d.MessageId)
	}
	if err != nil {
		return o.backOff(ctx, ch, d)
	}
	o.Done(d.MessageId)
	return d.Ack(false)
}

// backOff publishes a copy, all of whose properties are those of the original, to
// the wait exchange, and then acknowledges the original.
func (o *Other) backOff(ctx context.Context, ch *amqp.Channel, d amqp.Delivery) error {
	milliseconds := o.Design.First.Milliseconds()
	if deaths, ok := d.Headers["x-death"].([]any); ok && len(deaths) > 0 {
		death, _ := deaths[0].(amqp.Table)
		// A message that has waited in another queue, as one that was scheduled, has none.
		if text, waited := death["original-expiration"].(string); waited {
			last, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return fmt.Errorf("the last expiration is %q: %w", text, err)
			}
			milliseconds = int64(3 * last * (1 + 0.05*rand.Float64()))
		}
	}
	confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, preset.CDNPurgeWaitExchange, d.RoutingKey, true, false, amqp.Publishing{
		Headers: maps.Clone(d.Headers), ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: amqp.Persistent,
		Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, MessageId: d.MessageId, Timestamp: d.Timestamp,
		Type: d.Type, AppId: d.AppId, Body: d.Body, Expiration: strconv.FormatInt(milliseconds, 10),
	})
	if err != nil {
		return err
	}
	if taken, err := confirm.WaitContext(ctx); err != nil || !taken {
		return errors.Join(err, d.Nack(false, true))
	}
	return d.Ack(false)
}
