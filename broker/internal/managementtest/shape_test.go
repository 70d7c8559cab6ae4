package managementtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/disk"
	"github.com/reprisemq/reprise/internal/testkit"
)

// leftOut maps the name of each field of RabbitMQ that the embedded broker deliberately omits to the reason. A name
// applies to all fields with this name, in any object. A name that ends in * applies to all fields with this prefix.
// docs/compatibility.md contains the same list.
var leftOut = map[string]string{
	"garbage_collection": "Erlang processes", "reductions": "Erlang processes", "reductions_details": "Erlang processes",
	"context_switches*":       "Erlang processes",
	"metrics_gc_queue_length": "Erlang processes", "crypto_lib_version": "OpenSSL",
	"disk_reads*": "another kind of store", "disk_writes*": "another kind of store",
	"cached_segments":      "another kind of store",
	"open_files":           "another kind of store",
	"ra_open_file_metrics": "Raft", "pending_raft_commands": "Raft",
	"peer_cert_*": "TLS", "ssl_cipher": "TLS", "ssl_hash": "TLS", "ssl_key_exchange": "TLS", "ssl_protocol": "TLS",
	"idle_since": "not kept", "head_message_timestamp": "not kept", "exclusive_consumer_tag": "not kept", "publishers": "not kept",
	"messages_by_priority": "not kept", "messages_active_priorities": "not kept", "messages_ready_returned": "not kept",
	"send_oct": "not kept for virtual hosts", "send_oct_details": "not kept for virtual hosts",
	"recv_oct": "not kept for virtual hosts", "recv_oct_details": "not kept for virtual hosts",
	"user_who_performed_action": "not kept for exchanges", "publish_in*": "not kept", "publish_out*": "not kept",
	exchangeStats: "not kept",
	"backlog":     "socket options", "nodelay": "socket options", "linger": "socket options", "exit_on_close": "socket options",
	"cowboy_opts": "Erlang's web server", "socket_opts": "socket options",
}

// exchangeStats identifies the field message_stats of exchanges, which would contain only publish_in and publish_out.
const exchangeStats = "message_stats of exchanges"

// shapes lists the compared resources. V is a placeholder for the virtual host, and C for the name of the connection.
var shapes = []string{
	"/api/overview", "/api/nodes", "/api/connections/C", "/api/vhosts/V/connections", "/api/channels/C%20(1)",
	"/api/vhosts/V/channels", "/api/consumers/V", "/api/exchanges/V", "/api/exchanges/V/x",
	"/api/exchanges/V/x/bindings/source", "/api/exchanges/V/amq.fanout/bindings/destination",
	"/api/queues/V", "/api/queues/V/classic", "/api/queues/V/quorum", "/api/queues/V/exclusive",
	"/api/queues/V/classic/bindings", "/api/queues/V?page=1&page_size=2", "/api/bindings/V", "/api/bindings/V/e/x/q/classic",
	"/api/vhosts", "/api/vhosts/V", "/api/vhosts/V/permissions", "/api/users", "/api/users/guest",
	"/api/users/guest/permissions", "/api/permissions", "/api/permissions/V/guest", "/api/definitions", "/api/definitions/V",
	"/api/queues/detailed", "/api/nodes/N", "/api/nodes/N/memory", "/api/nodes/N/memory/relative", "/api/auth/attempts/N",
	"/api/auth/attempts/N/source", "/api/auth/hash_password/secret", "/api/health/checks/metadata-store/initialized",
	"/api/health/checks/metadata-store/initialized/with-data",
	"/api/health/checks/quorum-queues-without-elected-leaders/all-vhosts/",
	"/api/health/checks/quorum-queues-without-elected-leaders/vhost/V/pattern/q", "/api/healthchecks/node",
	"/api/whoami", "/api/extensions", "/api/cluster-name", "/api/health/checks/alarms",
	"/api/health/checks/port-listener/1", "/api/health/checks/protocol-listener/nosuch",
	"/api/health/checks/protocol-listener/amqp091", "/api/connections/username/guest",

	"/api/all-configuration", "/api/parameters", "/api/parameters/shovel", "/api/parameters/shovel/V", "/api/global-parameters",
	"/api/policies", "/api/policies/V", "/api/operator-policies", "/api/operator-policies/V", "/api/vhost-limits", "/api/vhost-limits/V",
	"/api/connections", "/api/connections?page=1", "/api/connections/C/channels",
	"/api/channels", "/api/channels?page=1", "/api/consumers", "/api/exchanges", "/api/exchanges?page=1&name=amq", "/api/exchanges/V?page=1",
	"/api/queues", "/api/queues?page=1",
	"/api/bindings", "/api/vhosts/V/topic-permissions", "/api/vhosts/V/channels?page=1",
	"/api/users?page=1", "/api/users/without-permissions", "/api/users/guest/topic-permissions",
	"/api/user-limits", "/api/user-limits/guest", "/api/feature-flags", "/api/deprecated-features",
	"/api/deprecated-features/used", "/api/topic-permissions", "/api/topic-permissions/V/guest", "/api/permissions?page=1",
	"/api/aliveness-test/V", "/api/healthchecks/node/N", "/api/health/checks/local-alarms", "/api/health/checks/certificate-expiration/1/days",
	"/api/health/checks/virtual-hosts", "/api/health/checks/quorum-queues-without-elected-leaders/vhost/V/",
	"/api/health/checks/quorum-queues-without-elected-leaders/all-vhosts/pattern/q", "/api/health/checks/node-is-quorum-critical",
	"/api/health/checks/is-in-service", "/api/health/checks/below-node-connection-limit", "/api/health/checks/ready-to-serve-clients",
	"/api/health/checks/reached-target-cluster-size", "/api/version",
	"/api/nodes?memory=true", "/api/nodes/N?memory=true",

	"/api/queues/V?page=1&use_regex=true&pagination=false&name=qu.%2A&page_size=100", // of KEDA's scaler
}

