package ledger

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
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
	if err := m.get(ctx, "overview?columns=rates_mode", &overview); err != nil {
		return nil, err
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
	if err := m.get(ctx, "queues/"+url.PathEscape(cmp.Or(m.VHost, "/"))+"?columns="+columns, &answer); err != nil {
		return nil, err
	}
	queues := make(map[string]Figures, len(answer))
	for _, q := range answer {
		if q.Messages != nil {
			queues[q.Name] = Figures{q.Stats.Published, q.Stats.Acked + q.Stats.GetNoAck + q.Stats.DeliverNoAck, *q.Messages, q.Unacked}
		}
	}
	return queues, nil
}

var defaultClient = &http.Client{Timeout: 15 * time.Second}

func (m *Management) get(ctx context.Context, path string, into any) error {
	const most = 64 << 20
	base := strings.TrimSuffix(strings.TrimSuffix(m.URL, "/"), "/api")
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/"+path, nil)
	if err != nil {
		return fmt.Errorf("ledger: the URL of the management API: %w", err)
	}
	r.SetBasicAuth(m.User, m.Password)
	client := m.Client
	if client == nil {
		client = defaultClient
	}
	answer, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("ledger: the management API does not answer: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("ledger: the management API answers %s", answer.Status)
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, most)).Decode(into); err != nil {
		return fmt.Errorf("ledger: the management API answers something else than it should: %w", err)
	}
	return nil
}
