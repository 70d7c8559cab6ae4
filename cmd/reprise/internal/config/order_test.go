package config

import (
	"strings"
	"testing"
	"time"
)

func TestLanes(t *testing.T) {
	for text, problem := range map[string]string{
		"lanes: 4":                                    "",
		"lanes: 4, concurrency: 8":                    "",
		"lanes: 0":                                    "must be at least 1",
		"lanes: 257":                                  "at most 256",
		"lanes: 4, debounce: 1s":                      "debounce must not be combined with lanes",
		"lanes: 4, bind: {exchange: x}":               "bind must not be combined with lanes",
		"lanes: 4, failed_queue: dead":                "failed_queue must not be combined with lanes",
		"lanes: 4, lease: 1m":                         "lease must not be combined with lanes",
		"lanes: 4, route: levels":                     "route must not be combined with lanes",
		"lanes: 4, order_by: header a, partitions: 4": "order_by must not be combined with lanes",
	} {
		cfg, err := Parse("/reprise.yaml", []byte("workers: [{queue: orders, exec: [x], "+text+"}]"), environment)
		switch {
		case problem == "" && (err != nil || cfg.Workers[0].Lanes != 4):
			t.Errorf("%s: got error %v, want 4 lanes", text, err)
		case problem != "" && (err == nil || !strings.Contains(err.Error(), problem)):
			t.Errorf("%s: got error %v, want %q", text, err, problem)
		}
	}
}

func TestOrderBy(t *testing.T) {
	for text, problem := range map[string]string{
		"order_by: header customer, partitions: 4":                 "",
		"order_by: header x-reprise-key, partitions: 4":            "",
		"order_by: header customer":                                "order_by requires partitions",
		"partitions: 4":                                            "partitions requires order_by",
		"order_by: customer, partitions: 4":                        "must be a header",
		"order_by: routing key, partitions: 4":                     "the routing key names the partition",
		"order_by: header customer, partitions: 0":                 "must be at least 1",
		"order_by: header customer, partitions: 4, on_full: pause": "",
		"order_by: header customer, partitions: 4, on_full: drop":  "park or pause",
		"on_full: pause":                                           "on_full requires order_by",
		"order_by: header customer, partitions: 4, lease: 1m":      "lease must not be combined with order_by",
		"order_by: header customer, partitions: 4, key_rate: 1/m":  "",
		"order_by: header customer, partitions: 4, key_rate: 5":    "must have a unit",
		"order_by: header a, partitions: 4, key_rate: {burst: 2}":  "key_rate has no limit",
		"order_by: header a, partitions: 4, key_rate: 0.001/d":     "must permit a Burst within",
		"key_rate: 5/s": "key_rate requires order_by",
		"order_by: header customer, partitions: 4, debounce: 1s": "debounce must not be combined with order_by",
		"order_by: header customer, partitions: 4, plain: true":  "plain must not be combined with order_by",
	} {
		cfg, err := Parse("/reprise.yaml", []byte("workers: [{queue: orders, exec: [x], "+text+"}]"), environment)
		switch {
		case problem == "" && (err != nil || cfg.Workers[0].OrderBy == nil || cfg.Workers[0].OrderBy.Partitions != 4):
			t.Errorf("%s: got error %v, want 4 partitions", text, err)
		case problem != "" && (err == nil || !strings.Contains(err.Error(), problem)):
			t.Errorf("%s: got error %v, want %q", text, err, problem)
		}
	}
}

func TestLease(t *testing.T) {
	for text, problem := range map[string]string{
		"lease: 5m":                           "",
		"lease: 15m":                          "",
		"lease: 2h, consumer_timeout: none":   "",
		"lease: 1m, settle: publish-then-ack": "",
		"lease: 16m":                          "exceeds half of consumer_timeout; write 15m or less",
		"lease: 10ms":                         "at least 1s",
		"lease: 1m, debounce: 1s":             "lease must not be combined with debounce",
		"lease: 1m, settle: ack-then-publish": "lease must not be combined with settle",
	} {
		cfg, err := Parse("/reprise.yaml", []byte("workers: [{queue: orders, exec: [x], "+text+"}]"), environment)
		switch {
		case problem == "" && (err != nil || cfg.Workers[0].Lease < time.Minute):
			t.Errorf("%s: got error %v, want a lease", text, err)
		case problem != "" && (err == nil || !strings.Contains(err.Error(), problem)):
			t.Errorf("%s: got error %v, want %q", text, err, problem)
		}
	}
}