func TestResponseFieldsMatchRabbitMQ(t *testing.T) {
	us, rabbit := embedded(t, broker.Config{Store: disk.Dir(t.TempDir() + "/data")}), rabbitMQ(t)
	type setting struct{ vhost, connection string }
	settings := map[*target]setting{}
	for _, b := range []*target{us, rabbit} {
		vhost := b.vhost(t)
		populate(t, b, vhost)
		settings[b] = setting{vhost, connectionName(t, b, vhost)}
	}
	fetch := func(b *target, path string) any {
		s := settings[b]
		path = strings.NewReplacer("/N", "/"+nodeName(t, b), "/V", "/"+url.PathEscape(s.vhost), "/C", "/"+url.PathEscape(s.connection)).Replace(path)
		status, text := b.call(t, "GET", path, "")
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			v = text
		}
		if status != http.StatusOK {
			return map[string]any{fmt.Sprint("status ", status): v}
		}
		return v
	}
	// RabbitMQ updates its statistics at intervals of five seconds or more, and not all statistics at the same time.
	testkit.Eventually(t, published, func() error {
		for _, path := range []string{"/api/queues/V/classic", "/api/queues/V/quorum", "/api/channels/C%20(1)", "/api/vhosts/V"} {
			found, _ := fetch(rabbit, path).(map[string]any)
			if found["message_stats"] == nil {
				return fmt.Errorf("%s has no message_stats: %v", path, found)
			}
		}
		for path, field := range map[string]string{
			"/api/queues/V/classic": "memory", "/api/queues/V/quorum": "memory", "/api/queues/V/exclusive": "memory",
			"/api/connections/C": "state", "/api/channels/C%20(1)": "state",
		} {
			if found, _ := fetch(rabbit, path).(map[string]any); found[field] == nil {
				return fmt.Errorf("%s has no statistics: %v", path, found)
			}
		}
		var all []string
		for _, path := range shapes {
			all = append(all, differences(path, fetch(us, path), fetch(rabbit, path))...)
		}
		if all != nil {
			return errors.New(strings.Join(all, "\n"))
		}
		return nil
	})
}

// published is the maximum time until RabbitMQ has updated its statistics, even on a busy machine.
const published = 2 * time.Minute

