package management

import (
	"cmp"
	"net/http"
	"runtime"
	"runtime/metrics"
	"strings"
	"time"

	"github.com/reprisemq/reprise/broker/internal/alarm"
	"github.com/reprisemq/reprise/broker/internal/node"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/stats"
)

// Metrics returns a handler for the metrics of a node in Prometheus' text format, with the metric names of RabbitMQ's
// plugin. Queue metrics are sums over all queues or, if the path ends in /per-object, separate for each queue.
func Metrics(n *node.Node) http.Handler {
	var turns turns
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		end, err := turns.take(r.Context(), "")
		if err != nil {
			return // the client has disconnected
		}
		defer end()
		scrape{n, strings.HasSuffix(r.URL.Path, "/per-object")}.write(w)
	})
}

// scrape is a response with the metrics of a node.
type scrape struct {
	node      *node.Node
	perObject bool
}

func (s scrape) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", expositionType)
	e := exposition{w: w}
	e.node(s.node, s.perObject)
	e.queues(s.node, s.perObject)
	e.sessions(s.node)
	e.global(s.node)
	e.send()
}

func (e *exposition) node(n *node.Node, perObject bool) {
	churn := &n.Stats.Churn
	e.counter("rabbitmq_connections_opened_total", "Total number of connections opened", churn.ConnectionsCreated.Load())
	e.counter("rabbitmq_connections_closed_total", "Total number of connections closed or terminated", churn.ConnectionsClosed.Load())
	e.counter("rabbitmq_channels_opened_total", "Total number of channels opened", churn.ChannelsCreated.Load())
	e.counter("rabbitmq_channels_closed_total", "Total number of channels closed", churn.ChannelsClosed.Load())
	e.counter("rabbitmq_queues_declared_total", "Total number of queues declared", churn.QueuesDeclared.Load())
	e.counter("rabbitmq_queues_created_total", "Total number of queues created", churn.QueuesCreated.Load())
	e.counter("rabbitmq_queues_deleted_total", "Total number of queues deleted", churn.QueuesDeleted.Load())

	e.gauge("rabbitmq_process_resident_memory_bytes", "Memory used in bytes", processMemory())
	e.gauge("rabbitmq_resident_memory_limit_bytes", "Memory high watermark in bytes", n.Memory.Limit())
	e.gauge("rabbitmq_process_open_fds", "Open file descriptors", int64(openFiles()))
	e.gauge("rabbitmq_process_max_fds", "Open file descriptors limit", MaxFiles())
	e.gauge("reprise_messages_memory_bytes", "Memory that messages take in bytes", n.Memory.Used())
	e.gauge("reprise_messages_memory_limit_bytes", "Memory of messages from which on publishers are blocked", n.Memory.Limit())
	e.gauge("reprise_connections_memory_bytes", "Memory that connections take in bytes, beside messages in queues", n.Connections.Used())
	e.gauge("reprise_connections_memory_limit_bytes", "Memory of connections from which on the largest is closed", n.Connections.Limit())
	e.gauge("reprise_topology_memory_bytes", "Memory that queues, exchanges and bindings take in bytes", n.Topology.Used())
	e.gauge("reprise_topology_memory_limit_bytes", "Memory of queues, exchanges and bindings from which on declarations are refused", n.Topology.Most())
	e.alarms(n)
	e.gauge("rabbitmq_unreachable_cluster_peers_count", "Number of peers in the cluster the current node cannot reach.", 0)
	e.family("rabbitmq_erlang_uptime_seconds", "gauge", "Node uptime")
	e.sampleFloat("rabbitmq_erlang_uptime_seconds", nil, time.Since(n.Started).Seconds())
	e.family("rabbitmq_build_info", "untyped", "RabbitMQ & Erlang/OTP version info")
	e.sample("rabbitmq_build_info", labels{{"rabbitmq_version", Version}, {"erlang_version", runtime.Version()}}, 1)
	e.family("rabbitmq_identity_info", "untyped", "RabbitMQ node & cluster identity info")
	cluster, endpoint := cmp.Or(n.ClusterName(), NodeName), "aggregated"
	if perObject {
		endpoint = "per-object"
	}
	e.sample("rabbitmq_identity_info", labels{
		{"rabbitmq_node", NodeName}, {"rabbitmq_cluster", cluster}, {"rabbitmq_cluster_permanent_id", cluster}, {"rabbitmq_endpoint", endpoint},
	}, 1)
}

func (e *exposition) alarms(n *node.Node) {
	for _, a := range []struct {
		name, help string
		resource   alarm.Resource
	}{
		{"rabbitmq_alarms_memory_used_watermark", "is 1 if VM memory watermark alarm is in effect", alarm.Memory},
		{"rabbitmq_alarms_free_disk_space_watermark", "is 1 if free disk space watermark alarm is in effect", alarm.Disk},
		{"reprise_alarms_disk_response", "is 1 if the disk is full or does not respond", alarm.Response},
		{"reprise_alarms_store_failed", "is 1 if nothing can be written to the data directory any more", alarm.Store},
		{"reprise_alarms_store_damaged", "is 1 if a file of the data directory was found damaged", alarm.Damage},
	} {
		raised := int64(0)
		if n.Alarms.Has(a.resource) {
			raised = 1
		}
		e.family(a.name, "untyped", a.help)
		e.sample(a.name, nil, raised)
	}
	if n.Disk == nil {
		return
	}
	if free := n.Disk.Free(); free >= 0 {
		e.gauge("rabbitmq_disk_space_available_bytes", "Disk space available in bytes", free)
	}
	e.gauge("rabbitmq_disk_space_available_limit_bytes", "Free disk space low watermark in bytes", n.Disk.Limit())
}

