package management

import (
	"runtime"

	"github.com/reprisemq/reprise/broker/internal/stats"
)

// overviewInfo is GET /api/overview.
type overviewInfo struct {
	ManagementVersion string      `json:"management_version"`
	RatesMode         string      `json:"rates_mode"`
	Retention         retention   `json:"sample_retention_policies"`
	ExchangeTypes     []described `json:"exchange_types"`
	ProductVersion    string      `json:"product_version"`
	ProductName       string      `json:"product_name"`
	RabbitMQVersion   string      `json:"rabbitmq_version"`
	ClusterName       string      `json:"cluster_name"`
	ClusterTags       struct{}    `json:"cluster_tags"`
	NodeTags          struct{}    `json:"node_tags"`
	// The platform stands where RabbitMQ tells of Erlang.
	ErlangVersion        string           `json:"erlang_version"`
	ErlangFullVersion    string           `json:"erlang_full_version"`
	DisableStats         bool             `json:"disable_stats"`
	DefaultQueueType     string           `json:"default_queue_type"`
	OperatorPolicies     bool             `json:"is_op_policy_updating_enabled"`
	EnableQueueTotals    bool             `json:"enable_queue_totals"`
	RequireJSONExtension bool             `json:"require_definition_json_extension"`
	MessageStats         *messageStats    `json:"message_stats,omitempty"`
	ChurnRates           churn            `json:"churn_rates"`
	QueueTotals          depth            `json:"queue_totals"`
	ObjectTotals         objectTotals     `json:"object_totals"`
	EventQueue           int              `json:"statistics_db_event_queue"`
	Node                 string           `json:"node"`
	Listeners            []listener       `json:"listeners"`
	Contexts             []clusterContext `json:"contexts"`
}

// retention is for how many seconds samples are kept: none are.
type retention struct {
	Global   []int `json:"global"`
	Basic    []int `json:"basic"`
	Detailed []int `json:"detailed"`
}

type objectTotals struct {
	Exchanges   int `json:"exchanges"`
	Queues      int `json:"queues"`
	Channels    int `json:"channels"`
	Consumers   int `json:"consumers"`
	Connections int `json:"connections"`
}

// churn is what comes and goes.
type churn struct {
	ConnectionCreated        uint64  `json:"connection_created"`
	ConnectionCreatedDetails details `json:"connection_created_details"`
	ConnectionClosed         uint64  `json:"connection_closed"`
	ConnectionClosedDetails  details `json:"connection_closed_details"`
	ChannelCreated           uint64  `json:"channel_created"`
	ChannelCreatedDetails    details `json:"channel_created_details"`
	ChannelClosed            uint64  `json:"channel_closed"`
	ChannelClosedDetails     details `json:"channel_closed_details"`
	QueueDeclared            uint64  `json:"queue_declared"`
	QueueDeclaredDetails     details `json:"queue_declared_details"`
	QueueCreated             uint64  `json:"queue_created"`
	QueueCreatedDetails      details `json:"queue_created_details"`
	QueueDeleted             uint64  `json:"queue_deleted"`
	QueueDeletedDetails      details `json:"queue_deleted_details"`
}

func overview(c *call) (any, error) {
	o := overviewInfo{
		ManagementVersion: Version,
		RatesMode:         "basic",
		Retention:         retention{[]int{}, []int{}, []int{}},
		ExchangeTypes:     exchangeTypes(),
		ProductVersion:    Version,
		ProductName:       product,
		RabbitMQVersion:   Version,
		ClusterName:       NodeName,
		ErlangVersion:     runtime.Version(),
		ErlangFullVersion: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH,
		DefaultQueueType:  "classic",
		Node:              NodeName,
		Listeners:         []listener{},
		Contexts:          []clusterContext{},
	}
	if c.is(monitor) {
		o.ChurnRates = c.churn()
		o.Listeners = c.listening()
		for _, w := range c.contexts() {
			o.Contexts = append(o.Contexts, clusterContext{[]string{}, NodeName, w})
		}
	}
	vhosts, err := c.visible()
	if err != nil {
		return nil, err
	}
	ready, unacked := 0, 0
	var messages stats.Counts
	for _, v := range vhosts {
		o.ObjectTotals.Exchanges += len(v.Exchanges())
		for _, q := range v.Queues() {
			s := q.Stats()
			ready, unacked = ready+s.Ready, unacked+s.Unacked
			o.ObjectTotals.Queues++
		}
		counts := v.Messages().Counts()
		messages.Add(&counts)
	}
	if c.is(monitor) {
		messages = c.node.Stats.Messages.Counts() // those of deleted virtual hosts, too
	}
	o.MessageStats = c.h.rates.messages("overview "+c.user.Name, messages)
	o.QueueTotals = c.h.rates.depth("overview "+c.user.Name, ready, unacked)
	for _, s := range c.sessions() {
		o.ObjectTotals.Connections++
		o.ObjectTotals.Channels += len(s.Channels)
		for _, ch := range s.Channels {
			o.ObjectTotals.Consumers += len(ch.Consumers)
		}
	}
	return o, nil
}

func (c *call) churn() churn {
	var all churn
	counted := &c.node.Stats.Churn
	for _, n := range []struct {
		name  string
		value uint64
		to    *uint64
		rate  *details
	}{
		{"connection_created", counted.ConnectionsCreated.Load(), &all.ConnectionCreated, &all.ConnectionCreatedDetails},
		{"connection_closed", counted.ConnectionsClosed.Load(), &all.ConnectionClosed, &all.ConnectionClosedDetails},
		{"channel_created", counted.ChannelsCreated.Load(), &all.ChannelCreated, &all.ChannelCreatedDetails},
		{"channel_closed", counted.ChannelsClosed.Load(), &all.ChannelClosed, &all.ChannelClosedDetails},
		{"queue_declared", counted.QueuesDeclared.Load(), &all.QueueDeclared, &all.QueueDeclaredDetails},
		{"queue_created", counted.QueuesCreated.Load(), &all.QueueCreated, &all.QueueCreatedDetails},
		{"queue_deleted", counted.QueuesDeleted.Load(), &all.QueueDeleted, &all.QueueDeletedDetails},
	} {
		*n.to, *n.rate = n.value, c.h.rates.of("node", n.name, n.value)
	}
	return all
}
