package managementtest

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/disk"
)

// Requests for parameters get RabbitMQ's responses.
func TestParametersMatchRabbitMQ(t *testing.T) {
	compareResponses(t, []request{
		{"PUT", "/api/parameters/nosuch/V/x", `{"value":1}`},
		{"PUT", "/api/parameters/nosuch/V/x", `{}`},
		{"PUT", "/api/parameters/nosuch/nosuch/x", `{"value":1}`},
		{"PUT", "/api/parameters/policy/V/x", `{"value":1}`},
		{"GET", "/api/parameters/nosuch/V/x", ""},
		{"DELETE", "/api/parameters/nosuch/V/x", ""},
		{"POST", "/api/definitions/V", `{"parameters":[{"component":"nosuch","name":"n","value":{}}]}`},
		{"PUT", "/api/global-parameters/V", `{"value":{"a":[1,null,{"b":"c"}],"f":1.5}}`},
		{"GET", "/api/global-parameters/V", ""},
		{"PUT", "/api/global-parameters/V", `{"value":"x"}`},
		{"PUT", "/api/global-parameters/V", `{"value":null}`},
		{"GET", "/api/global-parameters/V", ""},
		{"PUT", "/api/global-parameters/V", `{"value":{}}`},
		{"GET", "/api/global-parameters/V", ""},
		{"PUT", "/api/global-parameters/V", `{}`},
		{"DELETE", "/api/global-parameters/V", ""},
		{"DELETE", "/api/global-parameters/V", ""},
		{"GET", "/api/global-parameters/V", ""},
	})
}

// The broker keeps the parameters of a definitions file, also over a restart, and says which of them have no effect.
func TestParametersLast(t *testing.T) {
	var log bytes.Buffer
	const parameters = `[{"component":"federation-upstream","name":"up","value":{"uri":"amqp://other"},"vhost":"/"},` +
		`{"component":"shovel","name":"s","value":{"src-queue":"a"},"vhost":"/"}]`
	config := broker.Config{
		Store: disk.Dir(t.TempDir() + "/data"), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Definitions: []byte(`{"vhosts":[{"name":"/"}],"users":[{"name":"guest","password":"guest","tags":"administrator"}],"parameters":` + parameters + `,
			"global_parameters":[{"name":"cluster_name","value":"shop"},{"name":"mqtt_port_to_vhost_mapping","value":{"1883":"/"}}]}`),
	}
	for range 2 {
		b, call := handler(t, config)
		for path, want := range map[string]string{
			"/api/parameters":        parameters,
			"/api/parameters/shovel": `[{"component":"shovel","name":"s","value":{"src-queue":"a"},"vhost":"/"}]`,
			"/api/cluster-name":      `{"name":"shop"}`,
			"/api/global-parameters": `[{"name":"cluster_name","value":"shop"},{"name":"cluster_tags","value":[]},{"name":"mqtt_port_to_vhost_mapping","value":{"1883":"/"}}]`,
		} {
			if got := call("GET", path, "").Body.String(); got != want {
				t.Errorf("GET %s: got %s, want %s", path, got, want)
			}
		}
		must(t, b.Shutdown(t.Context()))
		config.Definitions = nil
	}
	for _, component := range []string{"federation-upstream", "shovel"} {
		if got := strings.Count(log.String(), "has no effect: this broker does not run federations or shovels\" component="+component+" "); got != 1 {
			t.Errorf("%d warnings about %s, want 1:\n%s", got, component, &log)
		}
	}
}
