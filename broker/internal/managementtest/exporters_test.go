package managementtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/disk"
	"github.com/reprisemq/reprise/internal/testkit"
)

// reader is a request of a monitoring program, and the fields that it decodes from each element of the response.
type reader struct {
	path   string
	fields string // separated by spaces; a field ends in * if the program drops the element without it
}

// readers are the requests of two programs, read from their sources: kbudde/rabbitmq_exporter (exporter_*.go, with the capability
// no_sort, and rabbitClient.go), and Metricbeat's module rabbitmq (metricbeat/module/rabbitmq/*/data.go, url.go).
var readers = []reader{
	// rabbitmq_exporter
	{"/api/overview?sort=", `node rabbitmq_version erlang_version cluster_name object_totals.channels object_totals.connections object_totals.consumers
		object_totals.queues object_totals.exchanges queue_totals.messages queue_totals.messages_ready queue_totals.messages_unacknowledged
		message_stats.publish_details.rate message_stats.deliver_no_ack_details.rate message_stats.deliver_details.rate`},
	{"/api/queues?sort=", `vhost name* durable policy state node messages_ready messages_unacknowledged messages messages_ready_ram messages_unacknowledged_ram
		messages_ram messages_persistent message_bytes message_bytes_ready message_bytes_unacknowledged message_bytes_ram message_bytes_persistent
		consumers consumer_utilisation memory members online message_stats.publish_details.rate message_stats.deliver_no_ack_details.rate
		message_stats.deliver_details.rate message_stats.publish message_stats.deliver message_stats.deliver_no_ack message_stats.get
		message_stats.get_no_ack message_stats.redeliver message_stats.ack arguments.x-max-length effective_policy_definition.max-length`},
	{"/api/exchanges?sort=", "vhost name*"},
	{"/api/nodes?sort=", `name* running mem_used mem_limit mem_alarm disk_free disk_free_alarm disk_free_limit fd_used fd_total sockets_used sockets_total
		uptime partitions`},
	{"/api/connections?sort=", "vhost node peer_host user name* state channels recv_oct recv_cnt send_oct send_cnt send_pend"},
	{"/api/channels?sort=", "vhost node name* user state confirm transactional"},
	{"/api/aliveness-test/%2F", "status"},

	// Metricbeat
	{"/api/connections", "name* vhost* user* node* channels* channel_max* frame_max* type* send_cnt* recv_cnt* send_pend* send_oct* recv_oct* host* port* peer_host* peer_port*"},
	{"/api/exchanges", "name* vhost* type* durable* auto_delete* internal* arguments*"},
	{"/api/nodes", `disk_free* disk_free_limit* fd_total* fd_used* gc_bytes_reclaimed* gc_num* io_file_handle_open_attempt_avg_time* io_file_handle_open_attempt_count*
		io_read_avg_time* io_read_bytes* io_read_count* io_seek_avg_time* io_seek_count* io_sync_avg_time* io_sync_count* io_write_avg_time* io_write_bytes*
		io_write_count* mem_limit* mem_used* mnesia_disk_tx_count* mnesia_ram_tx_count* msg_store_read_count* msg_store_write_count* name* proc_total*
		proc_used* processors* queue_index_journal_write_count* queue_index_read_count* queue_index_write_count* run_queue* sockets_total* sockets_used*
		type* uptime*`},
	{"/api/queues", `name* vhost* durable* auto_delete* exclusive* node* state* arguments* arguments.x-max-priority consumers* consumer_utilisation messages*
		messages_details.rate* messages_ready* messages_ready_details.rate* messages_unacknowledged* messages_unacknowledged_details.rate*
		messages_persistent* memory*`},
	{"/api/overview", "node"},
}

// The embedded broker responds to these programs with the fields and types of RabbitMQ 4.3. A field that RabbitMQ does not have
// need not exist.
func TestMonitoringProgramsFindTheirFields(t *testing.T) {
	us, rabbit := embedded(t, broker.Config{Store: disk.Dir(t.TempDir() + "/data")}), rabbitMQ(t)
	vhosts := map[*target]string{}
	for _, b := range []*target{us, rabbit} {
		vhosts[b] = b.vhost(t)
		populate(t, b, vhosts[b])
	}
	read := func(b *target, path string) (shape, error) {
		status, text := b.call(t, "GET", path, "")
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil || status != http.StatusOK {
			return nil, fmt.Errorf("%s: status %d: %v", path, status, err)
		}
		if all, list := v.([]any); list { // others use the broker of RabbitMQ, too
			var own []any
			for _, e := range all {
				if m, _ := e.(map[string]any); m["vhost"] == nil || m["vhost"] == vhosts[b] {
					own = append(own, e)
				}
			}
			v = own
		}
		s := shape{}
		s.add("", v)
		return s, nil
	}
	testkit.Eventually(t, published, func() error {
		var missing []string
		for _, r := range readers {
			got, err := read(us, r.path)
			if err != nil {
				return err
			}
			want, err := read(rabbit, r.path)
			if err != nil {
				return err
			}
			prefix := "."
			if want[""] == "list" {
				prefix = "[]."
			}
			for field := range strings.FieldsSeq(r.fields) {
				name, required := strings.CutSuffix(field, "*")
				g, w := got[prefix+name], want[prefix+name]
				switch {
				case w == "" || g == w || g == "null" || w == "null":
				case g == "" && !required && expected(prefix+name):
				default:
					missing = append(missing, fmt.Sprintf("%s: %s is a %q, want a %q", r.path, name, g, w))
				}
			}
		}
		if missing != nil {
			return fmt.Errorf("%s", strings.Join(missing, "\n"))
		}
		return nil
	})
}
