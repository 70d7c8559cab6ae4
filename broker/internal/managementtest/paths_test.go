package managementtest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
)

// For all methods, a single slash at the end of a path has no effect. If a path has other empty segments, the API
// responds as for an unknown path, and does not redirect the client.
func TestPathsWithSlashesAndDots(t *testing.T) {
	compareResponses(t, []request{
		{"PUT", "/api/queues/V/q/", `{"durable":true}`},
		{"PUT", "/api/queues/V/q/", `{"durable":true}`},
		{"PUT", "/api/exchanges/V/x/", `{"type":"topic","durable":true}`},
		{"POST", "/api/bindings/V/e/x/q/q/", `{"routing_key":"k"}`},
		{"PUT", "/api/users/U/", `{"password":"p","tags":"management"}`},
		{"PUT", "/api/permissions/V/U/", `{"configure":".*","write":".*","read":".*"}`},
		{"PUT", "/api/vhosts/V/", `{"description":"d"}`},

		{"GET", "/api/queues/V/?columns=name", ""},
		{"GET", "/api/queues/V/q/?columns=name", ""},
		{"GET", "/api/queues/V/q/bindings/", ""},
		{"GET", "/api/queues/V/nosuch/", ""},
		{"GET", "/api/exchanges/V/?columns=name&page=1&page_size=7&name=topic", ""},
		{"GET", "/api/exchanges/V/x/?columns=name,type", ""},
		{"GET", "/api/exchanges/V/x/bindings/source/", ""},
		{"GET", "/api/exchanges/V/x/bindings/destination/", ""},
		{"GET", "/api/bindings/V/", ""},
		{"GET", "/api/bindings/V/e/x/q/q/", ""},
		{"GET", "/api/bindings/V/e/x/q/q/k/", ""},
		{"GET", "/api/connections/nosuch/", ""},
		{"GET", "/api/consumers/V/", ""},
		{"GET", "/api/users/U/?columns=name", ""},
		{"GET", "/api/users/U/permissions/", ""},
		{"GET", "/api/vhosts/V/?columns=description", ""},
		{"GET", "/api/vhosts/V/permissions/", ""},
		{"GET", "/api/vhosts/V/connections/", ""},
		{"GET", "/api/permissions/V/U/", ""},
		{"GET", "/api/whoami/", ""},
		{"GET", "/api/overview/?columns=rabbitmq_version", ""},
		{"GET", "/api/nodes/nosuch/", ""},
		{"GET", "/api/extensions/", ""},
		{"GET", "/api/health/checks/alarms/", ""},
		{"GET", "/api/health/checks/virtual-hosts/", ""},
		{"GET", "/api/nosuch/", ""},
		{"POST", "/api/exchanges/V/x/publish/", `{"properties":{},"routing_key":"k","payload":"x","payload_encoding":"string"}`},
		{"POST", "/api/queues/V/q/get/", `{"count":1,"ackmode":"ack_requeue_false","encoding":"auto"}`},
		{"POST", "/api/definitions/V/", `{}`},
		{"POST", "/api/overview/", ""},
		{"DELETE", "/api/overview/", ""},
		{"DELETE", "/api/connections/nosuch/", ""},
		{"DELETE", "/api/queues/V/q/contents/", ""},
		{"DELETE", "/api/bindings/V/e/x/q/q/k/", ""},
		{"DELETE", "/api/queues/V/q/", ""},
		{"DELETE", "/api/queues/V/q/", ""},
		{"DELETE", "/api/exchanges/V/x/", ""},
		{"DELETE", "/api/permissions/V/U/", ""},
		{"DELETE", "/api/users/U/", ""},

		{"GET", "//api/overview", ""},
		{"GET", "/api//overview", ""},
		{"GET", "/api/overview//", ""},
		{"GET", "/api/queues//", ""},
		{"GET", "/api//queues/%2F", ""},
		{"GET", "//api//queues///%2f", ""},
		{"GET", "/api/exchanges/%2F/amq.topic//", ""},
		{"GET", "/api/exchanges/%2F//amq.topic", ""},
		{"GET", "/api/exchanges/%2F/amq.topic/nosuch", ""},
		{"PUT", "/api//overview", ""},
		{"POST", "/api/nosuch", ""},
		{"DELETE", "/api/nosuch", ""},
		{"DELETE", "/api/nosuch/%2F", ""},
		{"GET", "/api/./whoami", ""},
		{"GET", "/api/queues/../whoami", ""},
	})
	// Compare only the status, because these responses contain objects of other tests.
	ours, theirs := embedded(t, broker.Config{}), rabbitMQ(t)
	for _, path := range []string{
		"/api/connections/", "/api/channels/", "/api/consumers/", "/api/queues/nosuch/..",
		"/api/connections?page=1&name=nosuch", "/api/channels?page=1&name=nosuch", "/api/users?page=1&name=nosuch&columns=name",
	} {
		want, _ := theirs.call(t, "GET", path, "")
		if got, _ := ours.call(t, "GET", path, ""); got != want {
			t.Errorf("GET %s: got %d, want %d", path, got, want)
		}
	}
}

