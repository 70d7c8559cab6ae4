package cdnpurge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/preset"
)

// Other implements the same service according to the design, with an AMQP client instead of Reprise. It can consume
// from the same queue as a Reprise worker. Each of the two continues the retries that the other has started.
type Other struct {
	Design Design
	Purger *Purger
	Done   func(id string) // receives the ID of each acknowledged message
}

// Run processes one message at a time, until ctx is done, an AMQP operation fails, or an x-death header is malformed.
func (o *Other) Run(ctx context.Context, conn *amqp.Connection) error {
	ch, err := conn.Channel()
	if err == nil {
		err = errors.Join(ch.Confirm(false), ch.Qos(1, 0, false))
	}
	if err != nil {
		return err
	}
	deliveries, err := ch.ConsumeWithContext(ctx, cmp.Or(o.Design.Queue, preset.CDNPurgeQueue), "", false, false, false, false, nil)
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
	var objects []json.RawMessage
	err := json.Unmarshal(d.Body, &objects)
	if err == nil {
		err = o.Purger.Purge(ctx, d.RoutingKey, objects)
	}
	if err != nil {
		return o.backOff(ctx, ch, d)
	}
	o.Done(d.MessageId)
	return d.Ack(false)
}

// backOff publishes a copy of d to the wait exchange, with the delay as its expiration. The copy keeps all other
// properties of d except the user ID. backOff acknowledges d after the publisher confirm.
func (o *Other) backOff(ctx context.Context, ch *amqp.Channel, d amqp.Delivery) error {
	milliseconds := o.Design.First.Milliseconds()
	if deaths, ok := d.Headers["x-death"].([]any); ok && len(deaths) > 0 {
		death, _ := deaths[0].(amqp.Table)
		// The entry of a queue without message expirations, such as a wait queue of a scheduled message, has no
		// original-expiration.
		if text, waited := death["original-expiration"].(string); waited {
			last, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return fmt.Errorf("cannot parse original-expiration %q: %w", text, err)
			}
			milliseconds = int64(3 * last * (1 + 0.05*rand.Float64()))
		}
	}
	wait := cmp.Or(o.Design.WaitExchange, cmp.Or(o.Design.Exchange, preset.CDNPurgeExchange)+".wait")
	confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, wait, d.RoutingKey, true, false, amqp.Publishing{
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
