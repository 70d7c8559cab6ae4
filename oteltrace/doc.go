// Package oteltrace traces messages with OpenTelemetry. It creates a span for each attempt, a span for each publication
// of a message or a batch, and, with Observer, a span for each copy of a failed message. The spans follow the semantic conventions for messaging and RabbitMQ, version
// 1.43 (https://opentelemetry.io/docs/specs/semconv/messaging/rabbitmq/).
//
//	publish := oteltrace.Publisher(oteltrace.Config{}, client.Publish)
//	err := publish(ctx, &reprise.Message{RoutingKey: "orders", Body: body})
//	…
//	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
//		Queue:      "orders",
//		Handler:    handler,
//		Middleware: []reprise.Middleware{oteltrace.Middleware(oteltrace.Config{})},
//	})
//
// Each attempt is a separate trace, linked to the span that published the message and to the previous attempt. Attempts
// are not children of the publisher's span, because a retry may begin hours later, when the publisher's trace is
// complete and a tail sampler has made its decision. Config.ChildOfProducer makes the first attempt a child. If
// reprise.Immediate runs the handler again, that run is part of the same attempt.
//
// The header traceparent (W3C Trace Context) contains the publisher's span. HeaderPrevious contains the span of the
// previous attempt. Middleware sets HeaderPrevious on the copy of a failed message. If no copy is made, the next
// attempt is linked to the last attempt whose message was copied. No copy is made for a retry if the worker stops or
// its connection fails first, or if the strategy is topology.Requeuing (without Classic), DelayedRetry or
// DeadLettering.
//
// BeforeInsert and RelayPublisher trace messages of package outbox: each insertion has the span "create QUEUE", to which the publication
// and the attempts are linked. A periodic message starts a trace.
//
// The name of a span is "process QUEUE" or "publish EXCHANGE". For the default exchange, it is "publish QUEUE". The span of
// an attempt ends when the handler returns. Its attribute OutcomeKey is the action that the handler requests. The worker
// decides later whether another attempt is permitted, and reports this decision to the Logger and the Observer in
// reprise.Config. The span of a failed attempt has the status Error, with the error text, and the attribute error.type. The
// package does not record exception events. For details, see docs/observability.md.
//
// The package imports the packages reprise, backoff and internal/published, and the OpenTelemetry API.
package oteltrace