// For an object with a name that cannot exist, the API responds with RabbitMQ's status and message for a missing
// object. The same applies to paths with a missing virtual host or user.
func TestImpossibleObjectsAreNotFound(t *testing.T) {
	// RabbitMQ may still list objects that other tests have deleted.
	ours, theirs := embedded(t, broker.Config{}), rabbitMQ(t)
	testkit.Eventually(t, published, func() error {
		return compareResponse(t, ours, theirs, request{"GET", "/api/parameters", ""})
	})

	var all []request
	for _, path := range []string{"/api/policies", "/api/operator-policies"} {
		all = append(all, []request{
			{"GET", path, ""},
			{"GET", path + "/V", ""},
			{"GET", path + "/V/", ""},
			{"GET", path + "/nosuch", ""},
			{"GET", path + "/V/nosuch", ""},
			{"GET", path + "/nosuch/nosuch", ""},
			{"GET", path + "/%2F/a/b", ""},
			{"DELETE", path, ""},
			{"DELETE", path + "/V", ""},
			{"DELETE", path + "/V/nosuch", ""},
			{"DELETE", path + "/nosuch/nosuch", ""},
			{"PUT", path + "/nosuch/nosuch", `{"pattern":"","definition":{"max-length":1}}`},
			{"POST", path + "/V/nosuch", `{}`},
		}...)
	}
	compareResponses(t, append(all, []request{
		{"GET", "/api/parameters/nosuch", ""},
		{"GET", "/api/parameters/nosuch/V", ""},
		{"GET", "/api/parameters/nosuch/nosuch", ""},
		{"GET", "/api/parameters/nosuch/V/nosuch", ""},
		{"GET", "/api/parameters/nosuch/nosuch/nosuch", ""},
		{"GET", "/api/parameters/vhost-limits/V/limits", ""},
		{"GET", "/api/parameters/a/nosuch/c/d", ""},
		{"DELETE", "/api/parameters", ""},
		{"DELETE", "/api/parameters/nosuch/V", ""},
		{"DELETE", "/api/parameters/nosuch/V/nosuch", ""},
		{"DELETE", "/api/parameters/nosuch/nosuch/nosuch", ""},
		{"PUT", "/api/parameters/nosuch/nosuch/nosuch", `{"value":1}`},

		{"GET", "/api/global-parameters/nosuch", ""},
		{"GET", "/api/global-parameters/cluster_tags", ""},
		{"DELETE", "/api/global-parameters/nosuch", ""},
		{"DELETE", "/api/global-parameters", ""},

		{"POST", "/api/vhosts/nosuch/deletion/protection", ""},
		{"DELETE", "/api/vhosts/nosuch/deletion/protection", ""},
		{"POST", "/api/vhosts/V/deletion/protection", ""},
		{"DELETE", "/api/vhosts/V", ""},
		{"PUT", "/api/vhosts/V", `{"description":"x","protected_from_deletion":false}`},
		{"GET", "/api/vhosts/V?columns=metadata,protected_from_deletion", ""},
		{"DELETE", "/api/vhosts/V", ""},
		{"DELETE", "/api/vhosts/V/deletion/protection", ""},
		{"GET", "/api/vhosts/V?columns=metadata,protected_from_deletion", ""},

		{"GET", "/api/topic-permissions", ""},
		{"GET", "/api/topic-permissions/%2F", ""},
		{"GET", "/api/topic-permissions/nosuch", ""},
		{"GET", "/api/topic-permissions/V/guest", ""},
		{"GET", "/api/topic-permissions/V/nosuch", ""},
		{"GET", "/api/topic-permissions/nosuch/guest", ""},
		{"GET", "/api/users/guest/topic-permissions", ""},
		{"GET", "/api/users/nosuch/topic-permissions", ""},
		{"GET", "/api/vhosts/V/topic-permissions", ""},
		{"GET", "/api/vhosts/nosuch/topic-permissions", ""},
		{"PUT", "/api/users/guest/topic-permissions", ""},
		{"DELETE", "/api/topic-permissions/V/guest", ""},
		{"DELETE", "/api/topic-permissions/V/nosuch", ""},
		{"DELETE", "/api/topic-permissions/nosuch/guest", ""},
		{"PUT", "/api/topic-permissions/V/nosuch", `{"exchange":"amq.topic","read":"","write":""}`},
		{"PUT", "/api/topic-permissions/nosuch/guest", `{"exchange":"amq.topic","read":"","write":""}`},
		{"PUT", "/api/topic-permissions/V/guest", `{"exchange":"nosuch","read":"","write":""}`},
		{"PUT", "/api/topic-permissions/V/guest", `{"read":"","write":""}`},
		{"PUT", "/api/topic-permissions/V/guest", `{"exchange":"amq.topic","read":"a","write":"b","user":"nosuch","vhost":"nosuch"}`},
		{"PUT", "/api/topic-permissions/V/guest/ignored", `{"exchange":"amq.direct","read":"","write":"{username}"}`},
		{"PUT", "/api/topic-permissions/V/guest", `{"exchange":"","read":"","write":""}`},
		{"PUT", "/api/topic-permissions/V/guest", `{"exchange":"amq.topic","read":".*","write":"b"}`},
		{"GET", "/api/topic-permissions/V/guest", ""},
		{"GET", "/api/topic-permissions/V/guest/nosuch", ""},
		{"GET", "/api/vhosts/V/topic-permissions", ""},
		{"DELETE", "/api/topic-permissions/V/guest/amq.direct", ""},
		{"DELETE", "/api/topic-permissions/V/guest/nosuch", ""},
		{"GET", "/api/topic-permissions/V/guest", ""},
		{"DELETE", "/api/topic-permissions/V/guest", ""},
		{"GET", "/api/topic-permissions/V/guest", ""},
		{"PUT", "/api/exchanges/V/t", `{"type":"topic"}`},
		{"PUT", "/api/topic-permissions/V/guest", `{"exchange":"t","read":"a","write":"b"}`},
		{"DELETE", "/api/exchanges/V/t", ""},
		{"PUT", "/api/exchanges/V/t", `{"type":"topic"}`},
		{"GET", "/api/vhosts/V/topic-permissions", ""},

		{"GET", "/api/vhost-limits/V", ""},
		{"GET", "/api/vhost-limits/nosuch", ""},
		{"GET", "/api/vhost-limits/V/max-connections", ""},
		{"PUT", "/api/vhost-limits/nosuch", ""},
		{"PUT", "/api/vhost-limits/nosuch/max-connections", `{"value":1}`},
		{"POST", "/api/vhost-limits/V/max-connections", ""},
		{"DELETE", "/api/vhost-limits/V", ""},
		{"DELETE", "/api/vhost-limits/nosuch/max-connections", ""},
		{"DELETE", "/api/vhost-limits/V/max-connections", ""},

		{"GET", "/api/user-limits/guest", ""},
		{"GET", "/api/user-limits/nosuch", ""},
		{"GET", "/api/user-limits/guest/max-connections", ""},
		{"PUT", "/api/user-limits/nosuch/max-connections", `{"value":1}`},
		{"DELETE", "/api/user-limits/guest", ""},
		{"DELETE", "/api/user-limits/nosuch/max-connections", ""},
		{"DELETE", "/api/user-limits/guest/max-connections", ""},

		{"GET", "/api/feature-flags/nosuch", ""},
		{"GET", "/api/deprecated-features/used", ""},
		{"GET", "/api/deprecated-features/nosuch", ""},
	}...))
}

