// Package prommetrics counts the events of clients and workers for Prometheus.
//
//	metrics, err := prommetrics.New(prommetrics.Config{})
//	…
//	registry.MustRegister(metrics)
//	client, err := reprise.Dial(ctx, url, &reprise.Config{Observer: metrics})
//
// New registers nothing. Give each Client a Metrics of its own. Tell several apart as
// Prometheus does:
//
//	prometheus.WrapRegistererWith(prometheus.Labels{"broker": "eu"}, registry).MustRegister(metrics)
//
// docs/observability.md lists the metrics with their labels, alerts, and a dashboard for
// Grafana. Labels are queues, connections, databases and fixed words, and nothing of a
// message. All series of a queue exist, at 0, from its first event on, and those of the client
// from the beginning, so that a rate includes the first increase.
//
// The package imports package reprise and the Prometheus client.
package prommetrics
