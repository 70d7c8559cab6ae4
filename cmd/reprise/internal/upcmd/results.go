package upcmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/handler"
	"github.com/reprisemq/reprise/cmd/reprise/internal/telemetry"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/inner"
	"github.com/reprisemq/reprise/internal/loglimit"
)

// resultSender publishes the results of the handlers of all workers.
type resultSender struct {
	telemetry *telemetry.Telemetry
	log       *slog.Logger
	client    atomic.Pointer[resultClient] // set before a handler runs
}

// resultClient publishes results, and counts them.
type resultClient struct {
	publish func(context.Context, *reprise.Message) error
	count   func(queue, result string)
}

// resultTimeout is the maximum time until the broker confirms a result.
const resultTimeout = reprise.DefaultConfirmTimeout

// connect sets the client.
func (s *resultSender) connect(client *reprise.Client, count func(queue, result string)) {
	own := inner.Of(client).Publish // the observer of published messages does not count results, whose queue a publisher may choose
	s.client.Store(&resultClient{count: count, publish: s.telemetry.Publisher(func(ctx context.Context, m *reprise.Message) error {
		ctx, cancel := context.WithTimeout(ctx, resultTimeout)
		defer cancel()
		return own(ctx, m.Exchange, m.RoutingKey, &amqpconn.Message{
			Body: m.Body, Headers: m.Headers, ContentType: m.ContentType, CorrelationID: m.CorrelationID, MessageID: m.MessageID, Timestamp: time.Now(),
		})
	})})
}

// of returns the results of a worker, or nil without "results:".
func (s *resultSender) of(w config.Worker) *handler.Results {
	if w.Results == nil {
		return nil
	}
	var limit loglimit.Limit
	return &handler.Results{Max: w.Results.MaxSize, Send: func(ctx context.Context, m *reprise.Delivery, r handler.Result) error {
		return s.send(ctx, w.Results, m, r, &limit)
	}}
}

// maxShortString is the maximum length of a property.
const maxShortString = 255

// send publishes a result. The broker has confirmed the result when send returns nil, and then the worker acknowledges the message. A
// crash in between repeats the result, with the same message id.
func (s *resultSender) send(ctx context.Context, to *config.Results, m *reprise.Delivery, r handler.Result, limit *loglimit.Limit) error {
	result := &reprise.Message{Exchange: to.Exchange, RoutingKey: to.Key, Body: r.Body, CorrelationID: m.CorrelationID}
	if to.ReplyTo {
		if result.RoutingKey = m.ReplyTo; m.ReplyTo == "" {
			return nil
		}
	} else if result.CorrelationID == "" {
		result.CorrelationID = m.MessageID
	}
	if id := m.MessageID + "-result"; m.MessageID != "" && len(id) <= maxShortString {
		result.MessageID = id
	}
	if len(r.ContentType) <= maxShortString {
		result.ContentType = r.ContentType
	}
	client := s.client.Load()
	err := client.publish(ctx, result)
	_, large := errors.AsType[*reprise.TooLargeError](err)
	switch {
	case err == nil, to.ReplyTo && errors.Is(err, reprise.ErrUnroutable) && direct(m.ReplyTo):
		client.count(m.Queue, "sent")
		return nil
	case to.ReplyTo && (errors.Is(err, reprise.ErrUnroutable) || errors.Is(err, reprise.ErrNacked)):
		client.count(m.Queue, "dropped")
		limit.Log(s.log, slog.LevelWarn, "result dropped, because its reply queue does not exist or is full", "queue", m.Queue, "message_id", m.MessageID, "reply_to", brief.Excerpt(m.ReplyTo, maxShortString))
		return nil
	}
	client.count(m.Queue, "failed")
	err = &resultError{err}
	switch {
	case large || errors.Is(err, reprise.ErrInvalidMessage):
		return reprise.Park(err)
	case to.ReplyTo: // a publisher must not be able to pause the worker
		return err
	}
	return reprise.PauseFor(storePause, err)
}

// direct reports whether a queue is a channel that waits for replies. Up to version 4.0, RabbitMQ returns mandatory messages to it as
// unroutable, and delivers them.
func direct(queue string) bool { return strings.HasPrefix(queue, "amq.rabbitmq.reply-to.") }

// resultError is the failure to publish a result.
type resultError struct{ err error }

func (e *resultError) Error() string { return fmt.Sprintf("cannot publish the result: %v", e.err) }

func (e *resultError) Unwrap() error { return e.err }

// withoutLimit lets failures to publish results to a configured place be retried without a limit, because the message is not their cause.
func withoutLimit(r *config.Results, policy *reprise.Policy) {
	if r == nil || r.ReplyTo {
		return
	}
	policy.Rules = append([]reprise.Rule{{
		Match: func(err error) bool {
			_, is := errors.AsType[*resultError](err)
			return is
		},
		MaxAttempts: config.MaxAttempts,
	}}, policy.Rules...)
}
