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

// Figures is what a broker says of a queue. Published and Taken are counted from some
// moment on, and from another one when the broker has restarted.
type Figures struct {
	Published int64 // by clients, straight or through exchanges
	Taken     int64 // acknowledged, or delivered without a wish for that
	Messages  int64 // all that are in it
	Unacked   int64 // of those, with a consumer
}

// Broker tells what is in its queues. It leaves out a queue of which it does not know
// that.
type Broker interface {
	Queues(ctx context.Context) (map[string]Figures, error)
}

// Management is a Broker by its management HTTP API: RabbitMQ's, or that of the
// embedded broker.
type Management struct {
	URL      string // such as http://localhost:15672
	User     string
	Password string
	VHost    string       // default "/"
	Client   *http.Client // default: one with a timeout of 15 s
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
		return nil, errors.New("ledger: the broker does not count messages: set management.rates_mode = basic in its rabbitmq.conf")
	}
	var answer []struct {
		Name     string `json:"name"`
		Messages *int64 `json:"messages"` // null for some seconds after a queue was declared
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