// populate creates objects of all kinds, so that all lists have elements.
func populate(t *testing.T, b *target, vhost string) {
	conn := b.dial(t, vhost)
	ch := get[*amqp.Channel](t)(conn.Channel())
	must(t, ch.Confirm(false))
	must(t, ch.Qos(2, 0, false))
	must(t, ch.ExchangeDeclare("x", "topic", true, false, false, false, amqp.Table{"alternate-exchange": "amq.fanout"}))
	declare := get[amqp.Queue](t)
	declare(ch.QueueDeclare("classic", true, false, false, false, amqp.Table{"x-dead-letter-exchange": "x"}))
	declare(ch.QueueDeclare("quorum", true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 3}))
	declare(ch.QueueDeclare("exclusive", false, false, true, false, nil))
	must(t, ch.QueueBind("classic", "k", "x", false, amqp.Table{"a": 1, "b": "c"}))
	must(t, ch.ExchangeBind("amq.fanout", "k", "x", false, nil))
	b.must(t, "PUT", "/api/topic-permissions/"+url.PathEscape(vhost)+"/guest", `{"exchange":"x","write":".*","read":".*"}`)
	for range 4 {
		for _, q := range []string{"classic", "quorum"} {
			must(t, ch.Publish("", q, true, false, amqp.Publishing{Body: []byte("hello"), DeliveryMode: 2}))
		}
	}
	must(t, ch.Publish("x", "nowhere", true, false, amqp.Publishing{}))
	deliveries := get[<-chan amqp.Delivery](t)(ch.Consume("classic", "tag", false, false, false, false, amqp.Table{"x-priority": 3}))
	first := <-deliveries
	must(t, first.Ack(false))
	d, ok, err := ch.Get("quorum", false)
	if must(t, err); !ok {
		t.Fatal("queue is empty")
	}
	must(t, d.Ack(false))
}

func nodeName(t *testing.T, b *target) string {
	var nodes []struct{ Name string }
	must(t, json.Unmarshal([]byte(b.must(t, "GET", "/api/nodes?columns=name", "")), &nodes))
	return nodes[0].Name
}

func connectionName(t *testing.T, b *target, vhost string) string {
	var name string
	testkit.Eventually(t, published, func() bool {
		var all []struct {
			Name string `json:"name"`
		}
		must(t, json.Unmarshal([]byte(b.must(t, "GET", "/api/vhosts/"+url.PathEscape(vhost)+"/connections", "")), &all))
		if len(all) == 1 {
			name = all[0].Name
		}
		return name != ""
	})
	return name
}

// differences describes the fields that only one of two responses has, and the fields whose types differ.
func differences(path string, got, want any) (all []string) {
	report := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	g, w := shape{}, shape{}
	g.add("", got)
	w.add("", want)
	for _, name := range slices.Sorted(maps.Keys(w)) {
		switch {
		case expected(name), strings.HasPrefix(path, "/api/exchanges") && strings.HasSuffix(name, "message_stats"):
		case strings.HasSuffix(name, "…"): // users also choose the value
		case g[name] == "" && g.covers(name):
			report("%s: %s is missing, a %s", path, name, w[name])
		case g[name] != "" && g[name] != w[name] && g[name] != "null" && w[name] != "null":
			report("%s: %s is a %s, want a %s", path, name, g[name], w[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(g)) {
		if w[name] == "" && w.covers(name) {
			report("%s: %s is there, and not in RabbitMQ", path, name)
		}
	}
	return all
}

// shape maps the path of each field to its type. All elements of a list have the same path.
type shape map[string]string

func (s shape) add(name string, v any) {
	kind := "null"
	switch v := v.(type) {
	case map[string]any:
		kind = "object"
		for field, value := range v {
			if strings.HasSuffix(name, ".cluster_state") || strings.HasSuffix(name, ".arguments") || strings.HasSuffix(name, ".client_properties") || strings.HasSuffix(name, ".limits") {
				field = "…" // users choose these names
			}
			s.add(name+"."+field, value)
		}
	case []any:
		kind = "list"
		for _, value := range v {
			s.add(name+"[]", value)
		}
	case float64:
		kind = "number"
	case string:
		kind = "text"
	case bool:
		kind = "boolean"
	}
	if old := s[name]; old == "" || old == "null" {
		s[name] = kind
	}
}

// covers reports whether the response could contain the field. For example, it cannot contain the fields of the
// elements of an empty list.
func (s shape) covers(name string) bool {
	i := strings.LastIndexAny(name, ".")
	if strings.HasSuffix(name, "[]") {
		return false
	}
	return i < 0 || s[name[:i]] == "object"
}

// expected reports whether leftOut contains the field or one of its parents.
func expected(name string) bool {
	for _, part := range strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		for pattern := range leftOut {
			prefix, wild := strings.CutSuffix(pattern, "*")
			if part == pattern || wild && strings.HasPrefix(part, prefix) {
				return true
			}
		}
	}
	return false
}
