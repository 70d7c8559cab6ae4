package oteltrace

import (
	"context"
	"maps"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/published"
)

// Publisher wraps publish, which is the Publish method of a Client or a function that calls it. The returned function
// publishes in a span, and adds the headers that link the attempts to the span.
//
//	publish := oteltrace.Publisher(oteltrace.Config{}, client.Publish)
//	err := publish(ctx, m)
//
// The span is a child of the span in ctx, and ends when publish returns. Errors are returned unchanged. The attribute
// error.type has the same values as the label result in prommetrics, such as unroutable, nacked and unconfirmed.
//
// The returned function calls publish with a copy of the message, and does not change the headers of the original. If
// the headers contain a trace context, because the message is forwarded, the copy contains the new trace context
// instead, and the span is linked to the old one.
func Publisher(cfg Config, publish func(context.Context, *reprise.Message) error) func(context.Context, *reprise.Message) error {
	p := newPublisher(cfg)
	return func(ctx context.Context, m *reprise.Message) error {
		return p.publish(ctx, []*reprise.Message{m}, nil, func(ctx context.Context, traced []*reprise.Message) error {
			return publish(ctx, traced[0])
		})
	}
}

// BatchPublisher is like Publisher, but for a Client's PublishBatch. It creates one span for all messages, and links
// the attempts of each message to that span. If the messages do not all have the same exchange and routing key, the
// span has no destination. If several messages fail, error.type describes the error with the least certain outcome.
func BatchPublisher(cfg Config, publish func(context.Context, []*reprise.Message) error) func(context.Context, []*reprise.Message) error {
	return newPublisher(cfg).batch(publish)
}

// BatchFunc is a function as a Publisher of package outbox.
type BatchFunc func(context.Context, []*reprise.Message) error

// PublishBatch calls f.
func (f BatchFunc) PublishBatch(ctx context.Context, messages []*reprise.Message) error {
	return f(ctx, messages)
}

// RelayPublisher is like BatchPublisher, for a Relay of package outbox. Messages keep the trace context of their insertion, to which the
// span is linked; see BeforeInsert.
//
//	relay, err := outbox.NewRelay(box, oteltrace.RelayPublisher(oteltrace.Config{}, client.PublishBatch), outbox.RelayConfig{})
func RelayPublisher(cfg Config, publish func(context.Context, []*reprise.Message) error) BatchFunc {
	p := newPublisher(cfg)
	p.forwards = true
	return p.batch(publish)
}

// BeforeInsert returns a function for Config.BeforeInsert of package outbox. It creates the span "create QUEUE" of each message, and
// adds its trace context to the headers, unless they have one. The span is a child of the span in the context of the insertion. Without
// one, as for a periodic message, it starts a trace.
func BeforeInsert(cfg Config) func(context.Context, *reprise.Message) error {
	p := newPublisher(cfg)
	p.forwards = true
	return func(ctx context.Context, m *reprise.Message) error {
		if p.hasContext(m) {
			return nil
		}
		name, attributes := describePublishing("create", semconv.MessagingOperationTypeCreate, []*reprise.Message{m})
		ctx, span := p.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attributes...))
		defer span.End()
		if m.MessageID != "" {
			span.SetAttributes(semconv.MessagingMessageID(m.MessageID))
		}
		m.Headers = p.traced(ctx, m).Headers
		return nil
	}
}

type publisher struct {
	cfg      Config
	tracer   trace.Tracer
	forwards bool // messages keep their trace context
}

// hasContext reports whether a message has a trace context that it keeps.
func (p *publisher) hasContext(m *reprise.Message) bool {
	if !p.forwards {
		return false
	}
	_, origin := headers(m.Headers).extract(context.Background(), p.cfg.Propagator)
	return origin.IsValid()
}

func newPublisher(cfg Config) *publisher {
	cfg = cfg.withDefaults()
	return &publisher{cfg: cfg, tracer: cfg.tracer()}
}

func (p *publisher) batch(publish func(context.Context, []*reprise.Message) error) BatchFunc {
	return func(ctx context.Context, messages []*reprise.Message) error {
		count := []attribute.KeyValue{semconv.MessagingBatchMessageCount(len(messages))}
		return p.publish(ctx, messages, count, publish)
	}
}

func (p *publisher) publish(ctx context.Context, messages []*reprise.Message, about []attribute.KeyValue, publish func(context.Context, []*reprise.Message) error) error {
	name, attributes := describePublishing("publish", semconv.MessagingOperationTypeSend, messages)
	var origins []trace.Link
	for _, m := range messages {
		if m != nil {
			_, origin := headers(m.Headers).extract(ctx, p.cfg.Propagator)
			origins = append(origins, links(origin, trace.SpanContext{})...)
		}
	}
	ctx, span := p.tracer.Start(ctx, name,
		trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attributes...),
		trace.WithAttributes(about...),
		trace.WithLinks(origins...),
	)
	defer span.End()

	traced := make([]*reprise.Message, len(messages))
	copies := make(map[*reprise.Message]*reprise.Message, len(messages))
	for i, m := range messages {
		if copies[m] == nil { // a message that the batch contains twice has one ID
			copies[m] = p.traced(ctx, m)
		}
		traced[i] = copies[m]
	}
	err := publish(ctx, traced)
	for i, m := range messages {
		if m != nil {
			m.MessageID = traced[i].MessageID // publish has set the id; a second call must use the same id
		}
	}
	if len(messages) == 1 && messages[0] != nil {
		span.SetAttributes(semconv.MessagingMessageID(messages[0].MessageID))
	}
	if err != nil {
		span.SetAttributes(semconv.ErrorTypeKey.String(published.Result(err)))
		span.SetStatus(codes.Error, text(err))
	}
	return err
}

// traced returns a copy of m with the span in ctx in its headers, unless m keeps its trace context. For nil it returns nil, which publish rejects.
func (p *publisher) traced(ctx context.Context, m *reprise.Message) *reprise.Message {
	if m == nil {
		return nil
	}
	traced := *m
	traced.Headers = make(map[string]any, len(m.Headers)+2)
	maps.Copy(traced.Headers, m.Headers)
	headers(traced.Headers).withoutPrevious()
	if p.hasContext(m) {
		return &traced
	}
	if trace.SpanContextFromContext(ctx).IsValid() {
		for _, field := range p.cfg.Propagator.Fields() {
			delete(traced.Headers, field)
		}
	}
	p.cfg.Propagator.Inject(ctx, headers(traced.Headers))
	return &traced
}

// describePublishing returns the name and the attributes of a span for messages.
func describePublishing(operation string, kind attribute.KeyValue, messages []*reprise.Message) (name string, attributes []attribute.KeyValue) {
	elsewhere := func(m *reprise.Message) bool {
		return m == nil || m.Exchange != messages[0].Exchange || m.RoutingKey != messages[0].RoutingKey
	}
	if len(messages) == 0 || messages[0] == nil || slices.ContainsFunc(messages, elsewhere) {
		return operation, []attribute.KeyValue{semconv.MessagingSystemRabbitMQ, semconv.MessagingOperationName(operation), kind}
	}
	m := messages[0]
	to := m.Exchange
	if to == "" {
		to = m.RoutingKey // the name of a queue
	}
	attributes = append(describe(operation, destination(m.Exchange, m.RoutingKey, ""), m.RoutingKey), kind)
	if len(messages) == 1 && m.CorrelationID != "" {
		attributes = append(attributes, semconv.MessagingMessageConversationID(m.CorrelationID))
	}
	return operation + " " + destination(to, "", ""), attributes
}
