package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// errDown is the error of each attempt in the scenario "retries".
var errDown = errors.New("payment provider: 503 Service Unavailable")

// fail is a handler that always fails.
func (j *job) fail(amqp.Delivery) error {
	j.meter.handled()
	return errDown
}

// copyOf returns the copy of d for the wait queue. It keeps the properties that a retry needs, and writes the number
// of attempts and the error to two headers.
func copyOf(d amqp.Delivery, failure error) amqp.Publishing {
	headers := make(amqp.Table, len(d.Headers)+2)
	maps.Copy(headers, d.Headers)
	delete(headers, "x-death")
	attempts, _ := headers["x-attempts"].(int64)
	headers["x-attempts"] = attempts + 1
	headers["x-error"] = failure.Error()
	return amqp.Publishing{
		Headers:         headers,
		ContentType:     d.ContentType,
		ContentEncoding: d.ContentEncoding,
		DeliveryMode:    amqp.Persistent,
		Priority:        d.Priority,
		CorrelationId:   d.CorrelationId,
		ReplyTo:         d.ReplyTo,
		Expiration:      expiration,
		MessageId:       d.MessageId,
		Timestamp:       d.Timestamp,
		Type:            d.Type,
		AppId:           d.AppId,
		Body:            d.Body,
	}
}

var host, _ = os.Hostname()

// copyWithTrail is like copyOf, but writes the headers of package reprise: the history of errors and the origin of the
// message.
func (j *job) copyWithTrail(d amqp.Delivery, failure error) amqp.Publishing {
	p := copyOf(d, failure)
	now := time.Now()
	delete(p.Headers, "x-attempts")
	delete(p.Headers, "x-error")
	p.Headers["x-reprise-attempts"] = int64(1)
	p.Headers["x-reprise-first-failed"] = now
	p.Headers["x-reprise-queue"] = j.queue
	p.Headers["x-reprise-exchange"] = d.Exchange
	p.Headers["x-reprise-routing-key"] = d.RoutingKey
	p.Headers["x-reprise-errors"] = []any{amqp.Table{
		"attempt": int64(1), "time": now, "error": failure.Error(), "host": host, "duration-ms": int64(0),
	}}
	return p
}

// retryOneByOne waits for the confirm of each copy and acks the original before it processes the next message.
func retryOneByOne(_ context.Context, j *job) error {
	c, err := j.consume(false)
	if err != nil {
		return err
	}
	defer c.close()
	p, err := j.publish(1)
	if err != nil {
		return err
	}
	defer p.close()
	for range j.messages {
		d, ok := <-c.deliveries
		if !ok {
			return errGone
		}
		if err := p.ch.Publish("", j.waitQueue(), true, false, copyOf(d, j.fail(d))); err != nil {
			return err
		}
		confirm, ok := <-p.confirms
		if err := p.check(confirm, ok); err != nil {
			return err
		}
		if err := d.Ack(false); err != nil {
			return err
		}
	}
	return j.finish(c)
}

func retryPipelined(_ context.Context, j *job) error { return j.pipeline(copyOf) }

func retryPipelinedTrail(_ context.Context, j *job) error { return j.pipeline(j.copyWithTrail) }

// pipeline publishes copies while messages arrive, and acks many originals at a time as confirms arrive. Copies are
// published in the order of the deliveries, and both confirms and delivery tags count from 1. So confirm n is for
// delivery n.
func (j *job) pipeline(makeCopy func(amqp.Delivery, error) amqp.Publishing) error {
	c, err := j.consume(false)
	if err != nil {
		return err
	}
	defer c.close()
	p, err := j.publish(j.prefetch)
	if err != nil {
		return err
	}
	defer p.close()
	every := time.NewTicker(tick)
	defer every.Stop()
	var confirmed, acked uint64
	ack := func() error {
		if acked == confirmed {
			return nil
		}
		acked = confirmed
		return c.ch.Ack(confirmed, true)
	}
	for confirmed < uint64(j.messages) {
		select {
		case d, ok := <-c.deliveries:
			if !ok {
				return errGone
			}
			if err := p.ch.Publish("", j.waitQueue(), true, false, makeCopy(d, j.fail(d))); err != nil {
				return err
			}
			continue
		case confirm, ok := <-p.confirms:
			if err := p.check(confirm, ok); err != nil {
				return err
			}
			if confirmed = confirm.DeliveryTag; confirmed-acked < uint64(j.batch) {
				continue
			}
		case <-every.C:
		}
		if err := ack(); err != nil {
			return err
		}
	}
	if err := ack(); err != nil {
		return err
	}
	return j.finish(c)
}