// A page without matching elements has an empty list of items. If a client requests a page of a list that RabbitMQ does
// not page, the response is the complete list.
func TestEmptyPagesMatchRabbitMQ(t *testing.T) {
	compareResponses(t, []request{
		{"GET", "/api/vhosts/V/connections?page=1&name=nosuch", ""},
		{"GET", "/api/vhosts/V/channels?page=1&name=nosuch", ""},
		{"GET", "/api/queues/V?page=1", ""},
		{"GET", "/api/queues/V?page=1&name=nosuch", ""},
		{"GET", "/api/queues/V?page=2&name=nosuch", ""},
		{"GET", "/api/queues/V?page=1&page_size=5&name=nosuch&use_regex=true", ""},
		{"GET", "/api/exchanges/V?page=1&page_size=2&name=nosuch&columns=name", ""},
		{"GET", "/api/consumers/V?page=1", ""},
		{"GET", "/api/bindings/V?page=1", ""},
		{"GET", "/api/exchanges/V/amq.topic/bindings/source?page=1", ""},
		{"GET", "/api/permissions/V/guest?page=1", ""},
		{"GET", "/api/policies/V?page=1", ""},
		{"GET", "/api/topic-permissions?page=1", ""},
		{"GET", "/api/extensions?page=1", ""},
	})
}