// processMemory returns the amount of memory that the Go runtime has obtained from the operating system and not yet
// released.
func processMemory() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() - samples[1].Value.Uint64())
}

// queueMetric is a metric of each queue.
type queueMetric struct {
	name, kind, help string
	of               func(*queue.Stats) int64
}

func queueGauge(name, help string, of func(*queue.Stats) int64) queueMetric {
	return queueMetric{"rabbitmq_queue_" + name, "gauge", help, of}
}

func queueCounter(name, help string, k stats.Kind) queueMetric {
	return queueMetric{"rabbitmq_queue_" + name, "counter", help, func(s *queue.Stats) int64 { return int64(s.Counts.Of(k)) }}
}

const queueMetricCount = 15

var queueMetrics = [queueMetricCount]queueMetric{
	queueGauge("messages_ready", "Messages ready to be delivered to consumers",
		func(s *queue.Stats) int64 { return int64(s.Ready) }),
	queueGauge("messages_unacked", "Messages delivered to consumers but not yet acknowledged",
		func(s *queue.Stats) int64 { return int64(s.Unacked) }),
	queueGauge("messages", "Sum of ready and unacknowledged messages - total queue depth",
		func(s *queue.Stats) int64 { return int64(s.Ready + s.Unacked) }),
	queueGauge("consumers", "Consumers on a queue",
		func(s *queue.Stats) int64 { return int64(s.Consumers) }),
	queueGauge("messages_bytes", "Size in bytes of ready and unacknowledged messages",
		func(s *queue.Stats) int64 { return s.ReadyBytes + s.UnackedBytes }),
	queueGauge("messages_ready_bytes", "Size in bytes of ready messages",
		func(s *queue.Stats) int64 { return s.ReadyBytes }),
	queueGauge("messages_unacked_bytes", "Size in bytes of all unacknowledged messages",
		func(s *queue.Stats) int64 { return s.UnackedBytes }),
	queueCounter("messages_published_total",
		"Total number of messages published into a queue through an exchange on a channel", stats.Publish),
	queueCounter("get_ack_total",
		"Total number of messages fetched from a queue with basic.get in manual acknowledgement mode", stats.Get),
	queueCounter("get_total",
		"Total number of messages fetched from a queue with basic.get in automatic acknowledgement mode", stats.GetNoAck),
	queueCounter("get_empty_total",
		"Total number of times basic.get operations fetched no message on a queue", stats.GetEmpty),
	queueCounter("messages_delivered_ack_total",
		"Total number of messages delivered from a queue to consumers in manual acknowledgement mode", stats.Deliver),
	queueCounter("messages_delivered_total",
		"Total number of messages delivered from a queue to consumers in automatic acknowledgement mode", stats.DeliverNoAck),
	queueCounter("messages_redelivered_total",
		"Total number of messages redelivered from a queue to consumers", stats.Redeliver),
	queueCounter("messages_acked_total",
		"Total number of messages acknowledged by consumers on a queue", stats.Ack),
}

func (e *exposition) queues(n *node.Node, perObject bool) {
	type counted struct {
		vhost, queue string
		values       [queueMetricCount]int64
	}
	var all []counted // empty unless perObject is set
	var sums [queueMetricCount]int64
	queues := 0
	for _, v := range n.VHosts() {
		for _, q := range v.Queues() {
			one, s := counted{vhost: v.Name(), queue: q.Name()}, q.Stats()
			for i, m := range queueMetrics {
				one.values[i] = m.of(&s)
				sums[i] += one.values[i]
			}
			if queues++; perObject {
				all = append(all, one)
			}
		}
	}
	for i, m := range queueMetrics {
		e.family(m.name, m.kind, m.help)
		if !perObject {
			e.sample(m.name, nil, sums[i])
			continue
		}
		for _, one := range all {
			if e.err != nil {
				return
			}
			e.sample(m.name, labels{{"vhost", one.vhost}, {"queue", one.queue}}, one.values[i])
		}
	}
	e.gauge("rabbitmq_queues", "Queues available", int64(queues))
}

func (e *exposition) sessions(n *node.Node) {
	var connections, channels, consumers, publishers, unacked, unconfirmed, uncommitted int64
	for _, found := range n.Sessions() {
		s := found.Info()
		connections++
		for _, ch := range s.Channels {
			channels++
			consumers += int64(len(ch.Consumers))
			if ch.Stats.Of(stats.Publish) > 0 {
				publishers++
			}
			unacked += int64(ch.Unacked)
			unconfirmed += int64(ch.Unconfirmed)
			uncommitted += int64(ch.Uncommitted)
		}
	}
	e.gauge("rabbitmq_connections", "Connections currently open", connections)
	e.gauge("rabbitmq_channels", "Channels currently open", channels)
	e.gauge("rabbitmq_consumers", "Consumers currently connected", consumers)
	e.gauge("rabbitmq_channel_consumers", "Consumers on a channel", consumers)
	e.gauge("rabbitmq_channel_messages_unacked", "Delivered but not yet acknowledged messages", unacked)
	e.gauge("rabbitmq_channel_messages_unconfirmed", "Published but not yet confirmed messages", unconfirmed)
	e.gauge("rabbitmq_channel_messages_uncommitted", "Messages received in a transaction but not yet committed", uncommitted)
	e.family("rabbitmq_global_consumers", "gauge", "Current number of consumers")
	e.sample("rabbitmq_global_consumers", amqp091, consumers)
	e.family("rabbitmq_global_publishers", "gauge", "Current number of publishers")
	e.sample("rabbitmq_global_publishers", amqp091, publishers)
}
