package main

import "testing"

// These outputs come from lavinmqperf 2.9.1.
func TestParsePerf(t *testing.T) {
	const closed = "2026-12-01T02:33:25.793982Z   INFO - amqp.client.connection: Connection closed by server: CHANNEL_ERROR - expected 'channel.open' (code 504)\n"
	for _, test := range []struct {
		name, out string
		want      perfResult
	}{
		{
			"between log lines", "\n" + closed + `{"elapsed_seconds":3.000338295,"avg_pub_rate":5094,"avg_consume_rate":5762}` + "\n" + closed,
			perfResult{Seconds: 3.000338295, Published: 5094, Delivered: 5762},
		},
		{
			"on the line of a log message", `{"elapsed_seconds":1.00013189,"avg_pub_rate":50450,"avg_consume_rate":50360}` + closed,
			perfResult{Seconds: 1.00013189, Published: 50450, Delivered: 50360},
		},
		{
			"with latency", `{"elapsed_seconds":2.012495231,"avg_pub_rate":177,"avg_consume_rate":177,"latency_min_ms":0.277,` +
				`"latency_median_ms":2.258,"latency_p75_ms":4.116,"latency_p95_ms":8.243,"latency_p99_ms":13.156,"latency_count":357,"latency_sample_size":357}` + "\n",
			perfResult{Seconds: 2.012495231, Published: 177, Delivered: 177, P50: 2.258, P99: 13.156},
		},
	} {
		if got, err := parsePerf([]byte(test.out)); err != nil || got != test.want {
			t.Errorf("summary %s: got %+v, %v, want %+v", test.name, got, err, test.want)
		}
	}
	if _, err := parsePerf([]byte("Error connecting to '127.0.0.1:5792': Connection refused (127.0.0.1:5792)\n")); err == nil {
		t.Error("output without a summary: got no error")
	}
}
