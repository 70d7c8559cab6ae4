// Package prommetrics counts what clients and workers do, for Prometheus.
//
//	metrics, err := prommetrics.New(prommetrics.Config{})
//	…
//	registry.MustRegister(metrics)
//	client, err := reprise.Dial(ctx, url, &reprise.Config{Observer: metrics})
//
// Nothing is registered anywhere by itself. Give each Client a Metrics of its
// own; where there are several, tell them apart as Prometheus does it:
//
//	prometheus.WrapRegistererWith(prometheus.Labels{"broker": "eu"}, registry).MustRegister(metrics)
//
// # Metrics
//
// Of a work queue:
//
//	reprise_attempts_total                  counter    queue, outcome
//	reprise_attempts_running                gauge      queue
//	reprise_handler_duration_seconds        histogram  queue, result
//	reprise_message_attempts                histogram  queue, outcome
//	reprise_message_age_seconds             histogram  queue
//	reprise_retry_delay_seconds             histogram  queue
//	reprise_last_success_timestamp_seconds  gauge      queue
//	reprise_copies_failed_total             counter    queue
//	reprise_debounced_total                 counter    queue
//	reprise_consumer_timeouts_near_total    counter    queue
//	reprise_consuming                       gauge      queue
//	reprise_interruptions_total             counter    queue
//	reprise_paused                          gauge      queue
//	reprise_pauses_total                    counter    queue
//
// Of a queue whose messages are taken out by failed.Ingest, failed.Redrive, or another worker with
// WorkerConfig.AsDelivered, the last four and, in place of the others:
//
//	reprise_taken_total                     counter    queue
//
// Of a client:
//
//	reprise_connection_up                   gauge      connection
//	reprise_connection_blocked              gauge      connection
//	reprise_reconnects_total                counter    connection
//	reprise_published_total                 counter    result
//	reprise_publish_duration_seconds        histogram
//
// Of a database that the program says it needs (Metrics.Store):
//
//	reprise_store_up                        gauge      store
//
// Outcomes are done, retried, parked, given_back (to the queue, the attempt not
// counted), dropped (the connection was lost before the broker heard of it: the
// message is delivered again) and lost (or perhaps: with AckThenPublish only).
// Results of a handler are ok and error; those of publishing ok, unconfirmed, nacked, unroutable,
// refused, too_large, blocked, stalled, disconnected, invalid and other. Connections
// are publish and consume.
//
// There are no other values, and nothing of a message becomes a label: the number
// of series is a matter of how many queues there are. All series of a queue are
// there, at 0, from its first event on, and those of the client from the
// beginning, so that no rate misses the first increase.
//
// An age of more than a year is taken for a mistake of whoever wrote the timestamp,
// and left out of message_age_seconds: it would spoil the sum for good.
//
// What each of them is good for, alerts, and a dashboard for Grafana:
// docs/observability.md.
package prommetrics
