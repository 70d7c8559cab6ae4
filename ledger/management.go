package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/reprisemq/reprise/internal/mgmtapi"
)

// Figures contains the broker's figures for a queue. Published and Taken count from an arbitrary time, and restart at
// 0 when the broker restarts.
type Figures struct {
	Published int64 // published by clients, directly or through exchanges
	Taken     int64 // acknowledged, or delivered without acknowledgement
	Messages  int64 // all messages in the queue, including Unacked
	Unacked   int64 // messages that are delivered and not yet acknowledged
}

// Broker provides the figures of a broker. Queues returns the figures of each queue, by queue name. It omits queues
// whose figures are unknown.
type Broker interface {
	Queues(ctx context.Context) (map[string]Figures, error)
}

// Management is a Broker that uses the management HTTP API of RabbitMQ or of the embedded broker.
type Management struct {
	URL      string // for example http://localhost:15672
	User     string
	Password string
	VHost    string       // default "/"
	Client   *http.Client // default: a client with a timeout of 15 s
}

// Queues implements [Broker].
func (m *Management) Queues(ctx context.Context) (map[string]Figures, error) {
	var overview struct {
		Mode string `json:"rates_mode"`
	}
	if err := m.api().Get(ctx, "overview?columns=rates_mode", &overview); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	if overview.Mode == "none" {
		return nil, errors.New("ledger: management.rates_mode of the broker must not be none (set it to basic in rabbitmq.conf)")
	}
	var answer []struct {
		Name     string `json:"name"`
		Messages *int64 `json:"messages"` // null for a few seconds after the declaration of a queue
		Unacked  int64  `json:"messages_unacknowledged"`
		Stats    struct {
			Published    int64 `json:"publish"`
			Acked        int64 `json:"ack"`
			GetNoAck     int64 `json:"get_no_ack"`
			DeliverNoAck int64 `json:"deliver_no_ack"`
		} `json:"message_stats"`
	}
	const columns = "name,messages,messages_unacknowledged,message_stats.publish,message_stats.ack,message_stats.get_no_ack,message_stats.deliver_no_ack"
	if err := m.api().Get(ctx, "queues/"+url.PathEscape(cmp.Or(m.VHost, "/"))+"?columns="+columns, &answer); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	queues := make(map[string]Figures, len(answer))
	for _, q := range answer {
		if q.Messages != nil {
			queues[q.Name] = Figures{q.Stats.Published, q.Stats.Acked + q.Stats.GetNoAck + q.Stats.DeliverNoAck, *q.Messages, q.Unacked}
		}
	}
	return queues, nil
}

func (m *Management) api() mgmtapi.API {
	return mgmtapi.API{URL: m.URL, User: m.User, Password: m.Password, Client: m.Client}
}
