package main

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// work is the handler that the loops by hand call for each delivery.
func (j *job) work(amqp.Delivery) error {
	j.meter.handled()
	return nil
}

// consumeWithoutAcks consumes with automatic acks. Its rate is an upper limit, because the broker considers a message
// settled when it has sent the message.
func consumeWithoutAcks(_ context.Context, j *job) error {
	c, err := j.consume(true)
	if err != nil {
		return err
	}
	defer c.close()
	for range j.messages {
		d, ok := <-c.deliveries
		if !ok {
			return errGone
		}
		if err := j.work(d); err != nil {
			return err
		}
	}
	return j.finish(c)
}

// consumeAckEach acks each message separately.
func consumeAckEach(_ context.Context, j *job) error {
	c, err := j.consume(false)
	if err != nil {
		return err
	}
	defer c.close()
	for range j.messages {
		d, ok := <-c.deliveries
		if !ok {
			return errGone
		}
		if err := j.work(d); err != nil {
			return err
		}
		if err := d.Ack(false); err != nil {
			return err
		}
	}
	return j.finish(c)
}

// consumeAckBatch acks many messages at a time. It acks each batch when it is complete, and an incomplete batch at the
// next tick.
func consumeAckBatch(_ context.Context, j *job) error {
	c, err := j.consume(false)
	if err != nil {
		return err
	}
	defer c.close()
	every := time.NewTicker(tick)
	defer every.Stop()
	var last uint64
	done := 0 // number of processed messages that are not yet acked
	ack := func() error {
		if done == 0 {
			return nil
		}
		done = 0
		return c.ch.Ack(last, true)
	}
	for left := j.messages; left > 0; {
		select {
		case d, ok := <-c.deliveries:
			if !ok {
				return errGone
			}
			if err := j.work(d); err != nil {
				return err
			}
			last = d.DeliveryTag
			left--
			if done++; done < j.batch {
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
