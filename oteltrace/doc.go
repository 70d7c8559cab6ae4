// Package oteltrace traces messages with OpenTelemetry: a span for each attempt,
// and one for publishing a message or a batch of them, by the semantic conventions for messaging and RabbitMQ,
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
// # Spans and links
//
// Each attempt is a trace of its own. It is linked to the span that published the
// message, and to the attempt before:
//
//	trace 1          trace 2              trace 3              trace 4
//	publish orders   process orders       process orders       process orders
//	                 attempt 1, retry     attempt 2, retry     attempt 3, done
//	     ▲ ▲ ▲         │      ▲             │   │    ▲            │   │
//	     │ │ └─────────┘      └─────────────│───┘    └────────────│───┘
//	     │ └────────────────────────────────┘                     │
//	     └────────────────────────────────────────────────────────┘
//
// Links and not children, because a retry may begin hours later. By then the
// trace of the publisher is complete: a collector that samples by the tail has
// made its decision, a store with a short memory has dropped it, and a trace
// that goes on nevertheless seems to have lasted for hours. It is also what the
// conventions recommend for messages, and the only form that is the same for one
// message and for many. Config.ChildOfProducer is for those who want to see the
// first attempt, which follows at once, in the publisher's trace.
//
// What reprise.Immediate runs again at once is part of the same attempt, and its
// span.
//
// Samplers that decide at the head see a new trace with each attempt, and are
// given the links; see the example.
//
// The span that published is known from the header traceparent, as W3C's Trace
// Context has it. The one of the attempt before travels in HeaderPrevious, which
// Middleware puts on the copy of a message that failed. So it is missing where
// there is no copy: the attempt before was cut short by the end of the worker or
// of its connection, or the strategy returns the message without copying it
// (topology.Requeuing, topology.DelayedRetry, topology.DeadLettering). Such an attempt is linked to the last
// one that was copied. Whoever publishes a parked message again, with its
// headers, continues the chain.
//
// # What a span says
//
// Those of attempts are called "process" and the queue, those of publishing
// "publish" and the exchange, or the queue where it is the default exchange: not
// the whole destination as it stands in messaging.destination.name, since routing
// keys may be without number. Beside the attributes of the conventions, an
// attempt has AttemptKey, OutcomeKey and others that are described there.
//
// A span of an attempt ends with its handler. What the handler asked for is on
// it; whether a message that was to be retried had attempts left, and whether
// the broker took the copy, is decided later, and told to the Config's Logger and
// Observer.
//
// An attempt that failed has the status Error, with the error's text, and its
// type as error.type. No exception event is recorded: the conventions want those
// in logs, and there they are.
package oteltrace
