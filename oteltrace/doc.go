// Package oteltrace traces messages with OpenTelemetry: a span for each attempt, and one for
// publishing a message or a batch, by the semantic conventions for messaging and RabbitMQ,
// version 1.43 (https://opentelemetry.io/docs/specs/semconv/messaging/rabbitmq/).
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
// Each attempt is a trace of its own, linked to the span that published the message and to the
// attempt before. Attempts are not children of the publisher's span, because a retry may begin
// hours later, when the publisher's trace is complete and a tail sampler has decided;
// Config.ChildOfProducer makes the first attempt a child. A run of reprise.Immediate is part of
// its attempt.
//
// The publisher's span is in the header traceparent (W3C Trace Context). The span of the attempt
// before is in HeaderPrevious, which Middleware puts on the copy of a failed message. Where no
// copy is made (the worker or its connection ended, or the strategy is topology.Requeuing,
// DelayedRetry or DeadLettering), an attempt is linked to the last one that was copied.
//
// A span has the name "process" and the queue, or "publish" and the exchange, or the queue for
// the default exchange. The span of an attempt ends with its handler and has what the handler
// asked for as OutcomeKey. The worker decides later whether attempts are left, and tells the
// Config's Logger and Observer. A failed attempt has the status Error, with the error's text, and
// error.type; no exception event is recorded. docs/observability.md has more.
//
// The package imports package reprise and the OpenTelemetry API.
package oteltrace
