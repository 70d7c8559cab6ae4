// Package prommetrics counts the events of clients and workers for Prometheus.
//
//	metrics, err := prommetrics.New(prommetrics.Config{})
//	…
//	registry.MustRegister(metrics)
//	client, err := reprise.Dial(ctx, url, &reprise.Config{Observer: metrics})
//
// New does not register the metrics. Use a separate Metrics for each Client, and distinguish the clients by a label:
//
//	prometheus.WrapRegistererWith(prometheus.Labels{"broker": "eu"}, registry).MustRegister(metrics)
//
// docs/observability.md lists the metrics and their labels, defines alerts, and links to a Grafana dashboard. Label
// values are names of queues, connections and databases, and fixed words, but never message content. The first event of
// a queue creates all series of the queue, with the value 0. New creates the series of the client. Therefore a rate
// includes the first increase.
//
// The package imports the packages reprise and internal/published, and the Prometheus client.
package prommetrics
