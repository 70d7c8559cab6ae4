package config

import (
	"net/url"
	"strings"

	"github.com/reprisemq/reprise/internal/brief"
)

// Telemetry configures the export of traces and metrics by OTLP. Fields without a value are those of the environment variables OTEL_*,
// or their defaults.
type Telemetry struct {
	Endpoint string // base URL of the collector
	Protocol string // ProtocolHTTP or ProtocolGRPC
	Headers  []Pair

	CACertFile, CertFile, KeyFile string

	Traces, Metrics *bool    // whether to export them
	SampleRatio     *float64 // part of the traces
	Service         string
	Attributes      []Pair // of the resource
	ChildOfProducer bool

	Secrets []string // values of variables that must not appear in output
	At      Position // position of the key or of its last file, for startup errors
}

// Protocols of OTLP, as in OTEL_EXPORTER_OTLP_PROTOCOL.
const (
	ProtocolHTTP = "http/protobuf"
	ProtocolGRPC = "grpc"
)

// telemetry reads the URL of a collector, or a mapping. In a mapping, no key is required.
func (v value) telemetry() (*Telemetry, bool) {
	t := &Telemetry{At: v.at}
	if !v.isMapping() {
		v.collector(t)
		return t, true
	}
	f, _ := v.fields("telemetry")
	read(f, "protocol", &t.Protocol, oneOf(ProtocolHTTP, ProtocolGRPC))
	f.with("endpoint", func(x value) { x.collector(t) })
	f.with("headers", func(x value) {
		var secrets []string
		t.Headers, secrets = x.headers()
		t.Secrets = append(t.Secrets, secrets...)
	})
	f.certificates(&t.At, &t.CACertFile, &t.CertFile, &t.KeyFile)
	f.with("traces", func(x value) { t.Traces = x.toggle() })
	f.with("metrics", func(x value) { t.Metrics = x.toggle() })
	f.with("sample_ratio", func(x value) {
		if ratio, ok := number("a number from 0 to 1")(x); ok && (ratio < 0 || ratio > 1) {
			x.fail("%s must be from 0 to 1: got %s (0.1 exports one trace of ten)", x.name, x.notation())
		} else if ok {
			t.SampleRatio = &ratio
		}
	})
	read(f, "service", &t.Service, text("reprise"))
	f.with("attributes", func(x value) {
		t.Attributes, _ = x.pairs(func(p field, _ string) bool {
			if p.key == "service.name" {
				return p.failAt(p.keyAt, "service.name is the key service: write service: NAME")
			}
			return true
		})
	})
	read(f, "child_of_producer", &t.ChildOfProducer, value.boolean)
	f.finish()
	if t.CACertFile+t.CertFile != "" && strings.HasPrefix(t.Endpoint, "http:") {
		v.failAt(t.At, "cacertfile, certfile and keyfile require an endpoint that begins with https://")
	}
	return t, true
}

// toggle reads true or false.
func (v value) toggle() *bool {
	if yes, ok := v.boolean(); ok {
		return &yes
	}
	return nil
}

// collector reads the base URL of a collector. The port of the other protocol is a frequent mistake.
func (v value) collector(t *Telemetry) {
	s, secrets, ok := v.endpoint()
	if !ok {
		return
	}
	u, err := url.Parse(s)
	switch {
	case err != nil: // endpoint has reported it
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		v.fail("%s must be a URL without a user, ? and #: write secrets as headers: {NAME: ${file:PATH}}", v.name)
	case strings.HasSuffix(u.Path, "/v1/traces") || strings.HasSuffix(u.Path, "/v1/metrics"):
		v.fail("%s must end before /v1/: the exporter adds the paths of both signals", v.name)
	case t.Protocol == ProtocolGRPC && strings.Trim(u.Path, "/") != "":
		v.fail("%s must not have a path with protocol: grpc: got %s", v.name, brief.Quoted(u.Path))
	case t.Protocol == "" && u.Port() == "4317":
		v.fail("%s has the port of OTLP over gRPC: add protocol: grpc, or protocol: http/protobuf", v.name)
	}
	t.Endpoint, t.Secrets = s, append(t.Secrets, secrets...)
}
