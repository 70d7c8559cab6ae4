package ledger

import (
	"context"
	"errors"

	"github.com/reprisemq/reprise/internal/mgmtapi"
)

// Figures contains the broker's figures for a queue. Published, Taken and Got count from an arbitrary time, and restart at
// 0 when the broker restarts.
type Figures struct {
	Published int64 // published by clients, directly or through exchanges
	Taken     int64 // acknowledged, or delivered without acknowledgement
	Got       int64 // requested by basic.get, also if they were requeued
	Messages  int64 // all messages in the queue, including Unacked
	Unacked   int64 // messages that are delivered and not yet acknowledged

	// Unknown is set if the broker has the queue, but its figures are currently unknown. The ledger then omits the sample
	// of the account, because it would count the messages of the queue as missing.
	Unknown bool
}

// Broker provides the figures of a broker. Queues returns the figures of each queue, by queue name.
type Broker interface {
	Queues(ctx context.Context) (map[string]Figures, error)
}

// Management is a Broker that uses the management HTTP API of RabbitMQ or of the embedded broker.
type Management mgmtapi.API

// Queues implements [Broker].
func (m *Management) Queues(ctx context.Context) (map[string]Figures, error) {
	var overview struct {
		Mode mgmtapi.Field[string] `json:"rates_mode"`
	}
	api := mgmtapi.API(*m)
	if err := api.Get(ctx, "overview?columns=rates_mode", &overview); err != nil {
		return nil, err
	}
	if overview.Mode.Value == "none" {
		return nil, errors.New("management.rates_mode of the broker must not be none (set it to basic in rabbitmq.conf)")
	}
	found, err := api.Queues(ctx)
	if err != nil {
		return nil, err
	}
	queues := make(map[string]Figures, len(found))
	for _, q := range found {
		queues[q.Name] = figuresOf(q)
	}
	return queues, nil
}

func figuresOf(q mgmtapi.Queue) Figures {
	s := q.Stats
	for _, count := range []mgmtapi.Field[int64]{q.Messages, q.Unacked, s.Published, s.Acked, s.Get, s.GetNoAck, s.DeliverNoAck} {
		if !count.Known {
			return Figures{Unknown: true} // for example for a few seconds after the declaration of a queue
		}
	}
	return Figures{
		Published: s.Published.Value, Taken: s.Acked.Value + s.GetNoAck.Value + s.DeliverNoAck.Value,
		Got: s.Get.Value + s.GetNoAck.Value, Messages: q.Messages.Value, Unacked: q.Unacked.Value,
	}
}
