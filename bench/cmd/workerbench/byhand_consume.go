package main

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// work is the handler of the loops by hand.
func (j *job) work(amqp.Delivery) error {
	j.meter.handled()
	return nil
}

// consumeWithoutAcks measures the upper limit, because the broker treats sent messages as settled.
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

// consumeAckEach acks each processed message.
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

// consumeAckBatch acks many messages at a time. It acks each complete batch, and the remaining messages every tick.
func consumeAckBatch(_ context.Context, j *job) error {
	c, err := j.consume(false)
	if err != nil {
		return err
	}
	defer c.close()
	every := time.NewTicker(tick)
	defer every.Stop()
	var last uint64
	done := 0 // number of processed messages that are not acked
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
