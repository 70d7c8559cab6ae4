package archive

import (
	"context"
	"encoding/json"
	"net"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
)

// open opens a connection of the AMQP client with a channel in confirm mode.
func (s *System) open(name string) (*amqp.Connection, *amqp.Channel, error) {
	dial := s.Dial(name)
	c, err := amqp.DialConfig(s.URL, amqp.Config{
		Heartbeat: time.Hour, // faults of this program are not part of the simulation
		Dial:      func(network, address string) (net.Conn, error) { return dial(context.Background(), network, address) },
	})
	if err != nil {
		return nil, nil, err
	}
	ch, err := c.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		_ = c.Close()
		return nil, nil, err
	}
	return c, ch, nil
}

// foreign is a program that implements the published cover art design without Reprise. It republishes a failed message with
// the routing key of the message.
func (s *System) foreign(ctx context.Context) {
	for ctx.Err() == nil {
		s.foreignOnce(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (s *System) foreignOnce(ctx context.Context) {
	c, ch, err := s.open("foreign")
	if err != nil {
		return
	}
	defer c.Close()
	deliveries, err := ch.Consume(Covers, "", false, false, false, false, nil)
	if err != nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case d, ok := <-deliveries:
			if !ok || !s.foreignHandles(ctx, ch, d) {
				return
			}
		}
	}
}

func (s *System) foreignHandles(ctx context.Context, ch *amqp.Channel, d amqp.Delivery) bool {
	var o Order
	if json.Unmarshal(d.Body, &o) != nil {
		return d.Ack(false) == nil
	}
	s.mu.Lock()
	failure := s.downstreamError(o)
	if failure == nil {
		s.effects[o.N]++
	}
	s.mu.Unlock()
	if failure == nil {
		return d.Ack(false) == nil
	}
	remaining := 1
	if v, found := d.Headers[preset.CoverArtRetriesHeader]; found {
		switch n := v.(type) {
		case int32:
			remaining = int(n)
		case string:
			remaining, _ = strconv.Atoi(n)
		}
	}
	exchange := preset.CoverArtFailedExchange
	if remaining > 0 {
		exchange = preset.CoverArtRetryExchange
	} else {
		s.mu.Lock()
		s.parked[o.N]++
		s.mu.Unlock()
	}
	p := testkit.Copied(d)
	texts, _ := p.Headers[preset.CoverArtExceptionsHeader].([]any)
	p.Headers[preset.CoverArtRetriesHeader] = int32(remaining - 1)
	p.Headers[preset.CoverArtExceptionsHeader] = append(texts[:len(texts):len(texts)], failure.Error())
	confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, exchange, d.RoutingKey, false, false, p)
	if err != nil {
		return false
	}
	acked, err := confirm.WaitContext(ctx)
	return err == nil && acked && d.Ack(false) == nil
}

// publishWithoutID publishes messages without an ID. It uses an AMQP client, because the library would add IDs.
func (s *System) publishWithoutID(ctx context.Context, orders []*Sent) {
	done := map[*Sent]bool{}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, m := range orders {
			if !done[m] {
				s.gone[m.N] = "not confirmed"
			}
		}
	}()
	c, ch, err := s.open(publisher)
	if err != nil {
		return
	}
	defer c.Close()
	for _, m := range orders {
		exchange, key := address(m.Queue)
		confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, exchange, key, true, false, amqp.Publishing{
			Headers: amqp.Table{"tenant": tenant(m.N), "price": int32(m.N)}, ContentType: "application/json", Type: m.Class,
			CorrelationId: "c" + m.MessageID, DeliveryMode: amqp.Persistent, Body: m.Body,
		})
		if err != nil {
			return
		}
		if acked, err := confirm.WaitContext(ctx); err != nil || !acked {
			return
		}
		done[m] = true
	}
}
