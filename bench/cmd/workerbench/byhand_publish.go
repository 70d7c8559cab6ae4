package main

import (
	"context"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// message returns the message with the number i.
func message(i int) amqp.Publishing {
	return amqp.Publishing{
		Headers:      amqp.Table{"tenant": "acme"},
		ContentType:  "application/json",
		DeliveryMode: amqp.Persistent,
		MessageId:    fmt.Sprintf("order-%08d", i),
		Timestamp:    time.Now(),
		Type:         "order.placed",
		Body:         fmt.Appendf(nil, `{"order":1%07d,"customer":4711,"amount":"12.50","currency":"EUR"}`, i),
	}
}

// publishOneByOne waits for the confirm of each message.
func publishOneByOne(_ context.Context, j *job) error {
	return j.publishWindow(1)
}

// publishPipelined keeps up to j.concurrency messages in flight.
func publishPipelined(_ context.Context, j *job) error {
	return j.publishWindow(j.concurrency)
}

func (j *job) publishWindow(inFlight int) error {
	p, err := j.publish(inFlight)
	if err != nil {
		return err
	}
	defer p.close()
	for sent, confirmed := 0, 0; confirmed < j.messages; {
		if sent < j.messages && sent-confirmed < inFlight {
			if err := p.ch.Publish("", j.queue, true, false, message(sent)); err != nil {
				return err
			}
			sent++
			continue
		}
		confirm, ok := <-p.confirms
		if err := p.check(confirm, ok); err != nil {
			return err
		}
		confirmed++
		j.meter.handled()
	}
	j.meter.end()
	return nil
}
