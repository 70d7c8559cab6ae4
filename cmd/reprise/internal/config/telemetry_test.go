package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTelemetry(t *testing.T) {
	const workers = "\nworkers: [{queue: a, exec: [x]}]\n"
	off, tenth := false, 0.1
	for text, want := range map[string]*Telemetry{
		"telemetry: {}":                    {},
		"telemetry: http://127.0.0.1:4318": {Endpoint: "http://127.0.0.1:4318"},
		"telemetry: {protocol: grpc, endpoint: 'https://h:4317', cacertfile: ca.pem, metrics: false, sample_ratio: 0.1}": {
			Protocol: ProtocolGRPC, Endpoint: "https://h:4317", CACertFile: "dir/ca.pem", Metrics: &off, SampleRatio: &tenth,
		},
		"telemetry: {endpoint: http://h:4317, protocol: http/protobuf, headers: {Authorization: 'Key ${BILLING_TOKEN}'}, service: shop}": {
			Protocol: ProtocolHTTP, Endpoint: "http://h:4317", Headers: []Pair{{"Authorization", "Key t0ken"}}, Service: "shop", Secrets: []string{"t0ken"},
		},
	} {
		got := mustParse(t, text+workers).Telemetry
		got.At = Position{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", text, diff)
		}
	}
	for text, want := range map[string]string{
		"telemetry: http://h:4317":                                 "add protocol: grpc",
		"telemetry: {endpoint: http://h:4317/x, protocol: grpc}":   "must not have a path",
		"telemetry: http://h:4318/v1/traces":                       "must end before /v1/",
		"telemetry: http://user:hush@h:4318":                       "without a user",
		"telemetry: h:4318":                                        "does not begin with http://",
		"telemetry: {endpoint: http://h:4318, cacertfile: ca.pem}": "require an endpoint that begins with https://",
		"telemetry: {protocol: http/json}":                         "http/protobuf or grpc",
		"telemetry: {endpoint: 'https://h', keyfile: ca.pem}":      "telemetry needs certfile and keyfile together",
		"telemetry: true":                                          "a string",
		"opentelemetry: http://h:4318":                             "did you mean telemetry?",
	} {
		_, err := Parse("dir/test.yaml", []byte(text+workers), environment)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
