package failed

import (
	"fmt"
	"strconv"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/topology"
)

// Take returns the message that the archive stores for a delivery from a failed queue. It reads the headers that were
// written when the message was parked: a Trail, the marks of the presets, or the x-death header of the broker. A
// publisher can forge all of them, so the results are only informative, and the archive stores the content unchanged.
// If origin returns a queue, a replay sends the message to that queue: see ingest.Config.Origin.
func Take(m *reprise.Delivery, origin func(*reprise.Delivery) string) Arrived {
	h := HistoryOf(m.Headers)
	died := Deaths(m.Headers)
	out := Message{
		FailedQueue: m.Queue,
		Queue:       PlaceOf(m, h, died, origin).Queue,
		Attempts:    h.Attempts,
		Errors:      h.Errors, ErrorsDropped: h.ErrorsDropped,
		FirstFailed: h.FirstFailed,
		Exchange:    m.Exchange, RoutingKey: m.RoutingKey,
		Content: ContentOf(m),
	}
	out.Reason, _ = m.Headers[topology.HeaderReason].(string)
	if n := len(h.Errors); n > 0 {
		out.Error, out.LastFailed = h.Errors[n-1].Error, h.Errors[n-1].Time
	}
	if len(died) > 0 {
		newest, oldest := died[0], died[len(died)-1]
		why := fmt.Sprintf("dead-lettered by the broker: %s in %s", newest.reason, newest.queue)
		if out.Reason == "" {
			out.Reason = why
		}
		if out.Error == "" {
			out.Error = why
		}
		if newest.time.After(out.LastFailed) {
			out.LastFailed = newest.time
		}
		if out.FirstFailed.IsZero() {
			out.FirstFailed = oldest.time
		}
		out.Exchange, out.RoutingKey = oldest.exchange, oldest.key
	} else if first, ok := m.Headers["x-first-death-exchange"].(string); ok {
		out.Exchange = first // a program has removed x-death from its copy
	}
	if h.Queue != "" {
		out.Exchange, out.RoutingKey = h.Exchange, h.RoutingKey
	}
	return Arrived{Message: out, Redelivered: m.Redelivered}
}

// HistoryOf reads the marks of a Trail, a CountDown and a CountUp. A message can have marks of several of them, because
// their headers differ.
func HistoryOf(headers topology.Table) topology.History {
	d := topology.Delivery{Headers: headers}
	h := topology.Trail{}.Read(d)
	if down := (topology.CountDown{Header: headerRetries, Errors: headerExceptions}).Read(d); len(h.Errors) == 0 {
		h.Errors = down.Errors
	}
	up := topology.CountUp{Header: headerProcessing}.Read(d)
	h.Attempts = max(h.Attempts, up.Attempts, len(h.Errors)+h.ErrorsDropped)
	return h
}

// ContentOf returns the content of a delivery.
func ContentOf(m *reprise.Delivery) Content {
	return Content{
		Body:    m.Body,
		Headers: m.Headers,
		Properties: Properties{
			ContentType:     m.ContentType,
			ContentEncoding: m.ContentEncoding,
			CorrelationID:   m.CorrelationID,
			ReplyTo:         m.ReplyTo,
			MessageID:       m.MessageID,
			Type:            m.Type,
			AppID:           m.AppID,
			UserID:          m.UserID,
			Expiration:      milliseconds(m.Expiration),
			Priority:        m.Priority,
			Zero:            m.Zero,
			Timestamp:       m.Timestamp,
			Exchange:        m.Exchange,
			RoutingKey:      m.RoutingKey,
		},
	}
}

// death is an entry of the x-death header. The broker writes it when it dead-letters the message from a queue.
// https://www.rabbitmq.com/docs/dlx#effects
type death struct {
	queue, reason string // expired, rejected, maxlen, delivery_limit
	exchange, key string // the target to which the message was published
	time          time.Time
}

// Deaths returns the entries of the x-death header, newest first. It skips invalid entries, which a broker does not
// write.
func Deaths(headers topology.Table) []death {
	entries, _ := headers["x-death"].([]any)
	var all []death
	for _, e := range entries {
		t, ok := e.(topology.Table)
		if !ok {
			continue
		}
		var d death
		d.queue, _ = t["queue"].(string)
		d.reason, _ = t["reason"].(string)
		d.exchange, _ = t["exchange"].(string)
		d.time = amqpvalue.Time(t["time"])
		if keys, _ := t["routing-keys"].([]any); len(keys) > 0 {
			d.key, _ = keys[0].(string)
		}
		if d.queue != "" && d.reason != "" {
			all = append(all, d)
		}
	}
	return all
}

// milliseconds formats an expiration as in AMQP.
func milliseconds(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return strconv.FormatInt(d.Milliseconds(), 10)
}