// Definitions must be a JSON object. Like RabbitMQ, the API treats a missing body as an empty object.
func TestInvalidDefinitionsMatchRabbitMQ(t *testing.T) {
	var all []request
	for _, path := range []string{"/api/definitions", "/api/definitions/V", "/api/definitions/nosuch"} {
		for _, body := range []string{"null", " null ", "[]", "1", `"x"`, "true", "{"} {
			all = append(all, request{"POST", path, body})
		}
	}
	compareResponses(t, append(all, []request{
		{"POST", "/api/definitions", ""},
		{"POST", "/api/definitions/V", ""},
		{"POST", "/api/definitions/nosuch", "{}"},
	}...))
}

// As in RabbitMQ, clients can bind to the trace exchange, but can neither publish to it nor delete it.
func TestTraceExchange(t *testing.T) {
	compareResponses(t, []request{
		{"GET", "/api/exchanges/V/amq.rabbitmq.trace?columns=name,type,durable,internal,auto_delete,arguments", ""},
		{"GET", "/api/exchanges/V?columns=name,type,internal", ""},
		{"PUT", "/api/queues/V/q", `{"durable":true}`},
		{"POST", "/api/bindings/V/e/amq.rabbitmq.trace/q/q", `{"routing_key":"publish.#"}`},
		{"GET", "/api/exchanges/V/amq.rabbitmq.trace/bindings/source", ""},
		{"POST", "/api/exchanges/V/amq.rabbitmq.trace/publish", `{"properties":{},"routing_key":"k","payload":"x","payload_encoding":"string"}`},
		{"PUT", "/api/exchanges/V/amq.rabbitmq.trace", `{"type":"topic","durable":true,"internal":true}`},
		{"DELETE", "/api/exchanges/V/amq.rabbitmq.trace", ""},
	})
}

// A browser gets a page at /api without a password, as in RabbitMQ.
func TestIndex(t *testing.T) {
	both(t, func(t *testing.T, b *target) {
		for _, path := range []string{"/api", "/api/"} {
			answer, err := b.client.Get(b.api + path)
			must(t, err)
			must(t, answer.Body.Close())
			if end := answer.Request.URL.Path; answer.StatusCode != http.StatusOK || end != "/api/index.html" ||
				!strings.HasPrefix(answer.Header.Get("Content-Type"), "text/html") {
				t.Errorf("%s redirects to %s: %s %s", path, end, answer.Status, answer.Header.Get("Content-Type"))
			}
		}
	})
}

// Config.Definitions must also be a JSON object.
func TestNewRejectsInvalidDefinitions(t *testing.T) {
	for _, definitions := range []string{"null", "[]", "1"} {
		if _, err := broker.New(broker.Config{Definitions: []byte(definitions)}); err == nil {
			t.Errorf("New accepts the definitions %s", definitions)
		}
	}
}
