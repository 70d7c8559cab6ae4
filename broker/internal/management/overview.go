package management

import (
	"runtime"
	"sync/atomic"

	"github.com/reprisemq/reprise/broker/internal/stats"
)

// overview returns the body of GET /api/overview.
func overview(c *call) (any, error) {
	o := fields{
		"management_version":                Version,
		"rates_mode":                        "basic",
		"sample_retention_policies":         fields{"global": []int{}, "basic": []int{}, "detailed": []int{}}, // samples are not collected
		"exchange_types":                    exchangeTypes(),
		"product_version":                   Version,
		"product_name":                      product,
		"rabbitmq_version":                  Version,
		"cluster_name":                      c.clusterName(),
		"cluster_tags":                      fields{},
		"node_tags":                         fields{},
		"erlang_version":                    runtime.Version(),
		"erlang_full_version":               platform(),
		"disable_stats":                     false,
		"default_queue_type":                "classic",
		"is_op_policy_updating_enabled":     true,
		"enable_queue_totals":               false,
		"require_definition_json_extension": false,
		"churn_rates":                       fields{},
		"statistics_db_event_queue":         0,
		"node":                              NodeName,
		"listeners":                         []fields{},
		"contexts":                          []fields{},
	}
	if c.is(monitor) {
		o["churn_rates"] = c.churn()
		listeners, contexts := []fields{}, []fields{}
		for _, l := range c.listening() {
			listeners = append(listeners, fields{
				"node": NodeName, "protocol": l.protocol, "ip_address": l.ip, "port": l.port, "tls": l.tls, "socket_opts": fields{},
			})
		}
		for _, w := range c.contexts() {
			contexts = append(contexts, w.with(fields{"node": NodeName, "ssl_opts": []string{}}))
		}
		o["listeners"], o["contexts"] = listeners, contexts
	}
	vhosts, err := c.visible()
	if err != nil {
		return nil, err
	}
	var exchanges, queues, connections, channels, consumers, ready, unacked int
	var messages stats.Counts
	for _, v := range vhosts {
		exchanges += v.ExchangeCount()
		for _, q := range v.Queues() {
			s := q.Stats()
			ready, unacked = ready+s.Ready, unacked+s.Unacked
			queues++
		}
		counts := v.Messages().Counts()
		messages.Add(&counts)
	}
	if c.is(monitor) {
		messages = c.node.Stats.Messages.Counts() // these counts include deleted virtual hosts
	}
	for s := range c.sessions() {
		connections++
		channels += len(s.Channels)
		for _, ch := range s.Channels {
			consumers += len(ch.Consumers)
		}
	}
	o["queue_totals"] = c.h.rates.depth("overview "+c.user.Name, ready, unacked)
	o["object_totals"] = fields{
		"exchanges": exchanges, "queues": queues, "channels": channels, "consumers": consumers, "connections": connections,
	}
	return o.with(c.h.rates.messageStats("overview "+c.user.Name, messages, clientCounters)), nil
}

// churn returns the numbers of created and removed objects.
func (c *call) churn() fields {
	all := fields{}
	counted := &c.node.Stats.Churn
	for name, n := range map[string]*atomic.Uint64{
		"connection_created": &counted.ConnectionsCreated,
		"connection_closed":  &counted.ConnectionsClosed,
		"channel_created":    &counted.ChannelsCreated,
		"channel_closed":     &counted.ChannelsClosed,
		"queue_declared":     &counted.QueuesDeclared,
		"queue_created":      &counted.QueuesCreated,
		"queue_deleted":      &counted.QueuesDeleted,
	} {
		all.with(c.h.rates.counted("node", name, n.Load()))
	}
	return all
}
